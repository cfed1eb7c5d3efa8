"""What a planner remembers of a table from tick to tick, so that no plan is made twice."""

from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table

from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.tables import CompactionTable

#: Clocks of those who write metadata may differ from ours by that.
_CLOCKS = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A table as it was when this process last looked at it."""

    looked_at: datetime
    #: it is not looked at earlier, unless something makes it due
    next_look_at: datetime
    #: as :attr:`CompactionTable.due_number` was
    due_number: int
    #: of the policy it was planned by; none: it was not planned by this process
    fingerprint: str | None = None
    #: the live tasks after that
    tasks: frozenset[str] = frozenset()
    #: when files have waited for an interval next; none: never
    recheck_at: datetime | None = None
    #: how often in a row it could not be looked at
    failures: int = 0

    def waits(self, row: CompactionTable | None, now: datetime) -> bool:
        """Whether it is too early, and nothing has made the table due since."""
        told = row is not None and row.due_since is not None and row.due_number != self.due_number
        return now < self.next_look_at and not told


def why_planned(
    row: CompactionTable,
    table: Table,
    policy: Policy,
    memory: Memory | None,
    live_tasks: Set[str],
    now: datetime,
    *,
    rested: bool = False,
) -> str | None:
    """Why a plan of a table may be another one than the last; none: it is the same.

    Args:
        row: what all processes know of it.
        table: as it is now.
        policy: of its properties.
        memory: what this process knows; without a plan in it, row and metadata decide.
        live_tasks: its tasks.
        now: the moment.
        rested: whether the rest of a file has ended since anybody looked.
    """
    snapshot = table.current_snapshot()
    if row.due_since is not None:
        return row.due_reason or "it is due"
    if row.looked_at is None:
        return "it was not planned yet"
    if (snapshot.snapshot_id if snapshot else None) != row.looked_snapshot_id:
        return "it has a new snapshot"
    if rested:
        return "files of it have rested"
    if memory is None or memory.fingerprint is None:
        return _why_since(row.looked_at, row, table, policy, now)
    if memory.fingerprint != policy.fingerprint:
        return "its properties have changed"
    if memory.recheck_at is not None and memory.recheck_at <= now:
        return "files have waited for an interval"
    return "its tasks have changed" if live_tasks != memory.tasks else None


def _why_since(
    looked_at: datetime, row: CompactionTable, table: Table, policy: Policy, now: datetime
) -> str | None:
    changed = datetime.fromtimestamp(table.metadata.last_updated_ms / 1000, UTC)
    if changed + _CLOCKS > looked_at:
        return "its metadata may have changed"
    if row.rests_until is not None and row.rests_until > looked_at:
        return "it has rested"
    intervals = [one for one in (policy.minor_interval, policy.major_interval) if one is not None]
    if intervals and looked_at + min(intervals) <= now:
        return "files may have waited for an interval"
    return None
