"""Who may make a task: a lease with a fencing token, on the row that has its last success.

One statement decides, on the locked row, whether the task is *mine*, *fresh meanwhile* or *busy*.
Who publishes shows the token in the transaction that writes the success, after the row is locked:
an owner that was stopped and goes on finds another token there, or a lease that is over, and
writes nothing. A take-over waits for a publication under way, and then finds the task fresh.

A renewal asks for token and owner alone: as long as nobody else has acquired the task, its owner
may go on. A publication asks, besides, that the lease is not over: an owner that nobody has heard
of for that long has no business to write.

Functions take ``time``, what tells the moment: in tests a clock that stands. It is always read
from the database, and after the row is locked where that matters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import Refused
from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import task_publications, tasks

#: how long a lease holds until it is renewed
LEASE = timedelta(seconds=60)

Time = Callable[[sa.Connection], datetime]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """What all clusters know of a task; of one that was never acquired, nothing but its name."""

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
        """Whether somebody may make it now."""
        return self.owner is not None and self.expires_at is not None and self.expires_at > now

    def is_fresh(self, since: datetime, *, force: bool = False) -> bool:
        """Whether its last success was then or later; with ``force``, was begun then or later."""
        at = self.last_acquired_at if force else self.last_success_at
        return at is not None and at >= since

    @property
    def holder(self) -> str:
        """Who has it, for people: ``run 1234 of cluster east, location lake``."""
        run = f"run {self.run_id}" if self.run_id else f"a run for submission {self.submission}"
        return f"{run} of cluster {self.cluster}, location {self.location}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """For whom a task is acquired."""

    cluster: str
    location: str
    submission: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Acquired:
    """It is mine."""

    token: int
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class FreshMeanwhile:
    """Somebody has made it; there is nothing to do."""

    row: TaskRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Busy:
    """Somebody else is making it."""

    row: TaskRow


def row_of(tx: sa.Connection, task: str, *, lock: bool = False) -> TaskRow:
    """What is known of a task; with ``lock``, nobody changes it until the transaction ends."""
    statement = _LOCKED_ROW if lock else _ROW
    found = tx.execute(statement, {"of": task}).mappings().one_or_none()
    return TaskRow(task=task) if found is None else from_row(found)


def rows_of(tx: sa.Connection, names: list[str]) -> dict[str, TaskRow]:
    """What is known of some tasks, by name; those that were never acquired are left out."""
    if not names:
        return {}
    query = sa.select(tasks).where(dialect.among(tx, tasks.c.task, names))
    return {row["task"]: from_row(row) for row in tx.execute(query).mappings()}


def from_row(row: Mapping[Any, Any]) -> TaskRow:
    """The task that a row of ``arctic_tasks`` holds."""
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
    """Takes a task that nobody has and that is not fresh, in one statement.

    Args:
        tx: the transaction.
        task: its name.
        owner: who takes it; another one for each attempt.
        holder: for whom, as others are told.
        since: a success since then is fresh.
        force: only a success that was begun since then is.
        life: how long the lease holds.
        time: what tells the moment. It is read before the row is locked, so that a wait for the
            lock only makes an old lease look longer, and ours shorter.
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
    """Lets a lease hold for another ``life`` from now.

    Args:
        tx: the transaction.
        task: its name.
        owner: who has it.
        token: what it has it under.
        life: how long it holds.
        time: what tells the moment.
        seen: what else is known by now: ``run_id``, ``begun_at``.

    Returns:
        false: another one has taken it over, or it was given back.
    """
    changed = tx.execute(
        sa.update(tasks)
        .where(*_held_by(task, owner, token))
        .values(expires_at=time(tx) + life, **seen)
    )
    return changed.rowcount == 1


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
    """Goes on with another attempt, and shuts out the one before, should it still be at work.

    Returns:
        the new token; none: another one has taken the task over.
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
    time: Time = database_time,
) -> datetime:
    """Writes a success, and gives the task back; the token is checked on the locked row.

    Returns:
        the moment of the success, by the database's time.

    Errors:
        Refused: another one has taken the task over, or its lease is over. Nothing was written.
    """
    row = row_of(tx, task, lock=True)
    # After the row is locked: to wait for the lock may have taken longer than the lease.
    now = time(tx)
    problem = why_not(row, owner, token, now)
    if problem is not None:
        raise Refused(problem)
    tx.execute(
        sa.insert(task_publications).values(
            task=task, token=token, submission=row.submission, run_id=row.run_id,
            cluster=row.cluster, at=now,
        )
    )  # fmt: skip
    tx.execute(
        sa.update(tasks)
        .where(tasks.c.task == task)
        .values(
            owner=None, expires_at=None, last_success_at=now, last_acquired_at=row.acquired_at,
            last_success_run=row.run_id, last_success_cluster=row.cluster, last_token=token,
        )
    )  # fmt: skip
    return now


def give_back(tx: sa.Connection, task: str, owner: str, token: int) -> bool:
    """Lets anybody acquire the task; returns whether it was still the owner's."""
    changed = tx.execute(
        sa.update(tasks).where(*_held_by(task, owner, token)).values(owner=None, expires_at=None)
    )
    return changed.rowcount == 1


def why_not(row: TaskRow, owner: str, token: int, now: datetime) -> str | None:
    """Why an owner may not publish; none: it may."""
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
