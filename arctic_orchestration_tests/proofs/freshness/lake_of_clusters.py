"""The code of two clusters: both have ``flights``, and ``report`` in the west needs the east."""

import os
from datetime import timedelta

import dagster as dg

from arctic_orchestration.code_location.freshness.declaring import fresh_parents
from arctic_orchestration.code_location.freshness.factories import task_definitions

_SOON = timedelta(seconds=5)
_TASKS: dict[str, dict[str, dict[str, float | None]]] = {
    "east": {"flights": {}, "raw": {}},
    "west": {"flights": {}, "report": {"raw": 24.0}},
}


def _asset(name: str, parents: dict[str, float | None]) -> dg.AssetsDefinition:
    @fresh_parents(parents, recheck=_SOON)
    @dg.asset(name=name)
    def made() -> None: ...

    return made


defs = task_definitions(
    tasks=[
        _asset(name, dict(parents))
        for name, parents in _TASKS[os.environ.get("ARCTIC_CLUSTER", "east")].items()
    ],
    interval_seconds=1,
)
