"""Backoff of files: files of a task that was quarantined, or that a person canceled, rest.

A file that cannot be read or merged would otherwise be planned again with each new snapshot, as a
new task with fresh attempts. So plans exclude the files of a quarantined task for a while: 10
minutes at first, twice as long each time that the same file is in such a task again, at most a day.
All other files, even of the same partition, are planned as usual, and their commits end no rest. A
replaced file is forgotten, and a person can end rests.

The files of a task that a person canceled rest for a day: otherwise the next plan would offer the
same task again.

A rest belongs to a file, not to a group: the next plan may combine it with other files, which have
not failed as often.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.queue.task import Task
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import compaction_rests, compaction_task_files

#: the duration of a rest, at first and at most
FIRST_REST = timedelta(minutes=10)
LONGEST_REST = timedelta(days=1)
#: the duration of a rest of a canceled task's files
CANCELED_REST = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rest:
    """A resting data file."""

    path: str
    #: how many of its tasks were quarantined or canceled
    rests: int
    until: datetime
    reason: str


def length_of_rest(before: int) -> timedelta:
    """Returns the duration of a rest after this number of earlier ones."""
    # Beyond 20 doublings only the limit matters.
    doublings: int = 2 ** min(before, 20)
    return min(FIRST_REST * doublings, LONGEST_REST)


def rest_files_of(
    tx: sa.Connection, task: Task, reason: str, now: datetime, *, length: timedelta | None = None
) -> None:
    """Makes the files of a task rest that is about to end; its table is locked.

    Args:
        tx: the transaction.
        task: the task that is quarantined or canceled.
        reason: why they rest, for people.
        now: the moment.
        length: the duration of the rest; none: longer each time, see :func:`length_of_rest`.
    """
    col = compaction_task_files.c
    query = sa.select(col.path).where(col.task_id == task.id)
    paths = sorted(tx.execute(query).scalars())
    if not paths:
        return
    known = _counts(tx, task.table, paths)
    rows = [
        {
            "table_name": task.table,
            "path": path,
            "rests": known.get(path, 0) + 1,
            "rests_until": now + (length or length_of_rest(known.get(path, 0))),
            "reason": reason,
        }
        for path in paths
    ]
    new = dialect.insert(tx, compaction_rests)
    changed = {name: new.excluded[name] for name in ("rests", "rests_until", "reason")}
    tx.execute(new.on_conflict_do_update(index_elements=["table_name", "path"], set_=changed), rows)


def resting(tx: sa.Connection, table: str, now: datetime) -> dict[str, Rest]:
    """Returns the resting files of a table, by path."""
    return resting_of(tx, [table], now).get(table, {})


def resting_of(
    tx: sa.Connection, names: Sequence[str], now: datetime
) -> dict[str, dict[str, Rest]]:
    """Returns the resting files of tables, by table and path."""
    col = compaction_rests.c
    query = sa.select(compaction_rests).where(
        dialect.among(tx, col.table_name, names), col.rests_until > now
    )
    found: dict[str, dict[str, Rest]] = {}
    for row in tx.execute(query):
        rest = Rest(path=row.path, rests=row.rests, until=row.rests_until, reason=row.reason)
        found.setdefault(row.table_name, {})[row.path] = rest
    return found


def has_rested(tx: sa.Connection, table: str, since: datetime, now: datetime) -> bool:
    """Returns whether a file of a table stopped resting after one moment and until another."""
    col = compaction_rests.c
    query = sa.exists().where(
        col.table_name == table, col.rests_until > since, col.rests_until <= now
    )
    return bool(tx.execute(sa.select(query)).scalar_one())


def end_rests(tx: sa.Connection, table: str, paths: Collection[str] | None = None) -> int:
    """Ends the rests of a table, or of some of its files, on a person's request.

    Returns:
        the number of files that may have rested.
    """
    col = compaction_rests.c
    gone = sa.delete(compaction_rests).where(col.table_name == table)
    if paths is not None:
        gone = gone.where(dialect.among(tx, col.path, sorted(paths)))
    return tx.execute(gone).rowcount


def forget_files_of(tx: sa.Connection, table: str, ids: Sequence[str]) -> None:
    """Deletes the rests of files of tasks that are about to be committed: the table drops them."""
    files = compaction_task_files.c
    query = sa.select(files.path).where(dialect.among(tx, files.task_id, ids))
    col = compaction_rests.c
    tx.execute(sa.delete(compaction_rests).where(col.table_name == table, col.path.in_(query)))


def prune(tx: sa.Connection, older_than: datetime) -> int:
    """Deletes the rests that ended before a moment.

    Returns:
        the number of files.
    """
    old = compaction_rests.c.rests_until < older_than
    return tx.execute(sa.delete(compaction_rests).where(old)).rowcount


def _counts(tx: sa.Connection, table: str, paths: Sequence[str]) -> dict[str, int]:
    col = compaction_rests.c
    query = sa.select(col.path, col.rests).where(
        col.table_name == table, dialect.among(tx, col.path, paths)
    )
    return {row.path: row.rests for row in tx.execute(query)}
