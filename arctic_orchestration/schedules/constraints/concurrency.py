"""Admits while fewer than a limit of runs are active or on their way."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from arctic_orchestration.schedules.constraints.base import (
    Constraint,
    Facts,
    Verdict,
    admit,
    group_resource,
)
from arctic_orchestration.specification import IndexedName


class Concurrency(Constraint):
    """At most ``limit`` runs at a time: of the target, or of a named group.

    Without a group, every run of the target counts, whatever started it. A group is counted over
    all schedules, code locations and clusters that share the state database.
    """

    kind: Literal["concurrency"] = "concurrency"
    limit: int = Field(ge=1, strict=True)
    group: IndexedName | None = None

    def resources(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        return targets if self.group is None else (group_resource(self.group),)

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        resources = self.resources(facts.targets)
        active = facts.active(resources)
        what = "this target" if self.group is None else f"group {self.group}"
        reason = f"{active} of {self.limit} runs of {what} are active"
        if active < self.limit:
            return admit(reason)
        return self.refuse(reason, waits_for=resources)
