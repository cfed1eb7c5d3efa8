"""An event-driven scheduler for data lakes on Dagster and Spark.

The names below are imported when they are first used, so that programs which need only a part,
as the lake or the command line, do not load Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arctic_orchestration.code_location.arctic import Arctic
    from arctic_orchestration.code_location.compaction import compaction_definitions
    from arctic_orchestration.code_location.resource import ArcticResource
    from arctic_orchestration.constraints import only
    from arctic_orchestration.scheduling.schedule import Schedule, Target
    from arctic_orchestration.triggers import on

__all__ = [
    "Arctic",
    "ArcticResource",
    "Schedule",
    "Target",
    "compaction_definitions",
    "on",
    "only",
]

_HOMES = {
    "Arctic": "arctic_orchestration.code_location.arctic",
    "ArcticResource": "arctic_orchestration.code_location.resource",
    "Schedule": "arctic_orchestration.scheduling.schedule",
    "Target": "arctic_orchestration.scheduling.schedule",
    "compaction_definitions": "arctic_orchestration.code_location.compaction",
}
_MODULES = {
    "on": "arctic_orchestration.triggers.on",
    "only": "arctic_orchestration.constraints.only",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
