"""Plans, a clock that stands, and a state database with tables of the lake, for tests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue.table_queues import see_table
from arctic_orchestration.compaction.queue.task import PlannedTask, TaskKind
from arctic_orchestration.compaction.work.attempt import MergedFile
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, FileGroup, LiveFile
from arctic_orchestration.state.compaction_tables import (
    compaction_partitions,
    compaction_queues,
    compaction_records,
    compaction_tables,
    compaction_tasks,
    compaction_workers,
)
from arctic_orchestration.state.database import Database

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MIB = 1024 * 1024


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """A state database with the schema of this version."""
    database = Database(url)
    if database.revision() is None:
        database.upgrade()
    yield database
    database.close()


def cleared(tx: sa.Connection) -> None:
    """Empties the tables of compaction, but for the queue ``default``."""
    tx.execute(sa.delete(compaction_tasks))
    for table in (compaction_partitions, compaction_tables, compaction_workers, compaction_records):
        tx.execute(sa.delete(table))
    tx.execute(sa.delete(compaction_queues).where(compaction_queues.c.name != "default"))
    values = {"capacity": 1000, "level": 0, "share": 1, "max_workers": 1}
    tx.execute(sa.update(compaction_queues).values(hours="always", budget=0, **values))


def seen(
    tx: sa.Connection, table: str, *, queue: str | None = None, level: int = 0, now: datetime = NOON
) -> None:
    """Makes a table known."""
    see_table(tx, table, queue=queue, level=level, now=now)


def planned(
    *files: str,
    kind: TaskKind = TaskKind.MINOR,
    partition: str = "",
    small_files: int | None = None,
    size: int = MIB,
    snapshot_id: int = 1,
    deletes: Sequence[str] = (),
    reason: str = "small files",
) -> PlannedTask:
    """A task of a plan, of files with 100 rows each; the deletes apply to all of them."""
    found = tuple(
        DeleteFile(path=path, kind=DeleteKind.POSITION, size=10, rows=1, sequence_number=2)
        for path in deletes
    )
    group = FileGroup(
        snapshot_id=snapshot_id,
        sequence_number=snapshot_id,
        spec_id=0,
        files=tuple(
            LiveFile(path=path, size=size, rows=100, sequence_number=1, spec_id=0, deletes=found)
            for path in files
        ),
    )
    return PlannedTask(
        kind=kind,
        partition=partition,
        group=group,
        small_files=len(files) if small_files is None else small_files,
        bytes=group.bytes,
        reason=reason,
        gain=f"{len(files)} files → 1",
    )


#: what a merge of two files of 100 rows reports
MERGE: dict[str, Any] = {
    "outputs": [MergedFile(path="out.parquet", size=1000, rows=199)],
    "rows_in": 200,
    "rows_deleted": 1,
    "rows_out": 199,
    "way": "append",
    "because": "one schema",
}


def waits_for_lock(database: Database) -> bool:
    """Whether a transaction of this Postgres database waits for a lock."""
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    with database.read() as tx:
        return bool(tx.execute(sa.text(f"{query} and datname = current_database()")).scalar())
