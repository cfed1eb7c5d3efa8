"""The committer: one for each table at a time; commits all merged tasks of a table in one snapshot.

A round for a table takes its lease, makes the snapshot, and records each task's result in the
transaction that releases the lease. A committer that dies before the snapshot changes nothing. One
that dies after it leaves tasks that are merged here and committed in the table: the snapshot names
its tasks, so the next committer finds and records them.

A paused committer that resumes after a take-over makes no snapshot of tasks that the other one has
committed: their names are in the table's history, and their files are no longer live. Its report is
refused.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import catalog_binding, tables
from arctic_orchestration.compaction.commit import commit_leases, commits
from arctic_orchestration.compaction.commit.commit_leases import PAUSE, CommitLease
from arctic_orchestration.compaction.commit.commits import MergedTask
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.table_pool import Counts, Ended, TableJobs, TablePool
from arctic_orchestration.errors import (
    ArcticError,
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    DatabaseUnavailable,
    NotFound,
    Refused,
    UnsupportedTable,
    described,
)
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.replacing.replace import Replaced, Replacement, replace_files
from arctic_orchestration.lake.store_errors import explained
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.leases import Lease, Renewal
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

_log = logging.getLogger("arctic.compaction.committer")

#: the duration of a commit lease; a round may take longer and renews it
LEASE = timedelta(minutes=3)
#: the time limit of a round, after which another committer may take its table
LONGEST_ROUND = timedelta(minutes=30)
#: the time limit of a tick for starting tables and waiting for them
LONGEST_TICK = timedelta(seconds=30)
#: the maximum number of tasks in one commit: the snapshot names each of them
MOST_TASKS = 500
#: After this many consecutive tables without an answer, the catalog is considered down.
_SILENT_TABLES = 3


@dataclass(frozen=True, kw_only=True)
class CommitCounts(Counts):
    """The result of a committer's round, over all tables."""

    snapshots: int = 0
    committed: int = 0
    #: tasks with a conflicting change of their table
    conflicts: int = 0
    #: tasks with wrong outputs
    wrong: int = 0
    #: tables that could not be committed to now
    troubled: int = 0


@dataclass(frozen=True, kw_only=True)
class Round:
    """The result of a round for the merged tasks of one table."""

    table: str
    counts: CommitCounts
    records: Sequence[CompactionRecord] = ()
    #: why something could not be committed; none: no error
    trouble: str | None = None
    #: whether the catalog did not answer
    silent: bool = False


class Committer:
    """Commits the files that workers have merged.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        life: the duration of a commit lease.
        longest_round: the time limit of a round; then it no longer renews, and publishes nothing.
        pool: the threads for several tables; none: its own.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        *,
        life: timedelta = LEASE,
        longest_round: timedelta = LONGEST_ROUND,
        pool: TablePool | None = None,
    ) -> None:
        self._jobs: TableJobs[Round | None] = TableJobs(pool or TablePool())
        self._database = database
        self._catalog = catalog
        self._name = f"committer-{new_id(utc_now())}"
        self._life = life
        self._longest_round = longest_round.total_seconds()

    def tick(self, *, at_most: timedelta = LONGEST_TICK) -> CommitCounts:
        """Commits to each table with an elapsed commit interval, to several at once.

        A table whose catalog does not answer is postponed; the others go on. A commit that takes
        longer than the tick continues beside the next ticks, one of which counts it.

        Args:
            at_most: the time limit after which no further table is started or waited for.

        Errors:
            DatabaseUnavailable: the state database did not answer; the next committer completes
                what was begun.
        """
        catalog_binding.require_same(self._database, self._catalog)
        with self._database.read() as tx:
            names = commits.tables_to_commit(tx)
        counts, silent = CommitCounts(), 0

        def hear(ended: Ended[Round | None]) -> bool:
            nonlocal counts, silent
            if ended.error is not None:
                _log.error("%s is not committed to", ended.table, exc_info=ended.error)
                counts = counts.plus(CommitCounts(troubled=1))
            if ended.result is not None:
                counts = counts.plus(ended.result.counts)
                silent = silent + 1 if ended.result.silent else 0
            return silent < _SILENT_TABLES

        begun = self._jobs.run(names, self.commit, hear, at_most.total_seconds())
        for name in sorted(self._jobs.overdue()):
            text = self._jobs.overdue_text()
            with self._database.begin() as tx:
                news = commit_leases.note_trouble(tx, name, text)
            if news:
                _log.warning("%s is not committed to: %s", name, text)
            counts = counts.plus(CommitCounts(troubled=1))
        if silent >= _SILENT_TABLES and len(begun) < len(names):
            # The catalog is down: each further table would cost seconds.
            counts = counts.plus(CommitCounts(troubled=1))
        return counts

    def commit(self, name: str) -> Round | None:
        """Commits all merged tasks of a table, regardless of its commit interval.

        Returns:
            none: another committer has the table.

        Errors:
            DatabaseUnavailable: the state database did not answer.
            ConfigurationError: the state database is bound to another catalog.
        """
        catalog_binding.require_same(self._database, self._catalog)
        requested_at = monotonic()
        with self._database.begin() as tx:
            lease = commit_leases.take_commit_lease(tx, name, self._name, life=self._life)
            if lease is None:
                return None
            unreadable = list[str]()
            tasks = commits.merged_tasks(tx, name, limit=MOST_TASKS, unreadable=unreadable)
        if not tasks:
            trouble = "; ".join(unreadable) or None
            self._leave(lease, pause=PAUSE if unreadable else None, trouble=trouble)
            return Round(
                table=name, counts=CommitCounts(troubled=int(bool(unreadable))), trouble=trouble
            )
        table: Table | None = None
        try:
            table = load_table(self._catalog, name)
            interval = Policy.or_default(table.properties, name).commit_interval
            with self._renewal(lease, requested_at):
                replaced = replace_files(
                    table,
                    [_replacement(task) for task in tasks],
                    before_commit=lambda: self._hold(lease, requested_at),
                )
        except NotFound as error:
            return self._dropped(lease, tasks, str(error), None)
        except UnsupportedTable as error:
            # The table was changed and no longer supports commits: later rounds would fail too.
            return self._dropped(lease, tasks, str(error), table)
        except Refused as refused:
            _log.warning("%s", refused)
            return None
        except DatabaseUnavailable:
            raise
        except Exception as error:
            # Also unexpected errors: the other tables must be processed.
            return self._troubled(lease, error if table is None else explained(error, table.io))
        return self._report(lease, table, tasks, replaced, interval, unreadable)

    def _report(
        self,
        lease: CommitLease,
        table: Table,
        tasks: Sequence[MergedTask],
        replaced: Replaced,
        interval: timedelta,
        unreadable: Sequence[str],
    ) -> Round | None:
        by_snapshot: dict[int, list[str]] = {}
        if replaced.snapshot_id is not None:
            by_snapshot[replaced.snapshot_id] = list(replaced.committed)
        for task_id, snapshot_id in replaced.already.items():
            by_snapshot.setdefault(snapshot_id, []).append(task_id)
        records = []
        trouble = "; ".join(sorted({*replaced.unreadable.values(), *unreadable})) or None
        keeps = _kept(table, tasks)
        pause = interval if by_snapshot else PAUSE if trouble is not None else None
        try:
            with self._database.begin() as tx:
                for snapshot_id, ids in by_snapshot.items():
                    removed = _deletes_removed(table, snapshot_id)
                    record = commits.committed(
                        tx, ids, snapshot_id, delete_files_removed=removed, lease=lease
                    )
                    if record is not None:
                        records.append(record)
                for task_id, reason in replaced.conflicts.items():
                    commits.conflicted(tx, task_id, reason, lease=lease, keeps=keeps.get(task_id))
                for task_id, reason in replaced.wrong.items():
                    commits.wrong(tx, task_id, reason, lease=lease)
                commit_leases.end_commit_lease(
                    tx,
                    lease,
                    next_commit_at=database_time(tx) + pause if pause is not None else None,
                    trouble=trouble,
                )
        except Refused as refused:
            _log.warning("%s", refused)
            return None
        counts = CommitCounts(
            snapshots=len(by_snapshot),
            committed=sum(map(len, by_snapshot.values())),
            conflicts=len(replaced.conflicts),
            wrong=len(replaced.wrong),
            troubled=int(trouble is not None),
        )
        return Round(table=lease.table, counts=counts, records=records, trouble=trouble)

    def _renewal(self, lease: CommitLease, requested_at: float) -> Renewal:
        """Returns the lease's renewal: rounds longer than a lease would otherwise never commit."""
        held = Lease.taken(
            owner=lease.owner, token=lease.token, requested_at=requested_at, life=self._life
        )
        what = f"the lease to commit to {lease.table}"
        return Renewal(held, lambda: self._renewed(lease, requested_at), life=self._life, what=what)

    def _renewed(self, lease: CommitLease, requested_at: float) -> bool:
        # A hanging round would keep the table as long as its process lives.
        if monotonic() - requested_at > self._longest_round:
            return False
        with self._database.begin() as tx:
            return commit_leases.renew_commit_lease(tx, lease, life=self._life) is not None

    def _hold(self, lease: CommitLease, requested_at: float) -> None:
        """Renews the lease right before a publication.

        Errors:
            Refused: another committer has the table, or may acquire it soon.
        """
        if not self._renewed(lease, requested_at):
            raise Refused(f"committer {lease.owner} has lost table {lease.table}: it was late")

    def _dropped(
        self, lease: CommitLease, tasks: Sequence[MergedTask], reason: str, table: Table | None
    ) -> Round | None:
        """Drops the table's merged tasks; ``table``: none: the catalog no longer has it."""
        keeps = _kept(table, tasks)
        try:
            with self._database.begin() as tx:
                for task in tasks:
                    id = task.task.id
                    commits.conflicted(tx, id, reason, lease=lease, keeps=keeps.get(id))
                if table is None:
                    tables.table_gone(tx, lease.table, database_time(tx))
                commit_leases.end_commit_lease(tx, lease)
        except Refused as refused:
            _log.warning("%s", refused)
            return None
        return Round(table=lease.table, counts=CommitCounts(conflicts=len(tasks)), trouble=reason)

    def _troubled(self, lease: CommitLease, error: Exception) -> Round:
        """Leaves all unchanged: merged tasks are retried, or found committed."""
        reason = described(error)
        level = logging.INFO if isinstance(error, CommitConflict) else logging.WARNING
        unknown = None if isinstance(error, ArcticError | OSError) else error
        _log.log(level, "%s is not committed to: %s", lease.table, reason, exc_info=unknown)
        if isinstance(error, CommitUnknown):
            reason = f"the catalog did not answer whether it committed: {reason}"
        self._leave(lease, pause=PAUSE, trouble=reason)
        return Round(
            table=lease.table,
            counts=CommitCounts(troubled=1),
            trouble=reason,
            silent=isinstance(error, CatalogUnavailable),
        )

    def _leave(
        self, lease: CommitLease, pause: timedelta | None = None, trouble: str | None = None
    ) -> None:
        with self._database.begin() as tx:
            later: datetime | None = None if pause is None else database_time(tx) + pause
            commit_leases.end_commit_lease(tx, lease, next_commit_at=later, trouble=trouble)


def _replacement(task: MergedTask) -> Replacement:
    outputs = task.attempt.outputs
    assert outputs is not None and task.attempt.rows_deleted is not None, "a merged task has both"
    return Replacement(
        id=task.task.id,
        group=task.group,
        outputs=tuple(output.path for output in outputs),
        rows_deleted=task.attempt.rows_deleted,
        sort_order_id=task.attempt.sort_order_id,
    )


def _kept(table: Table | None, tasks: Sequence[MergedTask]) -> dict[str, str]:
    """Returns why the outputs of some tasks stay, by task: their table may have been renamed.

    Another table may have its name now, while the outputs are live in the renamed one: a committer
    may have died after its commit. A planned snapshot stays in its own table as long as its tasks.
    """
    known = set() if table is None else {one.snapshot_id for one in table.metadata.snapshots}
    reason = "the table of the task was renamed or dropped, and may have them"
    return {one.task.id: reason for one in tasks if one.group.snapshot_id not in known}


def _deletes_removed(table: Table, snapshot_id: int) -> int:
    """Returns how many delete files a snapshot removed, by its summary; 0 if it has expired."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("removed-delete-files", 0))
