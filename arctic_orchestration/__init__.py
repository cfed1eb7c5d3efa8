"""An event-driven scheduler for data lakes on Dagster and Spark.

The names below are imported on first use, so that programs which need only a part, such as the lake
or the command line, do not load Dagster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arctic_orchestration.errors import MissingExtra

if TYPE_CHECKING:
    from arctic_orchestration.arctic import Arctic
    from arctic_orchestration.compaction.dagster.definitions import Compaction
    from arctic_orchestration.consumers.dagster.partition_consumer import PartitionConsumer
    from arctic_orchestration.consumers.dagster.sensor import consumer_sensor
    from arctic_orchestration.consumers.leased_partitions import Partitions
    from arctic_orchestration.consumers.partition import ConsumedPartition
    from arctic_orchestration.consumers.progress import Progress
    from arctic_orchestration.freshness.dagster.definitions import Freshness
    from arctic_orchestration.freshness.dagster.fresh_parents import check_lease, fresh_parents
    from arctic_orchestration.freshness.dagster.materialization import TaskRun
    from arctic_orchestration.freshness.status import Step, add_sink
    from arctic_orchestration.freshness.submit import submit_tasks
    from arctic_orchestration.lake.spark_resource import pyspark_resource
    from arctic_orchestration.schedules.constraints import only
    from arctic_orchestration.schedules.dagster.adoption.functions import request_of
    from arctic_orchestration.schedules.dagster.request_hooks import RequestContext
    from arctic_orchestration.schedules.dagster.resource import ArcticResource
    from arctic_orchestration.schedules.schedule import Schedule, Target
    from arctic_orchestration.schedules.triggers import on
    from arctic_orchestration.settings import Settings

__all__ = [
    "Arctic",
    "ArcticResource",
    "Compaction",
    "ConsumedPartition",
    "Freshness",
    "PartitionConsumer",
    "Partitions",
    "Progress",
    "RequestContext",
    "Schedule",
    "Settings",
    "Step",
    "Target",
    "TaskRun",
    "add_sink",
    "check_lease",
    "consumer_sensor",
    "fresh_parents",
    "on",
    "only",
    "pyspark_resource",
    "request_of",
    "submit_tasks",
]

_HOMES = {
    "Arctic": "arctic_orchestration.arctic",
    "ArcticResource": "arctic_orchestration.schedules.dagster.resource",
    "Compaction": "arctic_orchestration.compaction.dagster.definitions",
    "ConsumedPartition": "arctic_orchestration.consumers.partition",
    "Freshness": "arctic_orchestration.freshness.dagster.definitions",
    "PartitionConsumer": "arctic_orchestration.consumers.dagster.partition_consumer",
    "Partitions": "arctic_orchestration.consumers.leased_partitions",
    "Progress": "arctic_orchestration.consumers.progress",
    "RequestContext": "arctic_orchestration.schedules.dagster.request_hooks",
    "Schedule": "arctic_orchestration.schedules.schedule",
    "Settings": "arctic_orchestration.settings",
    "Step": "arctic_orchestration.freshness.status",
    "Target": "arctic_orchestration.schedules.schedule",
    "TaskRun": "arctic_orchestration.freshness.dagster.materialization",
    "add_sink": "arctic_orchestration.freshness.status",
    "check_lease": "arctic_orchestration.freshness.dagster.fresh_parents",
    "consumer_sensor": "arctic_orchestration.consumers.dagster.sensor",
    "fresh_parents": "arctic_orchestration.freshness.dagster.fresh_parents",
    "pyspark_resource": "arctic_orchestration.lake.spark_resource",
    "request_of": "arctic_orchestration.schedules.dagster.adoption.functions",
    "submit_tasks": "arctic_orchestration.freshness.submit",
}
_MODULES = {
    "on": "arctic_orchestration.schedules.triggers.on",
    "only": "arctic_orchestration.schedules.constraints.only",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            raise MissingExtra.of(error) or error
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
