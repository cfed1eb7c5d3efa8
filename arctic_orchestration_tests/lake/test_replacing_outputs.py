"""Outputs that are not what a merge was to write never get into the table."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFile, schema_to_pyarrow
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.table import Table
from pyiceberg.types import StringType

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake import file_metrics
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.replacing import outputs
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration_tests.lake.reference_merge import (
    BY_ORIGIN,
    SCHEMA,
    add,
    arrow,
    merge,
    new_table,
    plan,
    rows_of,
)

COLUMN_SIZES = [field.name for field in DATA_FILE_TYPE[2].fields].index("column_sizes")


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


@pytest.fixture
def merged(table: Table) -> Replacement:
    """Three files of two rows each, and one that has all of them."""
    for number in range(3):
        add(table, (number, "JFK"), (number + 10, "JFK"))
    return merge(table, plan(table))


def wrong(table: Table, *replacements: Replacement) -> str:
    """Commits, and returns what is wrong with the last one."""
    done = replace_files(table, replacements)
    assert replacements[-1].id not in done.committed
    assert done.conflicts == {}
    return done.wrong[replacements[-1].id]


def test_a_missing_output_is_reported(table: Table, merged: Replacement) -> None:
    """Nothing is committed."""
    Path(merged.outputs[0]).unlink()
    assert wrong(table, merged) == f"{merged.outputs[0]} is missing"
    assert len(table.refresh().snapshots()) == 3


@pytest.mark.parametrize(
    ("rows_deleted", "message"),
    [
        (1, "got 6 rows in the outputs, expected 5: 6 in the inputs without 1 deleted ones"),
        (-1, "got 6 rows in the outputs, expected 7: 6 in the inputs without -1 deleted ones"),
    ],
)
def test_rows_must_add_up(
    table: Table, merged: Replacement, rows_deleted: int, message: str
) -> None:
    """What the footers say counts, not what the worker says."""
    assert wrong(table, replace(merged, rows_deleted=rows_deleted)) == message


def test_a_row_that_was_lost_is_found_in_the_footer(table: Table, merged: Replacement) -> None:
    """The output has five rows of six."""
    lossy = merge(table, merged.group, changed=lambda rows: rows[1:])
    assert wrong(table, lossy).startswith("got 5 rows in the outputs, expected 6")


def test_values_must_not_become_null(table: Table, merged: Replacement) -> None:
    """The output has as many rows as the inputs, and one null more; a null of an input may stay."""
    table.append(pa.table({"id": [9, 19], "origin": [None, "JFK"]}))
    group = plan(table)

    null: Any = None
    two_nulls = merge(
        table, group, changed=lambda rows: [*((id_, null) for id_, _ in rows[:2]), *rows[2:]]
    )
    assert wrong(table, two_nulls) == (
        "got 2 nulls in origin of the outputs, expected at most 1, as many as in the inputs"
    )
    good = merge(table, group)
    assert set(replace_files(table, [good]).committed) == {good.id}


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def of_nonsense(path: Path) -> None:
    """A footer of the right length that says nothing; to pyarrow it looks like a failing disk."""
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    content[-8 - length : -8] = b"\xff" * length
    path.write_bytes(content)


def without_ids(path: Path) -> None:
    pq.write_table(arrow([(number, "JFK") for number in range(6)]), path)


def of_another_type(path: Path) -> None:
    schema = schema_to_pyarrow(SCHEMA)
    field = schema.field("id").with_type(pa.string())
    rows = pa.table({"id": [str(number) for number in range(6)], "origin": ["JFK"] * 6})
    pq.write_table(rows.cast(pa.schema([field, schema.field("origin")])), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "Parquet"),
        (of_nonsense, "Couldn't deserialize thrift"),
        (without_ids, "a column has no field id"),
        (of_another_type, "the table cannot have such a column"),
    ],
)
def test_files_that_the_table_cannot_read_are_reported(
    table: Table, merged: Replacement, damage: Callable[[Path], None], message: str
) -> None:
    """Not a whole Parquet file, no field ids, or another type; the file is named once."""
    damage(Path(merged.outputs[0]))
    found = wrong(table, merged)
    assert message in found
    assert found.count(merged.outputs[0]) == 1


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def below_a_file(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.touch()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("damage", [a_directory, below_a_file, a_loop])
def test_an_output_that_cannot_be_opened_is_left_and_the_others_are_committed(
    table: Table, merged: Replacement, damage: Callable[[Path], None]
) -> None:
    """Nothing is decided of it; when it can be read again, it is committed."""
    more = [add(table, (100 + number, "JFK")) for number in range(2)]
    other = merge(table, plan(table, more), name="other")
    before = rows_of(table)
    path = Path(merged.outputs[0])
    kept = path.read_bytes()
    damage(path)
    done = replace_files(table, [merged, other])
    assert (done.committed, done.conflicts, done.wrong) == (("other",), {}, {})
    assert done.unreadable["task-1"].startswith(f"{path} cannot be read: ")
    remade(path, kept)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == before


def remade(path: Path, content: bytes) -> None:
    if path.is_dir():
        path.rmdir()
    elif path.is_symlink():
        path.unlink()
    elif path.parent.is_file():
        path.parent.unlink()
        path.parent.mkdir()
    path.write_bytes(content)


def closed(monkeypatch: pytest.MonkeyPatch, error: OSError, *below: str) -> None:
    """Files whose paths begin so cannot be opened."""
    real = PyArrowFile.open

    def opened(self: PyArrowFile, seekable: bool = True) -> Any:
        if self.location.startswith(below):
            raise error
        return real(self, seekable)

    monkeypatch.setattr(PyArrowFile, "open", opened)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "denied"), OSError(5, "bad sector"), OSError("AWS: no such key")]
)
def test_an_output_that_alone_cannot_be_read_is_left(
    table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Others can be, so that the storage does answer."""
    closed(monkeypatch, error, *merged.outputs)
    done = replace_files(table, [merged])
    assert done.unreadable == {"task-1": f"{merged.outputs[0]} cannot be read: {error}"}
    assert (done.snapshot_id, done.wrong, done.conflicts) == (None, {}, {})


def closed_when_outputs_are_looked_at(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """From then on no file of the table can be opened."""
    real = file_metrics.described

    def described(*arguments: Any, **named: Any) -> Any:
        closed(monkeypatch, error, table.location())
        return real(*arguments, **named)

    monkeypatch.setattr(outputs, "described", described)


def test_unreadable_outputs_are_left_all(
    table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage answers, and says no."""
    closed_when_outputs_are_looked_at(table, monkeypatch, PermissionError(13, "denied"))
    assert list(replace_files(table, [merged]).unreadable) == ["task-1"]


def test_a_storage_that_is_down_is_reported(
    table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else can be read either, so that nothing is recorded of the output."""
    closed_when_outputs_are_looked_at(table, monkeypatch, OSError(110, "timed out"))
    with pytest.raises(LakeError, match="cannot be read: .*timed out"):
        replace_files(table, [merged])


def test_an_input_that_must_be_read_and_cannot_be_is_reported(table: Table) -> None:
    """A column came since, and the table does not say of which columns the input is."""
    lost = [add(table, (number, "JFK")) for number in range(2)]
    table.delete("id >= 0")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for path in lost:
            file = describe(table, path, spec_id=0, partition=())
            file._data[COLUMN_SIZES] = None
            added.append_data_file(file)
    merged = merge(table, plan(table, lost))
    more = [add(table, (10 + number, "JFK")) for number in range(2)]
    other = merge(table, plan(table, more), name="other")
    with table.update_schema() as schema:
        schema.add_column("note", StringType())
    Path(lost[0]).unlink()
    done = replace_files(table, [merged, other])
    assert done.committed == ("other",)
    assert done.unreadable["task-1"].startswith(f"{lost[0]}, an input, cannot be read: ")


def test_an_unexpected_error_concerns_one_replacement(
    table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of the table are committed."""
    more = [add(table, (100 + number, "JFK")) for number in range(2)]
    other = merge(table, plan(table, more), name="other")
    real = file_metrics.described

    def described(table: Table, path: str, **named: Any) -> Any:
        if path == merged.outputs[0]:
            raise OverflowError("date value out of range")
        return real(table, path, **named)

    monkeypatch.setattr(outputs, "described", described)
    done = replace_files(table, [merged, other])
    assert (done.committed, done.conflicts, done.unreadable) == (("other",), {}, {})
    assert done.wrong == {
        "task-1": f"{merged.outputs[0]}: OverflowError: date value out of range",
    }


def test_an_output_without_rows_is_reported(table: Table, merged: Replacement) -> None:
    """A merge that leaves nothing has no outputs."""
    path = f"{Path(merged.outputs[0]).parent}/empty.parquet"
    pq.write_table(arrow([]).cast(schema_to_pyarrow(SCHEMA)), path)
    assert wrong(table, replace(merged, outputs=(*merged.outputs, path))) == f"{path} has no rows"


def test_an_output_elsewhere_is_reported(table: Table, merged: Replacement, tmp_path: Path) -> None:
    """Outside the table nobody would remove it later. ``write.data.path`` is inside."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = f"{elsewhere}/one.parquet"
    Path(merged.outputs[0]).rename(path)
    moved = replace(merged, outputs=(path,))
    assert wrong(table, moved) == f"{path} is outside the table, {table.location()}"
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": str(elsewhere)})
    assert replace_files(table, [moved]).committed == ("task-1",)


def test_an_output_is_never_there_twice(table: Table, merged: Replacement) -> None:
    """Named twice, named by two replacements, or in the table already."""
    path = merged.outputs[0]
    twice = replace(merged, outputs=(path, path))
    assert wrong(table, twice) == "an output is named twice"
    more = [add(table, (100 + number, "JFK")) for number in range(6)]
    other = replace(merge(table, plan(table, more), name="other"), outputs=(path,))
    before = rows_of(table)
    assert wrong(table, merged, other) == f"{path} is an output of another replacement"
    assert wrong(table, other) == f"{path} is in the table already"
    assert rows_of(table) == before


def test_inputs_of_several_partitions_are_wrong(catalog: Catalog) -> None:
    """The outputs could not say which partition they are of."""
    table = new_table(catalog, "lake.partitioned", spec=BY_ORIGIN)
    files = [add(table, (1, "JFK")), add(table, (2, "LGA"))]
    assert wrong(table, merge(table, plan(table, files))) == "the inputs are of several partitions"


def test_inputs_younger_than_their_plan_are_wrong(table: Table, merged: Replacement) -> None:
    """Older outputs would be reached by deletes that were not for these rows."""
    older = replace(merged, group=replace(merged.group, sequence_number=1))
    young = merged.group.files[0].path
    assert wrong(table, older) == f"{young} is younger than the snapshot that was planned from"


def test_a_full_disk_leaves_the_table_as_it_is(
    table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest list cannot be written; the manifests that were go again."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = set(Path(table.location(), "metadata").iterdir())
    monkeypatch.setattr("pyiceberg.table.update.snapshot.write_manifest_list", full)
    with pytest.raises(LakeError, match="manifests cannot be written: .*No space left on device"):
        replace_files(table, [merged])
    assert set(Path(table.location(), "metadata").iterdir()) == before


def test_what_is_described_is_what_pyiceberg_describes(table: Table) -> None:
    """Counts and bounds of a file that pyiceberg wrote, from its footer."""
    path = add(table, (3, "JFK"), (1, "EWR"))
    (theirs,) = [one.file for one in table.scan().plan_files() if one.file.file_path == path]
    ours = describe(table, path, spec_id=0, partition=())
    for name in ("record_count", "file_size_in_bytes", "file_format", "split_offsets"):
        assert getattr(ours, name) == getattr(theirs, name)
    for name in ("column_sizes", "value_counts", "null_value_counts", "lower_bounds"):
        assert dict(getattr(ours, name)) == dict(getattr(theirs, name))
    assert dict(ours.upper_bounds) == {1: (3).to_bytes(8, "little"), 2: b"JFK"}


def test_a_file_from_before_columns_changed_is_described_by_its_ids(table: Table) -> None:
    """One column got another name since, the other one is gone."""
    path = add(table, (3, "JFK"), (1, "EWR"))
    with table.update_schema() as schema:
        schema.rename_column("origin", "airport")
        schema.delete_column("id")
    ours = describe(table, path, spec_id=0, partition=())
    assert dict(ours.lower_bounds) == {2: b"EWR"}
    assert dict(ours.value_counts) == {2: 2}
