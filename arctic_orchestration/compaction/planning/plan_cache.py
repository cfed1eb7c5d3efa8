"""What a planner caches of a table from tick to tick, so that no plan is repeated."""

from collections.abc import Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table

from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.tables import CompactionTable

#: The tolerated difference between our clock and those of metadata writers.
_CLOCKS = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A table as it was when this process last checked it."""

    looked_at: datetime
    #: it is not checked earlier, unless something makes it due
    next_look_at: datetime
    #: the value of :attr:`CompactionTable.due_number` then
    due_number: int
    #: the fingerprint of the policy of its plan; none: this process has not planned it
    fingerprint: str | None = None
    #: the live tasks after that
    tasks: frozenset[str] = frozenset()
    #: when the next interval of waiting files elapses; none: never
    recheck_at: datetime | None = None
    #: how many consecutive checks failed
    failures: int = 0
    #: of the checked metadata; none: no check has succeeded
    location: str | None = None

    @classmethod
    def of_check(
        cls,
        last: "Memory | None",
        row: CompactionTable,
        table: Table,
        policy: Policy,
        tasks: Set[str],
        now: datetime,
    ) -> "Memory":
        """Returns what to cache after a check that led to no plan; ``last`` is of the one before.

        The table was planned before, if not by this process.
        """
        assert row.looked_at is not None
        if last is None or last.fingerprint is None:
            last = cls(
                looked_at=now,
                next_look_at=now,
                due_number=row.due_number,
                tasks=frozenset(tasks),
                recheck_at=_first_interval_elapses(row.looked_at, policy),
            )
        return replace(
            last,
            looked_at=now,
            next_look_at=now + policy.check_interval,
            failures=0,
            location=table.metadata_location,
        )

    def of_same_check(self, now: datetime) -> "Memory":
        """Returns what to cache after a check that would have found the same."""
        later = now + (self.next_look_at - self.looked_at)
        return replace(self, looked_at=now, next_look_at=later)

    def waits(self, row: CompactionTable | None, now: datetime) -> bool:
        """Returns whether it is too early, and the table has not become due since.

        Of a clock that was set back, the moments of this cache mean nothing.
        """
        became_due = (
            row is not None and row.due_since is not None and row.due_number != self.due_number
        )
        return self.looked_at <= now < self.next_look_at and not became_due


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
    """Returns why a plan of a table may differ from the last one; none: it is the same.

    Args:
        row: the shared record of it.
        table: its present state.
        policy: the policy in its properties.
        memory: this process's cache; without a plan in it, row and metadata decide.
        live_tasks: its tasks.
        now: the moment.
        rested: whether the rest of a file has ended since the last check.
    """
    snapshot = table.current_snapshot()
    if row.due_since is not None:
        return row.due_reason or "it is due"
    if row.looked_at is None:
        return "it was not planned yet"
    if (snapshot.snapshot_id if snapshot else None) != row.looked_snapshot_id:
        return "it has a new snapshot"
    if row.refused is not None and live_tasks:
        return "it is refused, and has tasks that may wait again"
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
    elapses = _first_interval_elapses(looked_at, policy)
    if elapses is not None and elapses <= now:
        return "files may have waited for an interval"
    return None


def _first_interval_elapses(looked_at: datetime, policy: Policy) -> datetime | None:
    """Returns when files may have waited for an interval, without a plan that says so."""
    intervals = (policy.minor_interval, policy.major_interval, policy.full_interval)
    shortest = min((one for one in intervals if one is not None), default=None)
    return None if shortest is None else looked_at + shortest
