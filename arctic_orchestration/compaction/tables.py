"""The records of lake tables: when they are due, when they were checked, whether they rest.

A table is *due* when an event reports a change; it stays due, or becomes so, until it was checked
and all worthwhile tasks found room. It *rests* after a task failed in a way in which all of its
tasks would, longer each time, up to a day; a commit ends that. Errors of single files make these
rest: see ``backoff``. Its row is the lock under which tasks are offered, moved to another queue and
ended.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.backoff import length_of_rest
from arctic_orchestration.compaction.queue.task import TaskKind, TaskState
from arctic_orchestration.errors import NotFound
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_partitions,
    compaction_tables,
    compaction_tasks,
    is_waiting,
)

#: the prefix of the reason of a failed check
NOT_PLANNED = "could not be planned: "


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionTable:
    """The row of a lake table."""

    name: str
    #: the queue mapped by a person, the one in its property, the effective one, and why
    mapped_to: str | None
    property_queue: str | None
    queue: str
    queue_reason: str
    level: int
    seen_at: datetime
    #: since when the catalog does not have it
    gone_at: datetime | None
    #: why it cannot be compacted
    refused: str | None
    due_since: datetime | None
    due_reason: str | None
    #: counts the events that made it due: see :func:`record_check`
    due_number: int
    looked_at: datetime | None
    #: the checked snapshot, and the result
    looked_snapshot_id: int | None
    looked_reason: str | None
    #: counts the events that make a plan stale: see ``offers.offer``
    version: int
    #: the last plan of an observer, which offers nothing; none: the planner has checked it since
    observed_at: datetime | None
    observed_snapshot_id: int | None
    observed_reason: str | None
    #: the number of rests since the last commit
    failures: int
    rests_until: datetime | None
    rest_reason: str | None
    commit_owner: str | None
    commit_token: int
    commit_expires_at: datetime | None
    #: its next commit is not before this moment
    next_commit_at: datetime | None
    #: why the last committer could not commit to it; none: it could
    commit_trouble: str | None

    def rests(self, now: datetime) -> bool:
        """Returns whether nothing should be planned for it yet."""
        return self.rests_until is not None and self.rests_until > now


_FIELDS = tuple(field.name for field in fields(CompactionTable))


def all_tables(tx: sa.Connection) -> list[CompactionTable]:
    """Returns all tables, by name."""
    query = sa.select(compaction_tables).order_by(compaction_tables.c.name)
    return [_from_row(row) for row in tx.execute(query).mappings()]


def to_check(tx: sa.Connection) -> list[str]:
    """Returns the tables that the catalog had, and gone ones with tasks that wait since."""
    col, task = compaction_tables.c, compaction_tasks.c
    waits = sa.exists().where(task.table_name == col.name, is_waiting)
    return list(tx.execute(sa.select(col.name).where(col.gone_at.is_(None) | waits)).scalars())


def table_by_name(tx: sa.Connection, name: str) -> CompactionTable:
    """Returns the row of a table.

    Errors:
        NotFound: compaction does not know it; lists the known ones.
    """
    return _one(tx, name, sa.select(compaction_tables))


def find_table(tx: sa.Connection, name: str) -> CompactionTable | None:
    """Returns the row of a table; none: compaction does not know it."""
    with suppress(NotFound):
        return table_by_name(tx, name)
    return None


def lock_table(tx: sa.Connection, name: str) -> CompactionTable:
    """Like :func:`table_by_name`; locks it for offers and task ends until the transaction ends."""
    # Not a lock of the key: a task that is moved twice in a transaction refers to it again, and a
    # claim must not wait for an offer that waits for the claim.
    return _one(tx, name, sa.select(compaction_tables).with_for_update(key_share=True))


def left_due(tx: sa.Connection, now: datetime) -> list[CompactionTable]:
    """Returns tables that were checked, are still due and do not rest; longest due first.

    Not those that could not be planned: these are retried at a moment of their own.

    Cost: proportional to the due tables, whatever the number of the others.
    """
    col = compaction_tables.c
    awake = col.rests_until.is_(None) | (col.rests_until <= now)
    query = (
        sa.select(compaction_tables)
        # By the index: a comparison with another column alone would read all rows.
        .where(col.due_since.is_not(None), col.due_since <= col.looked_at)
        .where(awake, col.gone_at.is_(None))
        .where(sa.not_(col.looked_reason.startswith(NOT_PLANNED, autoescape=True)))
        .order_by(col.due_since, col.name)
    )
    return [_from_row(row) for row in tx.execute(query).mappings()]


def update(tx: sa.Connection, name: str, **values: Any) -> bool:
    """Changes the row of a table; returns whether there is one."""
    row = sa.update(compaction_tables).where(compaction_tables.c.name == name)
    return tx.execute(row.values(**values)).rowcount == 1


def next_version(tx: sa.Connection, name: str) -> None:
    """Makes offers stale that were planned before: the table's tasks have changed."""
    update(tx, name, version=compaction_tables.c.version + 1)


def make_due(tx: sa.Connection, name: str, reason: str, now: datetime) -> bool:
    """Marks a table as due for a check; a due table keeps its moment.

    Returns:
        whether the table is known.
    """
    col = compaction_tables.c
    since, number = sa.func.coalesce(col.due_since, now), col.due_number + 1
    return update(tx, name, due_since=since, due_reason=reason, due_number=number)


def stay_due(tx: sa.Connection, name: str, reason: str, now: datetime) -> None:
    """Leaves a table due after a check; a due table keeps its moment.

    This is no event: planners that share the database would otherwise check the table again and
    again because of each other's checks.
    """
    since = sa.func.coalesce(compaction_tables.c.due_since, now)
    update(tx, name, due_since=since, due_reason=reason)


def record_check(
    tx: sa.Connection,
    name: str,
    *,
    due_number: int,
    snapshot_id: int | None,
    reason: str,
    now: datetime,
    still_due: bool = False,
    got_room: bool = False,
    refused: str | None = None,
) -> None:
    """Records a check of a table, so that a check without gain is not repeated.

    Args:
        tx: the transaction.
        name: the table.
        due_number: its value before the check: later events are not lost.
        snapshot_id: the checked snapshot; none: the table is empty.
        reason: the result, for people.
        now: when.
        still_due: a task found no room, or could not be offered yet.
        got_room: another task found room: it is due from now on, behind tables that got none.
        refused: why the table cannot be compacted; none: it can.
    """
    col = compaction_tables.c
    table = sa.update(compaction_tables).where(col.name == name)
    tx.execute(
        table.values(
            looked_at=now,
            looked_snapshot_id=snapshot_id,
            looked_reason=reason,
            refused=refused,
            observed_at=None,
            observed_snapshot_id=None,
            observed_reason=None,
        )
    )
    if still_due:
        # The moment is at most now: it may have become due during the tick, and the clocks of
        # others may be ahead.
        later = table if got_room else table.where(col.due_since > now)
        tx.execute(later.values(due_since=now))
    else:
        tx.execute(
            table.where(col.due_number == due_number).values(due_since=None, due_reason=None)
        )


def record_failed_check(
    tx: sa.Connection, row: CompactionTable, problem: str, now: datetime
) -> None:
    """Records that a table could not be checked; it stays due.

    Args:
        tx: the transaction.
        row: the table.
        problem: why, for people.
        now: when.
    """
    stay_due(tx, row.name, f"it could not be planned: {problem}", now)
    record_check(
        tx,
        row.name,
        due_number=row.due_number,
        snapshot_id=row.looked_snapshot_id,
        reason=f"{NOT_PLANNED}{problem}",
        now=now,
        still_due=True,
        refused=row.refused,
    )


def observed(
    tx: sa.Connection, name: str, *, snapshot_id: int | None, reason: str, now: datetime
) -> None:
    """Records an observer's plan; the planner plans the table as if it had not been observed."""
    update(tx, name, observed_at=now, observed_snapshot_id=snapshot_id, observed_reason=reason)


def partitions_merged_at(tx: sa.Connection, table: str) -> dict[tuple[TaskKind, str], datetime]:
    """Returns when a task of a kind was last committed in a partition, by kind and partition name.

    It outlives the tasks, which are pruned.
    """
    col = compaction_partitions.c
    query = sa.select(col.kind, col.partition, col.committed_at)
    rows = tx.execute(query.where(col.table_name == table))
    return {(TaskKind(row.kind), row.partition): row.committed_at for row in rows}


def note_merged(
    tx: sa.Connection, table: str, merged: Iterable[tuple[TaskKind, str]], now: datetime
) -> None:
    """Records that tasks of these kinds were committed in these partitions."""
    rows = [
        {"table_name": table, "kind": kind.value, "partition": partition, "committed_at": now}
        for kind, partition in sorted(set(merged))
    ]
    if rows:
        new = dialect.insert(tx, compaction_partitions)
        new = new.on_conflict_do_update(
            index_elements=["table_name", "partition", "kind"],
            set_={"committed_at": new.excluded.committed_at},
        )
        tx.execute(new, rows)


def rewritten(tx: sa.Connection, table: str) -> dict[str, int]:
    """Returns the sequence number of the last full rewrite of each partition that had one."""
    col = compaction_partitions.c
    query = sa.select(col.partition, col.sequence_number)
    query = query.where(col.table_name == table, col.sequence_number.is_not(None))
    return {row.partition: row.sequence_number for row in tx.execute(query)}


def note_rewritten(tx: sa.Connection, table: str, partition: str, sequence_number: int) -> None:
    """Records the sequence number of a full rewrite, after :func:`note_merged`; the largest counts.

    Args:
        tx: the transaction.
        table: the table.
        partition: the name of the partition.
        sequence_number: of the snapshot that was planned from.
    """
    col = compaction_partitions.c
    tx.execute(
        sa.update(compaction_partitions)
        .where(col.table_name == table, col.partition == partition, col.kind == TaskKind.FULL.value)
        .where(sa.func.coalesce(col.sequence_number, -1) < sequence_number)
        .values(sequence_number=sequence_number)
    )


def rest(tx: sa.Connection, name: str, reason: str, now: datetime) -> datetime:
    """Makes a locked table rest, twice as long as the last time, at most a day.

    A failure during a rest was claimed before, and does not extend it.

    Returns:
        the end of the rest.
    """
    table = table_by_name(tx, name)
    if table.rests_until is not None and table.rests_until > now:
        return table.rests_until
    until: datetime = now + length_of_rest(table.failures)
    update(tx, name, failures=table.failures + 1, rests_until=until, rest_reason=reason)
    return until


def wake(tx: sa.Connection, name: str) -> None:
    """Ends the rest of a table, after a commit or on request; its files may still rest."""
    update(tx, name, failures=0, rests_until=None, rest_reason=None)


def table_gone(tx: sa.Connection, name: str, now: datetime) -> int:
    """Records that the catalog no longer has a table; cancels its waiting tasks.

    If it comes back, it is like a new table with a history.

    Returns:
        the number of canceled tasks.

    Errors:
        NotFound: compaction does not know it.
    """
    lock_table(tx, name)
    canceled = cancel_waiting(tx, name, "the catalog has the table no more", now)
    # The numbers of a new table of the name begin again.
    col = compaction_partitions.c
    tx.execute(
        sa.update(compaction_partitions).where(col.table_name == name).values(sequence_number=None)
    )
    since = sa.func.coalesce(compaction_tables.c.gone_at, now)
    update(
        tx, name, gone_at=since, due_since=None, due_reason=None, mapped_to=None, queue="default",
        queue_reason="the catalog has the table no more", version=compaction_tables.c.version + 1,
        failures=0, rests_until=None, rest_reason=None, next_commit_at=None, commit_trouble=None,
    )  # fmt: skip
    return canceled


def cancel_waiting(
    tx: sa.Connection, name: str, reason: str, now: datetime, *, also_requested: bool = True
) -> int:
    """Cancels the waiting tasks of a locked table; claimed ones go on.

    Args:
        also_requested: whether it cancels those that were requested manually.

    Returns:
        the number of tasks.
    """
    col = compaction_tasks.c
    query = sa.select(col.id, col.state).where(col.table_name == name, is_waiting)
    if not also_requested:
        query = query.where(sa.not_(col.forced))
    waiting = tx.execute(query.order_by(col.id).with_for_update(key_share=True)).all()
    task_store.move(
        tx,
        [(row.id, TaskState(row.state)) for row in waiting],
        TaskState.CANCELED,
        reason,
        now,
        values={"not_before": None},
    )
    return len(waiting)


def _one(tx: sa.Connection, name: str, query: sa.Select[Any]) -> CompactionTable:
    row = tx.execute(query.where(compaction_tables.c.name == name)).mappings().one_or_none()
    if row is None:
        here = compaction_tables.c.name
        known = list(tx.execute(sa.select(here).order_by(here).limit(9)).scalars())
        shown = ", ".join(known[:8]) + (" and more" if known[8:] else "")
        raise NotFound(
            f"compaction knows no table {name}; it knows: {shown}"
            if known
            else f"compaction knows no table {name}, nor any: the planner has found none yet"
        )
    return _from_row(row)


def _from_row(row: Mapping[Any, Any]) -> CompactionTable:
    return CompactionTable(**{name: row[name] for name in _FIELDS})
