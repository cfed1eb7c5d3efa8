"""What attempts left on disk that no snapshot will have, and what nobody may remove.

The directory of an attempt that failed, was lost, given back or dropped is listed for removal once
its lease has been over for a grace time: a worker that was stopped may wake up and write on for a
moment, until it hears that it is refused. What it writes later still is found as an orphan, by age.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.attempts import Time
from arctic_orchestration.database.compaction_tables import (
    attempt_in_state,
    compaction_attempts,
    compaction_tasks,
    is_live,
    is_uncleaned,
)
from arctic_orchestration.database.dialect import database_time
from arctic_orchestration.lake.file_groups import FileGroup

#: how long after the end of its lease a directory is left alone
GRACE = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """A directory of an attempt that nobody wants any more."""

    attempt_id: str
    task_id: str
    table: str
    #: the last part of its path
    directory: str
    #: what became of the attempt
    reason: str
    expired_at: datetime


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
    """Directories to remove, those that have been over longest first.

    Each is listed until :func:`cleaned` says that it is gone. An attempt that wrote nothing is
    listed too: nobody but the file system knows.
    """
    here = compaction_attempts.c
    query = (
        sa.select(compaction_attempts)
        .where(is_uncleaned, here.expires_at <= time(tx) - grace)
        .order_by(here.expires_at, here.id)
        .limit(limit)
    )
    return [
        Leftover(
            attempt_id=row.id, task_id=row.task_id, table=row.table_name, directory=row.directory,
            reason=f"{row.state}: {row.reason}", expired_at=row.expires_at,
        )
        for row in tx.execute(query)
    ]  # fmt: skip


def cleaned(tx: sa.Connection, attempt_id: str, *, time: Time = database_time) -> None:
    """Notes that the directory of an attempt is gone."""
    here = compaction_attempts.c
    tx.execute(
        sa.update(compaction_attempts)
        .where(here.id == attempt_id, is_uncleaned)
        .values(cleaned_at=time(tx))
    )


def protected_paths(tx: sa.Connection, table: str) -> Protected:
    """What nobody may remove: of live attempts, of merges that wait, and what live tasks read.

    Read it after the files were listed, not before: a task that was claimed in between is known.
    """
    here = compaction_attempts.c
    held = attempt_in_state("live", "merged")
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
