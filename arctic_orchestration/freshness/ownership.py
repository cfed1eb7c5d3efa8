"""Ownership of a task: a lease with a fencing token, on the row that has its last success.

One statement on the locked row decides whether the task is *mine*, *fresh meanwhile* or *busy*. A
publication checks the token in the transaction that writes the success, after the row is locked: a
paused owner that resumes finds another token, or an expired lease, and writes nothing. A take-over
waits for a publication in progress, and then finds the task fresh.

A renewal requires only token and owner: as long as no other owner has acquired the task, its owner
may go on. A publication also requires an unexpired lease: an owner that was silent for that long
must not write.

Functions take ``time``, the source of the time: in tests a fixed clock. It is always read from the
database, and after the row is locked where that matters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import Refused
from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import task_publications, tasks

#: the duration of a lease
LEASE = timedelta(seconds=60)

Time = Callable[[sa.Connection], datetime]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """What all clusters know of a task; only its name if it was never acquired."""

    task: str
    owner: str | None = None
    token: int = 0
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    begun_at: datetime | None = None
    cluster: str | None = None
    location: str | None = None
    run_id: str | None = None
    submission: str | None = None
    last_success_at: datetime | None = None
    last_acquired_at: datetime | None = None
    last_success_run: str | None = None
    last_success_cluster: str | None = None
    last_token: int | None = None

    def is_held(self, now: datetime) -> bool:
        """Returns whether an owner holds an unexpired lease."""
        return self.owner is not None and self.expires_at is not None and self.expires_at > now

    def is_fresh(self, since: datetime, *, force: bool = False) -> bool:
        """Returns whether its last success was, or with ``force`` was begun, then or later."""
        at = self.last_acquired_at if force else self.last_success_at
        return at is not None and at >= since

    @property
    def holder(self) -> str:
        """The holder, for people: ``run 1234 of cluster east, location lake``."""
        run = f"run {self.run_id}" if self.run_id else f"a run for submission {self.submission}"
        return f"{run} of cluster {self.cluster}, location {self.location}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The holder for which a task is acquired."""

    cluster: str
    location: str
    submission: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Acquired:
    """The caller owns the task now."""

    token: int
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class FreshMeanwhile:
    """The task has succeeded meanwhile; nothing is left to do."""

    row: TaskRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Busy:
    """Another owner runs the task."""

    row: TaskRow


def row_of(tx: sa.Connection, task: str, *, lock: bool = False) -> TaskRow:
    """Returns the record of a task; with ``lock``, the row is locked until the transaction ends."""
    statement = _LOCKED_ROW if lock else _ROW
    found = tx.execute(statement, {"of": task}).mappings().one_or_none()
    return TaskRow(task=task) if found is None else from_row(found)


def rows_of(tx: sa.Connection, names: list[str]) -> dict[str, TaskRow]:
    """Returns the records of some tasks, by name; omits tasks that were never acquired."""
    if not names:
        return {}
    query = sa.select(tasks).where(dialect.among(tx, tasks.c.task, names))
    return {row["task"]: from_row(row) for row in tx.execute(query).mappings()}


def from_row(row: Mapping[Any, Any]) -> TaskRow:
    """Returns the record in a row of ``arctic_tasks``."""
    return TaskRow(**{name: row[name] for name in TaskRow.__slots__})


def acquire(
    tx: sa.Connection,
    task: str,
    owner: str,
    holder: Owner,
    *,
    since: datetime,
    force: bool = False,
    life: timedelta = LEASE,
    time: Time = database_time,
) -> Acquired | FreshMeanwhile | Busy:
    """Acquires a task that has no owner and is not fresh, in one statement.

    Args:
        tx: the transaction.
        task: its name.
        owner: the new owner; unique for each attempt.
        holder: the holder, as shown to others.
        since: a success since then is fresh.
        force: only a success begun since then is fresh.
        life: the duration of the lease.
        time: the source of the time. It is read before the row is locked, so that a wait for the
            lock only makes an old lease look longer and the new one shorter.
    """
    now = time(tx)
    mine: dict[str, Any] = {
        "owner": owner,
        "acquired_at": now,
        "expires_at": now + life,
        "begun_at": None,
        "cluster": holder.cluster,
        "location": holder.location,
        "run_id": holder.run_id,
        "submission": holder.submission,
    }
    new = dialect.insert(tx, tasks).values(task=task, token=1, **mine)
    made_at = tasks.c.last_acquired_at if force else tasks.c.last_success_at
    statement = new.on_conflict_do_update(
        index_elements=["task"],
        set_={**mine, "token": tasks.c.token + 1},
        where=(tasks.c.owner.is_(None) | (tasks.c.expires_at <= now))
        & (made_at.is_(None) | (made_at < since)),
    ).returning(tasks.c.token)
    token = tx.execute(statement).scalar()
    if token is not None:
        return Acquired(token=token, expires_at=now + life)
    row = row_of(tx, task)
    return FreshMeanwhile(row=row) if row.is_fresh(since, force=force) else Busy(row=row)


def renew(
    tx: sa.Connection,
    task: str,
    owner: str,
    token: int,
    *,
    life: timedelta = LEASE,
    time: Time = database_time,
    **seen: str | datetime | None,
) -> bool:
    """Renews a lease for another ``life`` from now.

    Args:
        tx: the transaction.
        task: its name.
        owner: its owner.
        token: its token.
        life: the duration of the lease.
        time: the source of the time.
        seen: further facts to store: ``run_id``, ``begun_at``.

    Returns:
        false: another owner has taken over the task, or it was released.
    """
    changed = tx.execute(
        sa.update(tasks)
        .where(*_held_by(task, owner, token))
        .values(expires_at=time(tx) + life, **seen)
    )
    return changed.rowcount == 1


def renew_all(
    tx: sa.Connection,
    held: Sequence[tuple[str, str, int]],
    *,
    life: timedelta = LEASE,
    time: Time = database_time,
) -> int:
    """Renews leases of runs that have not begun, given as task, owner and token.

    It locks the rows of many tasks, in their order, and those of no submission.

    Cost: two statements, whatever their number.

    Returns:
        how many were renewed: not those of a task with another owner, or whose run has begun.
    """
    col = tasks.c
    these = dialect.among(tx, col.task, [task for task, _, _ in held])
    query = sa.select(col.task, col.owner, col.token).where(these, col.begun_at.is_(None))
    rows = tx.execute(query.order_by(col.task).with_for_update())
    given = set(held)
    mine = [row.task for row in rows if (row.task, row.owner, row.token) in given]
    renewed = sa.update(tasks).where(dialect.among(tx, col.task, mine))
    tx.execute(renewed.values(expires_at=time(tx) + life))
    return len(mine)


def renew_with_new_token(
    tx: sa.Connection,
    task: str,
    owner: str,
    token: int,
    *,
    new_owner: str,
    life: timedelta = LEASE,
    time: Time = database_time,
) -> int | None:
    """Continues with another attempt, and fences the previous one, which may still be at work.

    Returns:
        the new token; none: another owner has taken over the task.
    """
    now = time(tx)
    statement = (
        sa.update(tasks)
        .where(*_held_by(task, owner, token))
        .values(owner=new_owner, token=tasks.c.token + 1, acquired_at=now, expires_at=now + life,
                begun_at=None, run_id=None)
        .returning(tasks.c.token)
    )  # fmt: skip
    found: int | None = tx.execute(statement).scalar()
    return found


def publish(
    tx: sa.Connection,
    task: str,
    owner: str,
    token: int,
    *,
    outdated: Callable[[datetime], bool] = lambda _: False,
    seen_at: datetime | None = None,
    time: Time = database_time,
) -> datetime:
    """Records a success and releases the task; the token is checked on the locked row.

    Args:
        tx: the transaction.
        task: its name.
        owner: its owner.
        token: its token.
        outdated: whether the run was for a partition that is not the newest any more at a moment.
            Then its success counts from the acquisition, when it was the newest.
        seen_at: when the run was last seen at work, if it may have ended long ago: its success
            counts from then.
        time: the source of the time.

    Returns:
        the moment of the success, by the database's time.

    Errors:
        Refused: another owner has taken over the task, or its lease is over. Nothing was written.
    """
    row = row_of(tx, task, lock=True)
    # After the row is locked: the wait for the lock may have outlasted the lease.
    now = time(tx)
    problem = why_not(row, owner, token, now)
    if problem is not None:
        raise Refused(problem)
    made_at = row.acquired_at if outdated(now) else seen_at or now
    tx.execute(
        sa.insert(task_publications).values(
            task=task, token=token, submission=row.submission, run_id=row.run_id,
            cluster=row.cluster, at=made_at,
        )
    )  # fmt: skip
    tx.execute(
        sa.update(tasks)
        .where(tasks.c.task == task)
        .values(
            owner=None, expires_at=None, last_acquired_at=row.acquired_at,
            last_success_at=made_at,
            last_success_run=row.run_id, last_success_cluster=row.cluster, last_token=token,
        )
    )  # fmt: skip
    return now


def give_back(tx: sa.Connection, task: str, owner: str, token: int) -> bool:
    """Releases the task; returns whether the owner still had it."""
    changed = tx.execute(
        sa.update(tasks).where(*_held_by(task, owner, token)).values(owner=None, expires_at=None)
    )
    return changed.rowcount == 1


def why_not(row: TaskRow, owner: str, token: int, now: datetime) -> str | None:
    """Returns why an owner may not publish; none: it may."""
    mine = f"task {row.task}: token {token} of {owner}"
    if row.token != token or row.owner != owner:
        if row.is_held(now):
            return f"{mine} was superseded: {row.holder} has it, under token {row.token}"
        if row.last_token is not None and row.last_token >= token and row.last_success_at:
            made = f"under token {row.last_token} at {format_moment(row.last_success_at)}"
            return f"{mine} is over: the task was published {made}"
        return f"{mine} is over: the task was given back"
    if row.expires_at is None or row.expires_at <= now:
        assert row.expires_at is not None
        seconds = max(int((now - row.expires_at).total_seconds()), 0)
        late = format_duration(timedelta(seconds=seconds))
        return f"{mine} has lost its lease, which was over {late} ago"
    return None


def _held_by(task: str, owner: str, token: int) -> tuple[sa.ColumnElement[bool], ...]:
    return tasks.c.task == task, tasks.c.owner == owner, tasks.c.token == token


_ROW = sa.select(tasks).where(tasks.c.task == sa.bindparam("of"))
_LOCKED_ROW = _ROW.with_for_update()
