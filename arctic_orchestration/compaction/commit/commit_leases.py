"""The lease to commit to a table, which one committer at a time has; see ``commits``."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.state.compaction_tables import compaction_tables
from arctic_orchestration.state.dialect import database_time

#: how long a committer has a table until it renews
COMMIT_LEASE = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitLease:
    """The right to commit to a table."""

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
    """Takes the right to commit to a table; none: another committer has it."""
    now, here = time(tx), compaction_tables.c
    token = tx.execute(
        sa.update(compaction_tables)
        .where(
            here.name == table, here.commit_expires_at.is_(None) | (here.commit_expires_at <= now)
        )
        .values(
            commit_owner=owner, commit_token=here.commit_token + 1, commit_expires_at=now + life
        )
        .returning(here.commit_token)
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
    """Lets the lease hold for another ``life`` from now; none: somebody else has the table.

    One that is over and that nobody has taken holds again: to take it is what makes it another's,
    and gives it another token.
    """
    now, here = time(tx), compaction_tables.c
    changed = tx.execute(
        sa.update(compaction_tables)
        .where(
            here.name == lease.table,
            here.commit_token == lease.token,
            here.commit_expires_at.is_not(None),
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
    """Gives the table back; a lease that is over or another's is left alone.

    Args:
        tx: the transaction.
        lease: what was taken.
        next_commit_at: before that nobody commits to the table; none: as it was.
        trouble: why nothing could be committed, for people; none: it could.
    """
    here = compaction_tables.c
    values: dict[str, datetime | str | None] = {
        "commit_expires_at": None,
        "commit_trouble": trouble,
    }
    if next_commit_at is not None:
        values["next_commit_at"] = next_commit_at
    tx.execute(
        sa.update(compaction_tables)
        .where(here.name == lease.table, here.commit_token == lease.token)
        .values(commit_owner=None, **values)
    )


def note_trouble(tx: sa.Connection, table: str, trouble: str) -> bool:
    """Says why the commit that is under way does not end; its end replaces that.

    Returns:
        whether that was not said already.
    """
    here = compaction_tables.c
    news = here.commit_trouble.is_(None) | (here.commit_trouble != trouble)
    under_way = sa.update(compaction_tables).where(
        here.name == table, here.commit_expires_at.is_not(None), news
    )
    return bool(tx.execute(under_way.values(commit_trouble=trouble)).rowcount)
