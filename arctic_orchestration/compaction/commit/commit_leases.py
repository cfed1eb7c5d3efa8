"""The commit lease of a table, held by one committer at a time; see ``commits``."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.state.compaction_tables import compaction_tables
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

#: the duration of a commit lease
COMMIT_LEASE = timedelta(seconds=60)
#: how long a table is skipped after its catalog or files did not answer
PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitLease:
    """The exclusive right to commit to a table."""

    table: str
    owner: str
    token: int
    expires_at: datetime


def take_commit_lease(
    tx: sa.Connection,
    table: str,
    owner: str,
    *,
    life: timedelta = COMMIT_LEASE,
    time: Time = database_time,
) -> CommitLease | None:
    """Acquires the commit lease of a table; none: another committer has it."""
    now, col = time(tx), compaction_tables.c
    token = tx.execute(
        sa.update(compaction_tables)
        .where(col.name == table, col.commit_expires_at.is_(None) | (col.commit_expires_at <= now))
        .values(commit_owner=owner, commit_token=col.commit_token + 1, commit_expires_at=now + life)
        .returning(col.commit_token)
    ).scalar()
    if token is None:
        return None
    return CommitLease(table=table, owner=owner, token=token, expires_at=now + life)


def renew_commit_lease(
    tx: sa.Connection,
    lease: CommitLease,
    *,
    life: timedelta = COMMIT_LEASE,
    time: Time = database_time,
) -> CommitLease | None:
    """Renews the lease for another ``life`` from now; none: another committer has the table.

    An expired lease that was not taken over is renewed: only a take-over ends it, with another
    token.
    """
    now, col = time(tx), compaction_tables.c
    changed = tx.execute(
        sa.update(compaction_tables)
        .where(
            col.name == lease.table,
            col.commit_token == lease.token,
            col.commit_expires_at.is_not(None),
        )
        .values(commit_expires_at=now + life)
    )
    return replace(lease, expires_at=now + life) if changed.rowcount else None


def end_commit_lease(
    tx: sa.Connection,
    lease: CommitLease,
    *,
    next_commit_at: datetime | None = None,
    trouble: str | None = None,
) -> None:
    """Releases the table; leaves an expired lease, or that of another committer, unchanged.

    Args:
        tx: the transaction.
        lease: the acquired lease.
        next_commit_at: the table's next commit is not before this moment; none: unchanged.
        trouble: why nothing could be committed, for people; none: no error.
    """
    col = compaction_tables.c
    values: dict[str, datetime | str | None] = {
        "commit_expires_at": None,
        "commit_trouble": trouble,
    }
    if next_commit_at is not None:
        values["next_commit_at"] = next_commit_at
    tx.execute(
        sa.update(compaction_tables)
        .where(col.name == lease.table, col.commit_token == lease.token)
        .values(commit_owner=None, **values)
    )


def shorten_wait(
    database: Database, table: CompactionTable, interval: timedelta, now: datetime
) -> None:
    """Brings the next commit of a table forward, whose commit interval has become shorter."""
    longest = max(interval, PAUSE)
    if table.next_commit_at is None or table.next_commit_at <= now + longest:
        return
    with database.begin() as tx:
        col, latest = compaction_tables.c, database_time(tx) + longest
        waits = sa.update(compaction_tables).where(
            col.name == table.name, col.next_commit_at > latest
        )
        tx.execute(waits.values(next_commit_at=latest))


def note_trouble(tx: sa.Connection, table: str, trouble: str) -> bool:
    """Records why the commit in progress does not end; its end replaces that.

    Returns:
        whether the reason is new.
    """
    col = compaction_tables.c
    news = col.commit_trouble.is_(None) | (col.commit_trouble != trouble)
    under_way = sa.update(compaction_tables).where(
        col.name == table, col.commit_expires_at.is_not(None), news
    )
    return bool(tx.execute(under_way.values(commit_trouble=trouble)).rowcount)
