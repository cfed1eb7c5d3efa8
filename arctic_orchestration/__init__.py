"""An event-driven scheduler for data lakes on Dagster and Spark.

The names below are imported when they are first used, so that programs which need only a part,
as the lake or the command line, do not load Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arctic_orchestration.errors import MissingExtra

if TYPE_CHECKING:
    from arctic_orchestration.code_location.arctic import Arctic
    from arctic_orchestration.code_location.compaction import compaction_definitions
    from arctic_orchestration.code_location.consuming import consumer_sensor
    from arctic_orchestration.code_location.freshness.declaring import fresh_parents
    from arctic_orchestration.code_location.freshness.factories import task_definitions
    from arctic_orchestration.code_location.resource import ArcticResource
    from arctic_orchestration.constraints import only
    from arctic_orchestration.consuming.consumer import PartitionConsumer
    from arctic_orchestration.consuming.partition import ConsumedPartition
    from arctic_orchestration.consuming.partitions import Partitions
    from arctic_orchestration.consuming.progress import Progress
    from arctic_orchestration.scheduling.schedule import Schedule, Target
    from arctic_orchestration.triggers import on

__all__ = [
    "Arctic",
    "ArcticResource",
    "ConsumedPartition",
    "PartitionConsumer",
    "Partitions",
    "Progress",
    "Schedule",
    "Target",
    "compaction_definitions",
    "consumer_sensor",
    "fresh_parents",
    "on",
    "only",
    "task_definitions",
]

_HOMES = {
    "Arctic": "arctic_orchestration.code_location.arctic",
    "ArcticResource": "arctic_orchestration.code_location.resource",
    "ConsumedPartition": "arctic_orchestration.consuming.partition",
    "PartitionConsumer": "arctic_orchestration.consuming.consumer",
    "Partitions": "arctic_orchestration.consuming.partitions",
    "Progress": "arctic_orchestration.consuming.progress",
    "Schedule": "arctic_orchestration.scheduling.schedule",
    "Target": "arctic_orchestration.scheduling.schedule",
    "compaction_definitions": "arctic_orchestration.code_location.compaction",
    "consumer_sensor": "arctic_orchestration.code_location.consuming",
    "fresh_parents": "arctic_orchestration.code_location.freshness.declaring",
    "task_definitions": "arctic_orchestration.code_location.freshness.factories",
}
_MODULES = {
    "on": "arctic_orchestration.triggers.on",
    "only": "arctic_orchestration.constraints.only",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            missing = MissingExtra.of(error)
            if missing is None:
                raise
            raise missing from error
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
