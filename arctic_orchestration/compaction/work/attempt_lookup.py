"""Look-ups of attempts: of a task, of a worker, by id, by the key of a claim."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.work.attempt import Attempt, AttemptState, Claim
from arctic_orchestration.errors import NotFound
from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state.compaction_tables import attempt_is_live, compaction_attempts


def attempts_of(tx: sa.Connection, task_id: str) -> list[Attempt]:
    """Returns all attempts of a task, in order."""
    col = compaction_attempts.c
    query = sa.select(compaction_attempts).where(col.task_id == task_id).order_by(col.token)
    return [Attempt.from_row(row) for row in tx.execute(query)]


def attempt_by_id(tx: sa.Connection, id: str) -> Attempt:
    """Returns an attempt.

    Errors:
        NotFound: no such attempt.
    """
    query = sa.select(compaction_attempts).where(compaction_attempts.c.id == id)
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"no attempt {id}")
    return Attempt.from_row(row)


# Built once: each claim asks this.
_BY_KEY = sa.select(compaction_attempts).where(
    compaction_attempts.c.worker_id == sa.bindparam("worker"),
    compaction_attempts.c.claim_key == sa.bindparam("key"),
)


def attempt_by_key(tx: sa.Connection, worker_id: str, key: str) -> Attempt | None:
    """Returns the attempt of a worker's claim with a key; none: it claimed nothing so far."""
    row = tx.execute(_BY_KEY, {"worker": worker_id, "key": key}).one_or_none()
    return None if row is None else Attempt.from_row(row)


def live_attempts_of(tx: sa.Connection, worker_id: str) -> list[Attempt]:
    """Returns the live attempts of a worker, in the order of their tables and ids."""
    col = compaction_attempts.c
    query = sa.select(compaction_attempts).where(attempt_is_live, col.worker_id == worker_id)
    return [Attempt.from_row(row) for row in tx.execute(query.order_by(col.table_name, col.id))]


def claim_of(tx: sa.Connection, attempt: Attempt) -> Claim:
    """Returns the claim of an attempt."""
    return Claim(
        task=task_store.task_by_id(tx, attempt.task_id),
        group=task_store.group_of(tx, attempt.task_id),
        attempt_id=attempt.id,
        token=attempt.token,
        claimed_at=attempt.claimed_at,
        expires_at=attempt.expires_at,
        directory=attempt.directory,
    )


def why_refused(tx: sa.Connection, attempt_id: str, token: int, now: datetime) -> str:
    """Returns why a report of an attempt is not accepted."""
    query = sa.select(compaction_attempts).where(compaction_attempts.c.id == attempt_id)
    row = tx.execute(query).one_or_none()
    if row is None:
        return f"there is no attempt {attempt_id}"
    whole = f"attempt {attempt_id} of compaction task {row.task_id}"
    if row.token != token:
        return f"{whole} has another token than {token}"
    if row.state != AttemptState.LIVE:
        return f"{whole} is {row.state} since {format_moment(row.ended_at)}: {row.reason}"
    late = format_duration(timedelta(seconds=max(int((now - row.expires_at).total_seconds()), 0)))
    return f"{whole} has lost its lease: it was over {late} ago, and the attempt counts as lost"
