"""Admits while fewer than a limit of launches lie in a sliding span of time."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from arctic_orchestration.quantities import PositiveDuration, format_duration, format_moment
from arctic_orchestration.schedules.constraints.base import (
    Constraint,
    Facts,
    Verdict,
    admit,
    group_resource,
)
from arctic_orchestration.specification import IndexedName

#: the longest span for which launches are kept
LONGEST_SPAN = timedelta(days=30)


def _remembered(value: timedelta) -> timedelta:
    if value > LONGEST_SPAN:
        raise ValueError(f"a duration of at most {format_duration(LONGEST_SPAN)}")
    return value


class Rate(Constraint):
    """At most ``limit`` launches in any span of ``per``: of the target, or of a named group.

    A launch counts while it lies in ``(now - per, now]``. After a clock was set back, a launch in
    the future counts too: it has loaded what the limit protects.
    """

    kind: Literal["rate"] = "rate"
    limit: int = Field(ge=1, strict=True)
    per: Annotated[PositiveDuration, AfterValidator(_remembered)]
    group: IndexedName | None = None

    def resources(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        return targets if self.group is None else (group_resource(self.group),)

    @property
    def lookback(self) -> timedelta:
        return self.per

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        launches = facts.launches(self.resources(facts.targets), now - self.per)
        what = "this target" if self.group is None else f"group {self.group}"
        reason = f"{len(launches)} of {self.limit} launches of {what}"
        reason += f" within {format_duration(self.per)}"
        if len(launches) < self.limit:
            return admit(reason)
        # The limit may be lower than the number of launches under an earlier one.
        last_in_the_way = launches[len(launches) - self.limit]
        return self.refuse(
            f"{reason}, the oldest at {format_moment(launches[0])}",
            recheck_at=last_in_the_way + self.per,
        )
