"""A lake of small tables, plans of their files, and a merge of them that needs no Spark."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.offers import Offered, offer
from arctic_orchestration.compaction.queue.task import PlannedTask, Task, TaskKind
from arctic_orchestration.compaction.work.attempt import MergedFile
from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.stored import seen

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "word", StringType(), required=False),
)


def lake_in(directory: Path) -> Catalog:
    """The embedded catalog in a directory."""
    return open_catalog(Settings.from_environment({"ARCTIC_LAKE": str(directory)}))


def table_of(
    catalog: Catalog, name: str = "lake.words", files: int = 4, **properties: str
) -> Table:
    """A table of so many files with ten rows each."""
    table = ensure_table(catalog, name, SCHEMA, properties=properties)
    for number in range(files):
        add_file(table, number)
    return table


def add_file(table: Table, number: int, rows: int = 10) -> None:
    """Appends one more file; its rows are distinguished from others by the number."""
    first = number * 1000
    table.append(
        pa.table(
            {"id": range(first, first + rows), "word": [f"w{number}"] * rows},
            schema=schema_to_pyarrow(SCHEMA, include_field_ids=False),
        )
    )


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """What a reader of the table sees now."""
    found = table.refresh().scan().to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def offered(database: Database, table: Table, *, at_once: int = 1000, **more: Any) -> Offered:
    """Offers all files of a table that is known, so many in a task."""
    live = live_files(table.refresh())
    assert live.snapshot_id is not None
    name = ".".join(table.name())
    files = sorted(live.files, key=lambda file: file.path)
    tasks = []
    for start in range(0, len(files), at_once):
        group = FileGroup(
            snapshot_id=live.snapshot_id,
            sequence_number=live.sequence_number,
            spec_id=0,
            files=tuple(files[start : start + at_once]),
        )
        tasks.append(
            PlannedTask(
                kind=TaskKind.MINOR,
                partition="",
                group=group,
                small_files=len(group.files),
                bytes=group.bytes,
                reason="small files",
                gain=f"{len(group.files)} files → 1",
            )
        )
    with database.begin() as tx:
        seen(tx, name)
        return offer(tx, name, tasks, database_time(tx), **more)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a merge reports."""

    outputs: tuple[MergedFile, ...]
    rows_in: int
    rows_out: int
    rows_deleted: int = 0
    way: str = "append"
    because: str = "it is a test"
    sort_order_id: int | None = None


@dataclass
class Merging:
    """Merges with pyarrow; ``before`` is called when a merge begins, in its thread."""

    before: Callable[[FileGroup], None] = lambda group: None
    directories: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(
        self, table: Table, group: FileGroup, directory: str, *, target_bytes: int
    ) -> Done:
        with self._lock:
            self.directories.append(directory)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
            path = f"{directory}/merged.parquet"
            schema = schema_to_pyarrow(table.schema())
            read = [pq.read_table(file.path).cast(schema) for file in group.files]
            rows = pa.concat_tables(read)
            pq.write_table(rows, path)
            self.before(group)
        finally:
            with self._lock:
                self.at_once -= 1
        size = Path(path).stat().st_size
        output = MergedFile(path=path, size=size, rows=rows.num_rows)
        return Done(outputs=(output,), rows_in=group.rows, rows_out=rows.num_rows)


def tasks_of(state: Database) -> list[Task]:
    """All tasks that the state database has."""
    with state.read() as tx:
        return task_store.tasks(tx)
