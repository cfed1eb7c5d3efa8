"""Admits some time after the target's last run ended, and not while one is active."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, field_validator

from arctic_orchestration.quantities import Duration, format_duration, format_moment
from arctic_orchestration.schedules.constraints.base import Constraint, Facts, Verdict, admit
from arctic_orchestration.specification import one_or_several

_STATUSES = ("success", "failure", "canceled")
_Status = Literal["success", "failure", "canceled"]


class MinimumInterval(Constraint):
    """No run of the target is active, and ``duration`` has passed since the last one's end.

    The last one is the last that ended in one of ``statuses``, whatever started it; runs with other
    statuses are ignored.
    """

    kind: Literal["minimum_interval"] = "minimum_interval"
    duration: Duration
    statuses: Annotated[
        tuple[_Status, ...],
        BeforeValidator(one_or_several, json_schema_input_type=_Status | tuple[_Status, ...]),
    ] = ("success",)

    @field_validator("statuses")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("at least one status")
        return tuple(status for status in _STATUSES if status in value)

    def resources(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        return targets

    @property
    def needs_ends(self) -> bool:
        return True

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        targets = self.resources(facts.targets)
        if facts.active(targets):
            return self.refuse("a run of this target is active", waits_for=targets)
        ended = " or ".join(self.statuses)
        last = facts.last_end(targets, self.statuses)
        if last is None:
            return admit(f"no run of this target has ended with {ended}")
        opens_at = last + self.duration
        reason = (
            f"{format_duration(self.duration)} after the last run of this target that ended "
            f"with {ended}, at {format_moment(opens_at)}"
        )
        if now >= opens_at:
            return admit(reason)
        return self.refuse(reason, recheck_at=opens_at)
