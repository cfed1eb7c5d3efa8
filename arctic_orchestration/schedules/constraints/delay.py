"""Admits some time after the trigger was satisfied."""

from datetime import datetime
from typing import Literal

from arctic_orchestration.quantities import Duration, format_duration, format_moment
from arctic_orchestration.schedules.constraints.base import Constraint, Facts, Verdict, admit


class Delay(Constraint):
    """Holds a job until ``duration`` after its trigger was satisfied."""

    kind: Literal["delay"] = "delay"
    duration: Duration

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        opens_at = facts.satisfied_at + self.duration
        text = f"{format_duration(self.duration)} after the trigger, at {format_moment(opens_at)}"
        if now >= opens_at:
            return admit(text)
        return self.refuse(text, recheck_at=opens_at)
