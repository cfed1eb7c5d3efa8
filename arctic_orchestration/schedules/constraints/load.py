"""Admits while a measured load is below a share of the capacity."""

from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from arctic_orchestration.schedules.constraints.base import Constraint, Facts, Verdict, admit

#: No event says when a load falls: it is measured again.
RECHECK = timedelta(seconds=30)
_LOADS = {
    "runs": "runs in progress",
    "cpu": "processors",
    "memory": "memory",
    "spark": "cores of the Spark cluster that ARCTIC_SPARK_UI names",
}


class Load(Constraint):
    """The load that ``probe`` measures is below ``below``, a share of the capacity.

    ``runs`` is Dagster's runs in progress, ``cpu`` and ``memory`` are those of the machine on which
    the dispatcher ticks, ``spark`` the cores of a standalone cluster. If the load cannot
    be measured, no job is admitted.
    """

    kind: Literal["load"] = "load"
    below: float = Field(gt=0, le=1, strict=True, allow_inf_nan=False)
    probe: Literal["runs", "cpu", "memory", "spark"] = "runs"

    @property
    def probes(self) -> tuple[str, ...]:
        return (self.probe,)

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        what = f"the load of {self.probe} ({_LOADS[self.probe]})"
        load = facts.load(self.probe)
        if load is None:
            return self.refuse(f"{what} could not be measured", recheck_at=now + RECHECK)
        if load < self.below:
            return admit(f"{what} is {load:.4g}, below {self.below:g}")
        reason = f"{what} is {load:.4g}, not below {self.below:g}"
        return self.refuse(reason, recheck_at=now + RECHECK)
