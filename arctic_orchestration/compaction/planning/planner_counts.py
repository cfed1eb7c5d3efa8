"""What a tick of the planner, or of an observer, did."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PlanningCounts:
    """What a tick of the planner did, over all tables."""

    #: tables of the catalog
    tables: int = 0
    #: tables whose metadata was read
    looked: int = 0
    #: tables whose manifests were read
    planned: int = 0
    #: tasks that are new, that were waiting and stay, that a newer plan replaced
    offered: int = 0
    kept: int = 0
    superseded: int = 0
    #: tasks that found no room in their queue
    blocked: int = 0
    #: tables that are not compacted, now found out
    refused: int = 0
    #: tables that could not be looked at
    troubled: int = 0
    #: tables that were to be looked at, and are left for the next tick
    postponed: int = 0
    #: tasks that would be offered if their tables were not only observed
    wanted: int = 0

    def plus(self, other: "PlanningCounts") -> "PlanningCounts":
        """Both together."""
        return PlanningCounts(
            **{name: getattr(self, name) + getattr(other, name) for name in vars(self)}
        )
