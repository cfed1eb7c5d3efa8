"""Outputs of attempts that no snapshot will contain, and outputs that must not be removed.

The directory of an attempt that failed, was lost, released or dropped is listed for removal after a
grace time: a paused worker may resume and write for a moment, and a committer may publish a dropped
output, until they are refused. Later writes are found as orphans, by age.

A failed removal is retried later, and does not block others. Files that a snapshot turns out to
contain stay for good.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.state.compaction_tables import (
    attempt_in_state,
    compaction_attempts,
    is_uncleaned,
)
from arctic_orchestration.state.dialect import database_time

#: the grace time of a directory after the end of its attempt
GRACE = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """An orphaned directory of an attempt."""

    attempt_id: str
    task_id: str
    table: str
    #: the last part of its path
    directory: str
    #: the whole of it; none: the attempt never reported it
    location: str | None
    #: how the attempt ended
    reason: str
    #: since when it is orphaned
    over_at: datetime
    #: why the last removal failed; none: it was not tried yet
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Protected:
    """The paths of live tasks of a table; a call returns whether a path is protected."""

    #: the last parts of the paths of directories
    directories: frozenset[str]
    #: whole paths: input files, and outputs that wait for the committer
    paths: frozenset[str]

    def __call__(self, path: str) -> bool:
        return path in self.paths or not self.directories.isdisjoint(path.split("/"))


def to_clean(
    tx: sa.Connection,
    *,
    grace: timedelta = GRACE,
    limit: int = 1000,
    time: Time = database_time,
) -> list[Leftover]:
    """Returns directories to remove now, longest waiting first.

    Each is listed until :func:`cleaned` reports its removal, or :func:`kept` that it stays; after
    :func:`not_cleaned` not until its next try. An attempt that wrote nothing is listed too.
    """
    now, col = time(tx), compaction_attempts.c
    query = (
        sa.select(compaction_attempts)
        .where(
            is_uncleaned,
            col.over_at <= now - grace,
            col.clean_after.is_(None) | (col.clean_after <= now),
        )
        .order_by(sa.func.coalesce(col.clean_after, col.over_at), col.id)
        .limit(limit)
    )
    return [_from_row(row) for row in tx.execute(query)]


def in_trouble(tx: sa.Connection) -> list[Leftover]:
    """Returns directories with a failed removal that will be retried, oldest first."""
    col = compaction_attempts.c
    query = sa.select(compaction_attempts).where(is_uncleaned, col.clean_trouble.is_not(None))
    return [_from_row(row) for row in tx.execute(query.order_by(col.over_at, col.id))]


def cleaned(tx: sa.Connection, attempt_id: str, *, time: Time = database_time) -> None:
    """Records that the directory of an attempt is gone."""
    _update(tx, attempt_id, cleaned_at=time(tx), clean_after=None, clean_trouble=None)


def not_cleaned(
    tx: sa.Connection,
    attempt_id: str,
    reason: str,
    retry_after: timedelta,
    *,
    time: Time = database_time,
) -> None:
    """Records a failed removal of an attempt's directory, which is not listed for a while.

    Args:
        tx: the transaction.
        attempt_id: the attempt.
        reason: for people.
        again_after: how long it is not listed.
        time: the source of the time.
    """
    _update(tx, attempt_id, clean_after=time(tx) + retry_after, clean_trouble=reason)


def kept(tx: sa.Connection, attempt_id: str, reason: str) -> None:
    """Records that the directory of an attempt stays: a snapshot contains a file of it.

    It is never listed again. Once no snapshot contains its files, they are removed like those of
    any other merge.
    """
    _update(tx, attempt_id, kept_reason=reason, clean_after=None, clean_trouble=None)


def _update(tx: sa.Connection, attempt_id: str, **values: Any) -> None:
    uncleaned = sa.update(compaction_attempts).where(
        compaction_attempts.c.id == attempt_id, is_uncleaned
    )
    tx.execute(uncleaned.values(**values))


def protected_paths(tx: sa.Connection, table: str) -> Protected:
    """Returns the protected paths: of live attempts, of waiting merges, and inputs of live tasks.

    The cleaner removes orphaned outputs after their grace time: their age alone must not. Read this
    after listing the files, not before: it then includes tasks claimed in between.
    """
    col = compaction_attempts.c
    held = attempt_in_state("live", "merged") | is_uncleaned
    query = sa.select(col.directory).where(held, col.table_name == table)
    return Protected(
        directories=frozenset(tx.execute(query).scalars()), paths=frozenset(_read_by(tx, table))
    )


def _read_by(tx: sa.Connection, table: str) -> Iterator[str]:
    """Yields the data files and deletes of live tasks."""
    for group in task_store.live_groups(tx, table):
        yield from (file.path for file in group.files)
        yield from (delete.path for delete in group.delete_files)


def _from_row(row: Any) -> Leftover:
    return Leftover(
        attempt_id=row.id, task_id=row.task_id, table=row.table_name, directory=row.directory,
        location=row.location, reason=f"{row.state}: {row.reason}", over_at=row.over_at,
        trouble=row.clean_trouble,
    )  # fmt: skip
