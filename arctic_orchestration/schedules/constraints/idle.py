"""Admits while no run of some assets or jobs is in progress."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator

from arctic_orchestration.schedules.constraints.base import (
    Constraint,
    Facts,
    Verdict,
    admit,
    asset_resource,
    job_resource,
)
from arctic_orchestration.specification import IndexedName, one_or_several

_Names = Annotated[
    tuple[IndexedName, ...],
    BeforeValidator(one_or_several, json_schema_input_type=IndexedName | tuple[IndexedName, ...]),
]
#: how many names a reason lists
_LISTED = 5


class Idle(Constraint):
    """No run of the assets or jobs is queued or running, whatever started it.

    Runs of the schedule's own code location count. Unlike ``concurrency``, a job that is admitted
    does not count as a run of them.
    """

    kind: Literal["idle"] = "idle"
    #: assets; without assets and jobs: those in the trigger
    assets: _Names = ()
    jobs: _Names = ()

    @property
    def asset_fields(self) -> tuple[str, ...]:
        return self.assets

    @property
    def job_fields(self) -> tuple[str, ...]:
        return self.jobs

    def watched(self, place: str, trigger_assets: tuple[str, ...]) -> tuple[str, ...]:
        assets = self.assets if self.assets or self.jobs else trigger_assets
        return (
            *(asset_resource(place, asset) for asset in assets),
            *(job_resource(place, job) for job in self.jobs),
        )

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        watched = self.watched(facts.place, facts.trigger_assets)
        busy = [name for name in watched if facts.active((name,))]
        if not busy:
            return admit(f"no run of {_listed(watched, facts.place)} is in progress")
        reason = f"a run of {_listed(busy, facts.place)} is in progress"
        return self.refuse(reason, waits_for=tuple(busy))


def _listed(resources: list[str] | tuple[str, ...], place: str) -> str:
    """Returns the names of resources without their place: ``asset raw/flights, job rollup``."""
    shown = []
    for resource in resources[:_LISTED]:
        kind, _, name = resource.partition(":")
        shown.append(f"{kind} {name.removeprefix(f'{place}/')}")
    more = len(resources) - _LISTED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
