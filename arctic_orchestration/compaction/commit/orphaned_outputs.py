"""What attempts left on disk that no snapshot will have, and what nobody may remove.

The directory of an attempt that failed, was lost, given back or dropped is listed for removal a
grace time after that: a worker that was stopped may wake up and write on for a moment, and a
committer may publish what was dropped meanwhile, until they hear that they are refused. What is
written later still is found as an orphan, by age.

What cannot be removed now is tried again later, and keeps nobody else from being tried. What a
snapshot turns out to have stays for good.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state.compaction_tables import (
    attempt_in_state,
    compaction_attempts,
    compaction_tasks,
    is_live,
    is_uncleaned,
)
from arctic_orchestration.state.dialect import database_time

#: how long after the end of its attempt a directory is left alone
GRACE = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """A directory of an attempt that nobody wants any more."""

    attempt_id: str
    task_id: str
    table: str
    #: the last part of its path
    directory: str
    #: the whole of it; none: the attempt has never said that it writes
    location: str | None
    #: what became of the attempt
    reason: str
    #: since when
    over_at: datetime
    #: why it could not be removed the last time; none: that was not tried yet
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Protected:
    """What live tasks of a table know; called with a path, whether that must stay."""

    #: the last parts of the paths of directories
    directories: frozenset[str]
    #: whole paths: files that are or will be read, and outputs that wait for the committer
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
    """Directories to remove now, those that have waited longest for it first.

    Each is listed until :func:`cleaned` says that it is gone, or :func:`kept` that it stays; after
    :func:`not_cleaned` not until its next try. An attempt that wrote nothing is listed too.
    """
    now, here = time(tx), compaction_attempts.c
    query = (
        sa.select(compaction_attempts)
        .where(
            is_uncleaned,
            here.over_at <= now - grace,
            here.clean_after.is_(None) | (here.clean_after <= now),
        )
        .order_by(sa.func.coalesce(here.clean_after, here.over_at), here.id)
        .limit(limit)
    )
    return [_from_row(row) for row in tx.execute(query)]


def in_trouble(tx: sa.Connection) -> list[Leftover]:
    """Directories that could not be removed, and that are tried again; the oldest first."""
    here = compaction_attempts.c
    query = sa.select(compaction_attempts).where(is_uncleaned, here.clean_trouble.is_not(None))
    return [_from_row(row) for row in tx.execute(query.order_by(here.over_at, here.id))]


def cleaned(tx: sa.Connection, attempt_id: str, *, time: Time = database_time) -> None:
    """Notes that the directory of an attempt is gone."""
    here = compaction_attempts.c
    tx.execute(
        sa.update(compaction_attempts)
        .where(here.id == attempt_id, is_uncleaned)
        .values(cleaned_at=time(tx), clean_after=None, clean_trouble=None)
    )


def not_cleaned(
    tx: sa.Connection,
    attempt_id: str,
    reason: str,
    again_after: timedelta,
    *,
    time: Time = database_time,
) -> None:
    """Notes that the directory of an attempt could not be removed; it is not listed for a while.

    Args:
        tx: the transaction.
        attempt_id: of the leftover.
        reason: for people.
        again_after: how long it is not listed.
        time: what tells the moment.
    """
    here = compaction_attempts.c
    tx.execute(
        sa.update(compaction_attempts)
        .where(here.id == attempt_id, is_uncleaned)
        .values(clean_after=time(tx) + again_after, clean_trouble=reason)
    )


def kept(tx: sa.Connection, attempt_id: str, reason: str) -> None:
    """Notes that the directory of an attempt stays: a snapshot has a file of it.

    It is never listed again. When no snapshot has its files any more, they go as those of any
    other merge do.
    """
    here = compaction_attempts.c
    tx.execute(
        sa.update(compaction_attempts)
        .where(here.id == attempt_id, is_uncleaned)
        .values(kept_reason=reason, clean_after=None, clean_trouble=None)
    )


def protected_paths(tx: sa.Connection, table: str) -> Protected:
    """What nobody may remove: of live attempts, of merges that wait, and what live tasks read.

    What attempts have left is the cleaner's, which knows when: it is not to be removed by its age.
    Read it after the files were listed, not before: a task that was claimed in between is known.
    """
    here = compaction_attempts.c
    held = attempt_in_state("live", "merged") | is_uncleaned
    query = sa.select(here.directory).where(held, here.table_name == table)
    return Protected(
        directories=frozenset(tx.execute(query).scalars()), paths=frozenset(_read_by(tx, table))
    )


def _read_by(tx: sa.Connection, table: str) -> Iterator[str]:
    """The data files and deletes of live tasks."""
    query = sa.select(compaction_tasks.c.file_group).where(
        compaction_tasks.c.table_name == table, is_live
    )
    for text in tx.execute(query).scalars():
        group = FileGroup.from_json(text)
        yield from (file.path for file in group.files)
        yield from (delete.path for delete in group.delete_files)


def _from_row(row: Any) -> Leftover:
    return Leftover(
        attempt_id=row.id, task_id=row.task_id, table=row.table_name, directory=row.directory,
        location=row.location, reason=f"{row.state}: {row.reason}", over_at=row.over_at,
        trouble=row.clean_trouble,
    )  # fmt: skip
