"""Records of compaction: one for each commit, kept until it is pruned."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import backoff
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_records,
    compaction_tables,
    compaction_tasks,
    is_uncleaned,
)

#: the retention of records and ended tasks
RETENTION = timedelta(days=30)
#: A file may rest for a day; earlier rests are known as long as records are.
SHORTEST_RETENTION = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionRecord:
    """One commit of compaction; sizes in bytes."""

    table: str
    snapshot_id: int
    #: when it was recorded, by the database's time
    at: datetime
    #: the ids of its tasks
    tasks: tuple[str, ...]
    #: data files removed and added
    files_in: int
    files_out: int
    #: delete files removed, as no data file needs them any more
    delete_files_removed: int
    #: of the data files and the deletes that applied to them, and of the new files
    bytes_in: int
    bytes_out: int
    #: rows in the new files, and rows that the deletes removed
    rows: int
    rows_deleted: int
    #: the total duration of the merges, from claim to report
    merge_seconds: float
    #: the time from the offer of its first task to the commit
    waited_seconds: float
    #: the number of tasks by way of merging
    ways: Mapping[str, int]


def write(tx: sa.Connection, record: CompactionRecord) -> bool:
    """Stores a record.

    Returns:
        false: the snapshot already has one, which stays.
    """
    values: dict[str, Any] = {name: getattr(record, name) for name in CompactionRecord.__slots__}
    values["table_name"] = values.pop("table")
    values["tasks"] = json.dumps(list(record.tasks))
    values["ways"] = json.dumps(dict(sorted(record.ways.items())))
    new = dialect.insert(tx, compaction_records).values(**values)
    return tx.execute(new.on_conflict_do_nothing()).rowcount == 1


def records(
    tx: sa.Connection, *, table: str | None = None, limit: int | None = None
) -> list[CompactionRecord]:
    """Returns records, newest first.

    Args:
        tx: the transaction.
        table: only of this table.
        limit: the maximum number.
    """
    return [record for _, record in numbered(tx, table=table, limit=limit)]


def numbered(
    tx: sa.Connection,
    *,
    table: str | None = None,
    queues: Collection[str] | None = None,
    before: tuple[datetime, int] | None = None,
    limit: int | None = None,
) -> list[tuple[int, CompactionRecord]]:
    """Returns records with their numbers, newest first.

    Args:
        tx: the transaction.
        table: only of this table.
        queues: only of tables that are in these queues now; None: of all tables.
        before: only those before a record, by its moment and its number.
        limit: the maximum number.
    """
    col = compaction_records.c
    query = sa.select(compaction_records).order_by(col.at.desc(), col.id.desc()).limit(limit)
    if table is not None:
        query = query.where(col.table_name == table)
    if queues is not None:
        there = sa.select(compaction_tables.c.name)
        there = there.where(dialect.among(tx, compaction_tables.c.queue, queues))
        query = query.where(col.table_name.in_(there))
    if before is not None:
        at, id = before
        query = query.where((col.at < at) | ((col.at == at) & (col.id < id)))
    return [(row["id"], _from_row(row)) for row in tx.execute(query).mappings()]


def prune(tx: sa.Connection, older_than: datetime) -> tuple[int, int]:
    """Deletes records and ended tasks, with their attempts and history, from before a moment.

    A task stays until all directories of its attempts are removed.

    Returns:
        the number of records, and of tasks.
    """
    old = compaction_records.c.at < older_than
    pruned = tx.execute(sa.delete(compaction_records).where(old)).rowcount
    dirty = sa.exists().where(compaction_attempts.c.task_id == compaction_tasks.c.id, is_uncleaned)
    ended = tx.execute(
        sa.delete(compaction_tasks).where(compaction_tasks.c.ended_at < older_than, ~dirty)
    ).rowcount
    used = sa.exists().where(compaction_tasks.c.table_name == compaction_tables.c.name)
    gone = compaction_tables.c.gone_at < older_than
    tx.execute(sa.delete(compaction_tables).where(gone, ~used))
    backoff.prune(tx, older_than)
    return pruned, ended


def _from_row(row: Mapping[Any, Any]) -> CompactionRecord:
    values = {
        name: row["table_name" if name == "table" else name] for name in CompactionRecord.__slots__
    }
    values["tasks"] = tuple(json.loads(values["tasks"]))
    values["ways"] = json.loads(values["ways"])
    return CompactionRecord(**values)
