"""The committer: one for each table at a time, all merged tasks of the table in one snapshot.

A round for a table takes its lease, makes the snapshot, and writes down what became of each task
in the transaction that gives the lease back. A committer that dies before the snapshot leaves
everything as it was. One that dies after it leaves tasks that are merged here and committed there:
the snapshot names its tasks, so the next committer finds them, and writes them down.

A committer that was stopped, and goes on when another one has the table, makes no snapshot of
tasks that the other has committed: their names are in the table's history, and their files no
longer live. Its report is refused.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import commits, tables
from arctic_orchestration.compaction.commits import CommitLease, MergedTask
from arctic_orchestration.compaction.policy import Policy
from arctic_orchestration.compaction.records import CompactionRecord
from arctic_orchestration.database.dialect import database_time
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import (
    CommitConflict,
    CommitUnknown,
    InvalidInput,
    LakeError,
    NotFound,
    Refused,
)
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.replacing import Replaced, Replacement, replace_files
from arctic_orchestration.lake.tables import load_table

_log = logging.getLogger("arctic.compaction.committer")

#: A round takes seconds; one that takes longer than this has lost the table.
LEASE = timedelta(minutes=3)
#: so many tasks are committed at once: the snapshot names each of them
MOST_TASKS = 500
#: how long a table is left alone whose catalog or files did not answer
_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class CommitCounts:
    """What a round of the committer did, over all tables."""

    snapshots: int = 0
    committed: int = 0
    #: tasks whose table had changed under them
    conflicts: int = 0
    #: tasks whose outputs were not what they should be
    wrong: int = 0
    #: tables that could not be committed to now
    troubled: int = 0

    def plus(self, other: "CommitCounts") -> "CommitCounts":
        """Both together."""
        return CommitCounts(
            snapshots=self.snapshots + other.snapshots,
            committed=self.committed + other.committed,
            conflicts=self.conflicts + other.conflicts,
            wrong=self.wrong + other.wrong,
            troubled=self.troubled + other.troubled,
        )


@dataclass(frozen=True, kw_only=True)
class Round:
    """What became of the merged tasks of one table."""

    table: str
    counts: CommitCounts
    records: Sequence[CompactionRecord] = ()
    #: why nothing could be committed; none: it could
    trouble: str | None = None


class Committer:
    """Publishes what workers have merged.

    Args:
        database: the state database.
        catalog: of the tables.
        name: how people tell it from others.
        life: how long it has a table until another committer may take over.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        *,
        name: str | None = None,
        life: timedelta = LEASE,
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._name = name or f"committer-{new_id(utc_now())}"
        self._life = life

    def tick(self) -> CommitCounts:
        """Commits to each table whose commit interval is over.

        A table whose catalog does not answer is left for later; the others go on.

        Errors:
            DatabaseUnavailable: the state database did not answer; what was begun is finished by
                whoever comes next.
        """
        with self._database.read() as tx:
            names = commits.tables_to_commit(tx)
        counts = CommitCounts()
        for name in names:
            done = self.commit(name)
            if done is not None:
                counts = counts.plus(done.counts)
        return counts

    def commit(self, name: str) -> Round | None:
        """Commits all merged tasks of a table, whatever its commit interval.

        Returns:
            none: another committer has the table.

        Errors:
            DatabaseUnavailable: the state database did not answer.
        """
        with self._database.begin() as tx:
            lease = commits.take_commit_lease(tx, name, self._name, life=self._life)
            if lease is None:
                return None
            tasks = commits.merged_tasks(tx, name)[:MOST_TASKS]
        if not tasks:
            self._leave(lease)
            return Round(table=name, counts=CommitCounts())
        try:
            table = load_table(self._catalog, name)
            interval = _commit_interval(table.properties, name)
            replaced = replace_files(table, [_replacement(task) for task in tasks])
        except NotFound as error:
            return self._dropped(lease, tasks, str(error))
        except (LakeError, OSError) as error:
            return self._troubled(lease, error)
        return self._report(lease, table, replaced, interval)

    def _report(
        self, lease: CommitLease, table: Table, replaced: Replaced, interval: timedelta
    ) -> Round | None:
        by_snapshot: dict[int, list[str]] = {}
        if replaced.snapshot_id is not None:
            by_snapshot[replaced.snapshot_id] = list(replaced.committed)
        for task_id, snapshot_id in replaced.already.items():
            by_snapshot.setdefault(snapshot_id, []).append(task_id)
        records = []
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
                    commits.conflicted(tx, task_id, reason, lease=lease)
                for task_id, reason in replaced.wrong.items():
                    commits.wrong(tx, task_id, reason, lease=lease)
                commits.end_commit_lease(
                    tx, lease, next_commit_at=database_time(tx) + interval if by_snapshot else None
                )
        except Refused as refused:
            _log.warning("%s", refused)
            return None
        counts = CommitCounts(
            snapshots=len(by_snapshot),
            committed=sum(map(len, by_snapshot.values())),
            conflicts=len(replaced.conflicts),
            wrong=len(replaced.wrong),
        )
        return Round(table=lease.table, counts=counts, records=records)

    def _dropped(self, lease: CommitLease, tasks: Sequence[MergedTask], reason: str) -> Round:
        """The catalog has the table no more: nothing of it will be committed."""
        with self._database.begin() as tx:
            for task in tasks:
                commits.conflicted(tx, task.task.id, reason, lease=lease)
            tables.table_gone(tx, lease.table, database_time(tx))
            commits.end_commit_lease(tx, lease)
        return Round(table=lease.table, counts=CommitCounts(conflicts=len(tasks)), trouble=reason)

    def _troubled(self, lease: CommitLease, error: Exception) -> Round:
        """Leaves everything as it is: what is merged is tried again, or found committed."""
        reason = str(error) or type(error).__name__
        level = logging.INFO if isinstance(error, CommitConflict) else logging.WARNING
        _log.log(level, "%s is not committed to: %s", lease.table, reason)
        if isinstance(error, CommitUnknown):
            reason = f"the catalog did not say whether it took the commit: {reason}"
        self._leave(lease, pause=_PAUSE)
        return Round(table=lease.table, counts=CommitCounts(troubled=1), trouble=reason)

    def _leave(self, lease: CommitLease, pause: timedelta | None = None) -> None:
        with self._database.begin() as tx:
            later: datetime | None = None if pause is None else database_time(tx) + pause
            commits.end_commit_lease(tx, lease, next_commit_at=later)


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


def _deletes_removed(table: Table, snapshot_id: int) -> int:
    """How many delete files a snapshot removed, by its own word; 0 of one that has expired."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("removed-delete-files", 0))


def _commit_interval(properties: dict[str, str], table: str) -> timedelta:
    try:
        return Policy.of(properties, table).commit_interval
    except InvalidInput:
        # The planner says so; what is merged is committed all the same.
        return Policy().commit_interval
