"""The scheduler's questions about targets, which the code location answers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.triggers.base import PartitionClock, PartitionSource


class PartitionMap(Protocol):
    """Maps the partitions of an asset to those of a target, or to groups."""

    def targets_of(self, keys: Collection[str], at: datetime) -> Mapping[str, tuple[str, ...]]:
        """Returns the target partitions of each key of the asset.

        Empty: the key maps to none. A key that is left out is no partition of the asset. ``at`` is
        the moment at which *all* partitions and the *last* one are evaluated.
        """
        ...

    def sources_of(self, target: str, at: datetime) -> tuple[str, ...]:
        """Returns all partitions of the asset that map to a target partition, in order."""
        ...

    def between(self, start: str, end: str) -> Sequence[str]:
        """Returns the partitions of the asset in a contiguous range."""
        ...


class TargetPartitions(Protocol):
    """The partitions of one target."""

    def map_of(self, asset: str, source: PartitionSource) -> PartitionMap | None:
        """Returns the map from partitions of an asset to these; None: the asset has none."""
        ...

    def keys_at(self, clock: PartitionClock, at: datetime) -> Sequence[str]:
        """Returns the partitions that a clock selects at a moment; empty: there are none (yet)."""
        ...

    def ends(self, after: datetime, until: datetime) -> Sequence[datetime]:
        """Returns the ends of time windows in ``(after, until]``, the oldest thousand at most."""
        ...

    def next_end(self, after: datetime) -> datetime | None:
        """Returns the next end of a window; None: no windows, or none follows."""
        ...

    def ends_at(self, key: str) -> datetime | None:
        """Returns when the window of a partition ends, or None if it is no time window."""
        ...

    def exists_from(self, key: str) -> datetime | None:
        """Returns when a partition begins to exist in Dagster; None: it exists, or never will."""
        ...


class Targets(Protocol):
    """The targets of a code location."""

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        """Returns why a run of the target for these partitions could not be made; None: it can."""
        ...

    def exists(self, target: Target) -> bool:
        """Returns whether the location has the target: the job, or at least one of the assets."""
        ...

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        """Returns the partitions in contiguous ranges of the target, each in the target's order."""
        ...

    def partitions(self, target: Target) -> TargetPartitions | None:
        """Returns the partitions of a target; None: it has none, or they are unknown."""
        ...

    def blocking_checks(self, asset: str) -> Collection[str] | None:
        """Returns the asset's checks that block downstream assets; None: unknown asset."""
        ...

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        """Returns the keys of an asset by one of their dimensions.

        Errors:
            InvalidInput: the asset's partitions have no such dimension.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Why a run cannot be made at the moment."""

    text: str
    #: whether it will persist: the check itself did not fail
    lasting: bool


def problem_of(
    targets: Targets, target: Target, start: str | None, end: str | None
) -> Problem | None:
    """Returns the problem of a run; a failed check is a problem too."""
    try:
        text = targets.problem(target, start, end)
    except Exception as error:
        return not_looked_up(error)
    return None if text is None else Problem(text=text, lasting=True)


def not_looked_up(error: Exception) -> Problem:
    """Returns the problem of a target that the code location could not check."""
    return Problem(text=f"its target could not be looked up: {error!r}", lasting=False)
