"""What the scheduler asks about targets; the code location answers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.triggers.base import PartitionClock, PartitionSource


class PartitionMap(Protocol):
    """How the partitions of an asset belong to those of a target, or to groups."""

    def targets_of(self, keys: Collection[str], at: datetime) -> Mapping[str, tuple[str, ...]]:
        """The target partitions of each key of the asset.

        Empty: it maps to none. A key that is left out is no partition of the asset. ``at`` is the
        moment whose partitions are meant by *all* of them and the *last*.
        """
        ...

    def sources_of(self, target: str, at: datetime) -> tuple[str, ...]:
        """All partitions of the asset that map to a target partition, in order."""
        ...

    def between(self, start: str, end: str) -> Sequence[str]:
        """The partitions of the asset in a contiguous range."""
        ...


class TargetPartitions(Protocol):
    """The partitions of one target."""

    def map_of(self, asset: str, source: PartitionSource) -> PartitionMap | None:
        """How partitions of an asset map to these; none: the asset has no partitions."""
        ...

    def keys_at(self, clock: PartitionClock, at: datetime) -> Sequence[str]:
        """The partitions that a moment names; empty: there are none (yet)."""
        ...

    def ends(self, after: datetime, until: datetime) -> Sequence[datetime]:
        """When windows of time end in ``(after, until]``, the newest thousand at most."""
        ...

    def next_end(self, after: datetime) -> datetime | None:
        """When the next window ends; none: the partitions are no windows, or there is none."""
        ...

    def ends_at(self, key: str) -> datetime | None:
        """When the window of a partition ends; none: it is no window of time."""
        ...

    def exists_from(self, key: str) -> datetime | None:
        """When Dagster begins to have a partition; none: it has it, or will never have it."""
        ...


class Targets(Protocol):
    """What the code location knows of its targets."""

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        """Why a run of the target, for these partitions, could not be made; none: it can."""
        ...

    def exists(self, target: Target) -> bool:
        """Whether the location has the target: the job, or at least one of the assets."""
        ...

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        """The partitions in contiguous ranges of the target, each in the target's order."""
        ...

    def partitions(self, target: Target) -> TargetPartitions | None:
        """The partitions of a target; none: it has none, or they are not known."""
        ...

    def blocking_checks(self, asset: str) -> Collection[str] | None:
        """The asset's checks that block what comes after it; none: the asset is not known."""
        ...

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        """The keys of an asset by one of their dimensions.

        Errors:
            InvalidInput: the asset's partitions have no such dimension.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Why a run cannot be made at the moment."""

    text: str
    #: whether it will be the same the next time: it was not the looking that failed
    lasting: bool


def problem_of(
    targets: Targets, target: Target, start: str | None, end: str | None
) -> Problem | None:
    """The problem of a run, where looking for one may itself fail."""
    try:
        text = targets.problem(target, start, end)
    except Exception as error:
        return not_looked_up(error)
    return None if text is None else Problem(text=text, lasting=True)


def not_looked_up(error: Exception) -> Problem:
    """The problem of a target about which the code location gave no answer."""
    return Problem(text=f"its target could not be looked up: {error!r}", lasting=False)
