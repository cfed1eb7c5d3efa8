"""A file that no merge can read as it is costs its own task, and not its table."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import backoff, task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import What, Worker
from arctic_orchestration.errors import UnsupportedFile
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, FileGroup, LiveFile
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.deletes import deleted_positions, plain_path
from arctic_orchestration.lake.merging.input_files import require_readable
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.small_lake import Merging, offered, table_of


def no_field_ids(file: LiveFile) -> LiveFile:
    """The columns have nothing but their names."""
    pq.write_table(pa.table({"id": [1] * 10, "word": ["a"] * 10}), plain_path(file.path))
    return file


def no_parquet(file: LiveFile) -> LiveFile:
    """What is in it is not what its name says."""
    Path(plain_path(file.path)).write_bytes(b"Obj and so on, an Avro file")
    return file


def another_format(file: LiveFile) -> LiveFile:
    """The table says that it is no Parquet file."""
    return replace(file, file_format="orc")


def deleted_in_another_form(file: LiveFile) -> LiveFile:
    """A delete names it as a URL where the table has a path, or the other way round."""
    plain = plain_path(file.path)
    named = f"file:{plain}" if plain == file.path else plain
    pq.write_table(pa.table({"file_path": [named], "pos": [0]}), f"{plain}.deletes")
    return replace(file, deletes=(delete_of(file),))


def deleted_by_no_parquet(file: LiveFile) -> LiveFile:
    """The deletes of it cannot be read."""
    Path(f"{plain_path(file.path)}.deletes").write_bytes(b"Obj and so on, an Avro file")
    return replace(file, deletes=(delete_of(file),))


def delete_of(file: LiveFile) -> DeleteFile:
    """The file of its deletes."""
    return DeleteFile(
        path=f"{plain_path(file.path)}.deletes",
        kind=DeleteKind.POSITION,
        size=1,
        rows=1,
        sequence_number=9,
    )


@pytest.mark.parametrize(
    "worse",
    [no_field_ids, no_parquet, another_format, deleted_in_another_form, deleted_by_no_parquet],
)
def test_a_bad_file_is_distinguished_from_a_bad_table(
    catalog: Catalog, worse: Callable[[LiveFile], LiveFile]
) -> None:
    """Before it is worse, the file is fine."""
    table = table_of(catalog, files=1)
    (file,) = live_files(table).files

    def check(file: LiveFile) -> None:
        group = FileGroup(snapshot_id=1, sequence_number=1, spec_id=0, files=(file,))
        require_readable(table, group, ())
        deleted_positions(table.io, group.files)

    check(file)
    with pytest.raises(UnsupportedFile):
        check(worse(file))


def test_a_file_that_cannot_be_merged_lets_its_table_go_on(
    state: Database, catalog: Catalog
) -> None:
    """Its task is not tried again, and what was in it rests; the other task is merged."""
    offered(state, table_of(catalog), at_once=2)
    bad: list[str] = []

    def refuse(group: FileGroup) -> None:
        if not bad:
            bad.extend(file.path for file in group.files)
            raise UnsupportedFile(f"lake.words: {bad[0]} is encrypted")

    done = Worker(DatabaseSource(state, catalog), Merging(before=refuse)).run(timedelta(0))
    assert (done.of(What.FAILED), done.of(What.MERGED)) == (1, 1)
    with state.read() as tx:
        found = {task.state: task for task in task_store.tasks(tx)}
        row = tables.table_by_name(tx, "lake.words")
        assert backoff.resting(tx, row.name, database_time(tx)).keys() == set(bad)
    assert found.keys() == {TaskState.QUARANTINED, TaskState.MERGED}
    assert found[TaskState.QUARANTINED].attempts == 1
    assert (row.rests_until, row.failures) == (None, 0)
