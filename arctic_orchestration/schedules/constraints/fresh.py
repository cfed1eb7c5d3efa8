"""Admits when each parent is fresh enough for this schedule."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, field_validator

from arctic_orchestration.quantities import PositiveDuration, format_age
from arctic_orchestration.schedules.constraints.base import Constraint, Facts, Verdict, admit

#: up to 100 years: a longer span cannot be subtracted from today
_Hours = Annotated[float, Field(gt=0, le=876_000, strict=True, allow_inf_nan=False)]


class Fresh(Constraint):
    """Each of ``parents`` was made at most that many hours ago.

    Parents are assets, made when they are materialized, and jobs of the same code location, made
    when a run succeeds.
    """

    kind: Literal["fresh"] = "fresh"
    parents: Mapping[str, _Hours]
    recheck: PositiveDuration = timedelta(minutes=2)

    @field_validator("parents")
    @classmethod
    def _named(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if not value or "" in value:
            raise ValueError("at least one asset or job, each with its hours")
        return value

    @property
    def parents_needed(self) -> tuple[str, ...]:
        return tuple(self.parents)

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        stale = []
        for parent, hours in self.parents.items():
            at, fresh_for = facts.fresh_at(parent), timedelta(hours=hours)
            if at is None:
                stale.append(f"{parent} was never made")
            elif at < now - fresh_for:
                stale.append(
                    f"{parent} is {format_age(now - at)} old, more than {format_age(fresh_for)}"
                )
        if stale:
            return self.refuse("; ".join(stale), recheck_at=now + self.recheck)
        return admit(f"fresh: {', '.join(self.parents)}")
