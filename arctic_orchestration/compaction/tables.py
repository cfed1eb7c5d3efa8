"""What is known of each lake table: when it is due, when it was looked at, whether it rests.

A table is *due* when an event says that it changed; it stays due, or becomes so, until somebody has
looked and all that was worth offering found room. It *rests* after a task of it
failed in a way in which all of them would, longer each time, up to a day; a commit ends that. What
is wrong with single files lets these rest: see ``rests``. Its row is the lock under which tasks are
offered, moved to another queue and ended.
"""

from collections.abc import Iterable, Mapping
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

#: what the reason of a look begins with that came to nothing
NOT_PLANNED = "could not be planned: "


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionTable:
    """The row of a lake table."""

    name: str
    #: the queue a person gave it, the one its property names, the one it is in, and why
    mapped_to: str | None
    property_queue: str | None
    queue: str
    queue_reason: str
    level: int
    seen_at: datetime
    #: since when the catalog has it no more
    gone_at: datetime | None
    #: why it cannot be compacted
    refused: str | None
    due_since: datetime | None
    due_reason: str | None
    #: counts what made it due: see :func:`record_check`
    due_number: int
    looked_at: datetime | None
    #: the snapshot that was looked at, and what came of it
    looked_snapshot_id: int | None
    looked_reason: str | None
    #: counts what makes a plan stale: see ``offers.offer``
    version: int
    #: what an observer found last, which offers nothing; none: the planner has looked since
    observed_at: datetime | None
    observed_snapshot_id: int | None
    observed_reason: str | None
    #: how many rests there were since the last commit
    failures: int
    rests_until: datetime | None
    rest_reason: str | None
    commit_owner: str | None
    commit_token: int
    commit_expires_at: datetime | None
    #: it is committed to no earlier
    next_commit_at: datetime | None
    #: why the last committer could not commit to it; none: it could
    commit_trouble: str | None

    def rests(self, now: datetime) -> bool:
        """Whether nothing should be planned for it yet."""
        return self.rests_until is not None and self.rests_until > now


_FIELDS = tuple(field.name for field in fields(CompactionTable))


def all_tables(tx: sa.Connection) -> list[CompactionTable]:
    """All tables, by name."""
    query = sa.select(compaction_tables).order_by(compaction_tables.c.name)
    return [_from_row(row) for row in tx.execute(query).mappings()]


def table_by_name(tx: sa.Connection, name: str) -> CompactionTable:
    """The row of a table.

    Errors:
        NotFound: compaction does not know it; lists what it knows.
    """
    return _one(tx, name, sa.select(compaction_tables))


def lock_table(tx: sa.Connection, name: str) -> CompactionTable:
    """As :func:`table_by_name`; nobody else offers or ends its tasks until the transaction ends."""
    # Not a lock of the key: a task that is moved twice in a transaction refers to it anew, and
    # who claims one must not wait for who offers, who waits for the claim.
    return _one(tx, name, sa.select(compaction_tables).with_for_update(key_share=True))


def left_due(tx: sa.Connection, now: datetime) -> list[CompactionTable]:
    """Tables that were looked at and are still due, and do not rest; the longest due first.

    Cost: that of the tables that are due, whatever the number of the others.
    """
    here = compaction_tables.c
    awake = here.rests_until.is_(None) | (here.rests_until <= now)
    query = (
        sa.select(compaction_tables)
        # By the index: a comparison with another column alone reads all rows.
        .where(here.due_since.is_not(None), here.due_since <= here.looked_at)
        .where(awake, here.gone_at.is_(None))
        .order_by(here.due_since, here.name)
    )
    return [_from_row(row) for row in tx.execute(query).mappings()]


def make_due(tx: sa.Connection, name: str, reason: str, now: datetime) -> bool:
    """Says that somebody should look at a table; one that is due already stays so since then.

    Returns:
        whether the table is known.
    """
    here = compaction_tables.c
    changed = tx.execute(
        sa.update(compaction_tables)
        .where(here.name == name)
        .values(
            due_since=sa.func.coalesce(here.due_since, now),
            due_reason=reason,
            due_number=here.due_number + 1,
        )
    )
    return changed.rowcount == 1


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
    """Notes that a table was looked at, so that a look without gain is not repeated.

    Args:
        tx: the transaction.
        name: the table.
        due_number: as it was read before one looked: what made it due since then is not lost.
        snapshot_id: what was looked at; none: the table is empty.
        reason: what came of it, for people.
        now: when.
        still_due: something found no room, or could not be done yet.
        got_room: something else found room: it is due since now, behind those that got none.
        refused: why the table cannot be compacted; none: it can.
    """
    here = compaction_tables.c
    table = sa.update(compaction_tables).where(here.name == name)
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
        # In line since now at the latest: it may have become due while the tick went on, and the
        # clocks of others may be ahead.
        later = table if got_room else table.where(here.due_since > now)
        tx.execute(later.values(due_since=now))
    else:
        tx.execute(
            table.where(here.due_number == due_number).values(due_since=None, due_reason=None)
        )


def observed(
    tx: sa.Connection, name: str, *, snapshot_id: int | None, reason: str, now: datetime
) -> None:
    """Notes what an observer would merge; the planner plans the table as if nobody had looked."""
    tx.execute(
        sa.update(compaction_tables)
        .where(compaction_tables.c.name == name)
        .values(observed_at=now, observed_snapshot_id=snapshot_id, observed_reason=reason)
    )


def partitions_merged_at(tx: sa.Connection, table: str) -> dict[tuple[TaskKind, str], datetime]:
    """When a task of a kind was last committed in a partition, by kind and the partition's name.

    It outlives the tasks, which are pruned.
    """
    here = compaction_partitions.c
    query = sa.select(here.kind, here.partition, here.committed_at)
    rows = tx.execute(query.where(here.table_name == table))
    return {(TaskKind(row.kind), row.partition): row.committed_at for row in rows}


def note_merged(
    tx: sa.Connection, table: str, merged: Iterable[tuple[TaskKind, str]], now: datetime
) -> None:
    """Keeps that tasks of these kinds were committed in these partitions."""
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


def rest(tx: sa.Connection, name: str, reason: str, now: datetime) -> datetime:
    """Lets a locked table rest, twice as long as the last time, a day at most.

    What fails while it rests already was claimed before, and makes it no longer.

    Returns:
        until when it rests.
    """
    table = table_by_name(tx, name)
    if table.rests_until is not None and table.rests_until > now:
        return table.rests_until
    until: datetime = now + length_of_rest(table.failures)
    tx.execute(
        sa.update(compaction_tables)
        .where(compaction_tables.c.name == name)
        .values(failures=table.failures + 1, rests_until=until, rest_reason=reason)
    )
    return until


def wake(tx: sa.Connection, name: str) -> None:
    """Ends the rest of a table and forgets its failures: something was committed, or a person
    says so. Rests of its files are not ended by that.
    """
    tx.execute(
        sa.update(compaction_tables)
        .where(compaction_tables.c.name == name)
        .values(failures=0, rests_until=None, rest_reason=None)
    )


def table_gone(tx: sa.Connection, name: str, now: datetime) -> int:
    """Notes that the catalog has a table no more; its waiting tasks are canceled.

    Should it come back, it is as new, but for its history.

    Returns:
        how many tasks were canceled.

    Errors:
        NotFound: compaction does not know it.
    """
    lock_table(tx, name)
    canceled = cancel_waiting(tx, name, "the catalog has the table no more", now)
    tx.execute(
        sa.update(compaction_tables)
        .where(compaction_tables.c.name == name)
        .values(gone_at=now, due_since=None, due_reason=None, mapped_to=None, queue="default",
                queue_reason="the catalog has the table no more",
                version=compaction_tables.c.version + 1)
    )  # fmt: skip
    return canceled


def cancel_waiting(tx: sa.Connection, name: str, reason: str, now: datetime) -> int:
    """Takes the waiting tasks of a locked table back; what workers have goes on.

    Returns:
        how many.
    """
    here = compaction_tasks.c
    query = sa.select(here.id, here.state).where(here.table_name == name, is_waiting)
    waiting = tx.execute(query.order_by(here.id).with_for_update(key_share=True)).all()
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
