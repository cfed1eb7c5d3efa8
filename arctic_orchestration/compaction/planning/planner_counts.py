"""The counts of a tick of the planner, or of an observer."""

from dataclasses import dataclass

from arctic_orchestration.compaction.table_pool import Counts


@dataclass(frozen=True, kw_only=True)
class PlanningCounts(Counts):
    """The counts of a planner's tick, over all tables."""

    #: tables of the catalog
    tables: int = 0
    #: tables whose metadata was read
    looked: int = 0
    #: tables that were due for a check, and have not changed since the last one
    unchanged: int = 0
    #: tables whose manifests were read
    planned: int = 0
    #: tasks that are new, waiting tasks that stay, and tasks that a newer plan replaced
    offered: int = 0
    kept: int = 0
    superseded: int = 0
    #: tasks that did not fit into their queue
    blocked: int = 0
    #: tables that newly turned out not to be compacted
    refused: int = 0
    #: tables with a failed check
    troubled: int = 0
    #: tables that were due, and are left for the next tick
    postponed: int = 0
    #: tasks that would be offered if their tables were not only observed
    wanted: int = 0
