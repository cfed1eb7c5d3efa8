"""Tables of format 3 without Spark: what is read, and what a commit of merges does to row ids."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import GeometryType, LongType, NestedField, StructType

from arctic_orchestration.errors import LakeError, UnsupportedTable
from arctic_orchestration.lake.file_groups import DeleteKind
from arctic_orchestration.lake.manifest_fields import first_row_id_of
from arctic_orchestration.lake.manifests import (
    live_files,
    read_entries,
    snapshot_manifests,
    table_numbers,
)
from arctic_orchestration.lake.merging.deletes import deleted_positions
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.lake.schema import require_supported_table
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration_tests.lake.delete_writer import Scope, add_position_deletes
from arctic_orchestration_tests.lake.format_three import (
    BY_PART,
    SCHEMA,
    Row,
    add,
    commit,
    data_file,
    delete_positions,
    delete_values,
    merged,
    new_table,
    plan,
    upgrade,
)
from arctic_orchestration_tests.lake.format_three_reader import Lineage, delete_entries, lineage
from arctic_orchestration_tests.lake.reference_merge import paths
from arctic_orchestration_tests.present import present


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


def rows(first: int, count: int, part: str = "a") -> list[Row]:
    return [(number, part, number * 10) for number in range(first, first + count)]


def next_row_id(table: Table) -> int:
    found: int = json.loads(Path(table.refresh().metadata_location).read_text())["next-row-id"]
    return found


def test_files_inherit_row_ids_in_the_order_of_their_entries(table: Table) -> None:
    """Two files of three and two rows, then one of four: ids from 0, 3 and 5."""
    one, two = add(table, rows(0, 3), rows(3, 2))
    (three,) = add(table, rows(5, 4))

    assert next_row_id(table) == 9
    first = {file.path: file.first_row_id for file in live_files(table).files}
    assert first == {one: 0, two: 3, three: 5}


def test_a_table_without_rows_begins_with_row_id_0(table: Table) -> None:
    assert next_row_id(table) == 0
    assert live_files(table).files == []


def test_a_merge_keeps_the_lineage_and_gives_the_snapshot_its_row_ids(table: Table) -> None:
    """Three files in three manifests, of which two are merged: five rows in the new manifests."""
    one, two, three = (add(table, rows(first, 2))[0] for first in (0, 2, 4))
    before = lineage(table)

    replaced = replace_files(table, [merged(table, plan(table, [one, two]))])

    assert replaced.committed == ("task",)
    assert lineage(table) == before
    assert [found[:2] for found in before] == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)]
    head = present(table.refresh().current_snapshot())
    # The manifest with the merged file has four rows, and its list reserves as many ids.
    assert (head.first_row_id, head.added_rows, next_row_id(table)) == (6, 4, 10)
    assert three in paths(table)


def test_files_that_stay_in_a_rewritten_manifest_keep_their_row_ids(table: Table) -> None:
    """Their entries then have the ids that they inherited before."""
    one, two, three = add(table, rows(0, 2), rows(2, 3), rows(5, 1))
    before = lineage(table)
    replace_files(table, [merged(table, plan(table, [one, three]))])

    assert lineage(table) == before
    manifests = snapshot_manifests(table.io, present(table.refresh().current_snapshot()))
    (left,) = (
        entry
        for manifest in manifests
        for entry in read_entries(table.io, manifest)
        if entry.data_file.file_path == two
    )
    assert first_row_id_of(left.data_file) == 2
    # Three rows were added, and three exist in the rewritten manifest.
    assert present(table.current_snapshot()).added_rows == 6


def test_vectors_are_read_from_their_place_in_a_shared_puffin_file(table: Table) -> None:
    """Each file has its own vector; also positions above four billion would fit."""
    one, two = add(table, rows(0, 100), rows(100, 80))
    puffin = delete_positions(table, {one: [0, 63, 64, 99], two: [1]})

    live = live_files(table.refresh())
    vectors = {file.path: file.deletes[0] for file in live.files}
    assert {vector.path for vector in vectors.values()} == {puffin}
    assert {vector.kind for vector in vectors.values()} == {DeleteKind.VECTOR}
    assert (vectors[one].rows, vectors[two].rows) == (4, 1)
    deleted = deleted_positions(table.io, live.files)
    assert {path: len(found) for path, found in deleted.items()} == {one: 4, two: 1}
    assert list(deleted[one].words) == [1 | 1 << 63, 1 | 1 << 35]
    assert table_numbers(table).delete_files == 2


def test_a_merge_drops_the_vectors_of_its_files_and_no_others(table: Table) -> None:
    """Vectors of one Puffin file, in one manifest: that of the other data file stays."""
    one, two, three = add(table, rows(0, 3), rows(3, 3), rows(6, 3))
    puffin = delete_positions(table, {one: [0], two: [1], three: [2]})
    before = lineage(table)

    replaced = replace_files(table, [merged(table, plan(table, [one, two]))])

    assert replaced.committed == ("task",)
    assert lineage(table) == before
    (left,) = live_files(table.refresh()).files[-1].deletes
    assert (left.path, left.referenced) == (puffin, three)
    assert len(delete_entries(table)) == 1
    summary = present(present(table.current_snapshot()).summary).additional_properties
    assert summary["removed-dvs"] == "2"
    assert summary["removed-position-deletes"] == "2"


def test_a_vector_replaces_the_position_deletes_of_its_file(catalog: Catalog) -> None:
    """A table that was upgraded: the vector has the earlier deletes in it, too."""
    table = new_table(catalog, version=2)
    table.append(pa.table({"id": [1, 2, 3], "part": ["a"] * 3, "value": [1, 2, 3]}))
    table.append(pa.table({"id": [4, 5], "part": ["a"] * 2, "value": [4, 5]}))
    one, two = (file.path for file in reversed(live_files(table).files))
    add_position_deletes(table, {one: [0], two: [0]}, scope=Scope.PARTITION)
    table = upgrade(catalog, table)
    delete_positions(table, {one: [0, 1]})

    kinds = {file.path: [one.kind for one in file.deletes] for file in live_files(table).files}
    assert kinds == {one: [DeleteKind.VECTOR], two: [DeleteKind.POSITION]}
    before = lineage(table)
    assert [found.row[0] for found in before] == [3, 5]
    replaced = replace_files(table, [merged(table, plan(table))])
    assert replaced.committed == ("task",)
    assert lineage(table) == before
    assert delete_entries(table) == []


def test_a_vector_whose_data_file_is_gone_is_dropped(table: Table) -> None:
    """Another writer has left it; any merge of the table removes it."""
    one, two = add(table, rows(0, 2), rows(2, 2))
    (other,) = add(table, rows(4, 2))
    delete_positions(table, {other: [0]})
    replacement = merged(table, plan(table, [other]))
    group = plan(table, [one, two])
    # As a writer does that forgets the vector.
    commit(table, [], without={(other, None)})
    assert len(delete_entries(table)) == 1
    assert replacement.rows_deleted == 1

    replace_files(table, [merged(table, group)])

    assert delete_entries(table) == []


def test_a_later_vector_is_a_conflict(table: Table) -> None:
    """On an input, and not on another file; also when it replaces a vector of the plan."""
    one, two = add(table, rows(0, 3), rows(3, 3))
    (three,) = add(table, rows(6, 3))
    delete_positions(table, {one: [0]})
    first, second = merged(table, plan(table, [one]), "1"), merged(table, plan(table, [two]), "2")
    puffin = delete_positions(table, {one: [1], three: [1]})
    before = lineage(table)

    replaced = replace_files(table, [first, second])

    assert replaced.committed == ("2",)
    assert replaced.conflicts == {"1": f"rows of {one} were deleted later, by {puffin}"}
    assert lineage(table) == before


@pytest.mark.parametrize("first_vector", [0, 1, 2])
def test_each_later_vector_of_a_puffin_file_is_a_conflict(table: Table, first_vector: int) -> None:
    """One of them is of no input; in whatever order the file has them."""
    one, two = add(table, rows(0, 3), rows(3, 3))
    (three,) = add(table, rows(6, 3))
    each = [merged(table, plan(table, [one]), "1"), merged(table, plan(table, [two]), "2")]
    deleted = [one, two, three]
    turned = deleted[first_vector:] + deleted[:first_vector]
    puffin = delete_positions(table, {path: [1] for path in turned})
    before = lineage(table)

    replaced = replace_files(table, each)

    assert replaced.conflicts == {
        "1": f"rows of {one} were deleted later, by {puffin}",
        "2": f"rows of {two} were deleted later, by {puffin}",
    }
    assert lineage(table) == before


def test_an_append_between_two_attempts_gets_other_row_ids(table: Table) -> None:
    """The second attempt counts from the ids of the table as it is then."""
    one, two = add(table, rows(0, 2), rows(2, 2))
    replacement = merged(table, plan(table, [one, two]))
    before = lineage(table)
    same = load_table(table.catalog, "lake.three")
    calls = []

    def append_once() -> None:
        calls.append(True)
        if len(calls) == 1:
            add(same, rows(4, 3))

    replaced = replace_files(table, [replacement], before_commit=append_once)

    assert (replaced.committed, len(calls)) == (("task",), 2)
    added = [Lineage(4 + n, 2, row) for n, row in enumerate(rows(4, 3))]
    assert lineage(table) == [*before, *added]
    head = present(table.refresh().current_snapshot())
    assert (head.first_row_id, head.added_rows, next_row_id(table)) == (7, 4, 11)
    numbers = [one.sequence_number for one in snapshot_manifests(table.io, head)]
    assert max(numbers) == head.sequence_number == 3


def test_rows_of_an_upgraded_table_get_ids_with_the_merge(catalog: Catalog) -> None:
    """All manifests without row ids get some: those of the merged rows and of the others."""
    table = new_table(catalog, version=2)
    for first in (0, 2, 4):
        table.append(
            pa.Table.from_pylist(
                [dict(zip(("id", "part", "value"), row, strict=True)) for row in rows(first, 2)]
            )
        )
    table = upgrade(catalog, table)
    assert [found[:2] for found in lineage(table)] == [(None, None)] * 6
    third, second, first_file = (file.path for file in live_files(table).files)

    replace_files(table, [merged(table, plan(table, [first_file, second]))])

    after = lineage(table)
    assert sorted(present(found.row_id) for found in after) == list(range(6))
    assert next_row_id(table) == 6
    assert third in paths(table)
    # They keep them.
    add(table, rows(6, 1))
    assert lineage(table)[:-1] == after


def test_ids_that_come_after_the_merge_are_a_conflict(catalog: Catalog) -> None:
    """Another writer's commit has given the input's rows ids, which the output does not have."""
    table = new_table(catalog, version=2)
    table.append(pa.table({"id": [1, 2], "part": ["a"] * 2, "value": [1, 2]}))
    table = upgrade(catalog, table)
    replacement = merged(table, plan(table))
    add(table, rows(3, 1))
    before = lineage(table)

    replaced = replace_files(table, [replacement])

    assert replaced.committed == ()
    assert "has the id 1, and had None when it was merged" in replaced.conflicts["task"]
    assert lineage(table) == before
    assert replace_files(table, [merged(table, plan(table), "again")]).committed == ("again",)
    assert lineage(table) == before


def test_outputs_without_the_lineage_are_refused(table: Table) -> None:
    """A worker that knows nothing of format 3 has written them."""
    (one,) = add(table, rows(0, 2))
    group = plan(table, [one])
    without = replace(merged(table, group), outputs=(data_file(table, rows(0, 2)).file_path,))
    replaced = replace_files(table, [without])
    assert "lacks the columns of the row lineage of format 3" in replaced.wrong["task"]


def test_an_upgrade_between_merge_and_commit_is_a_conflict(catalog: Catalog) -> None:
    """The outputs have no row ids: the merge was one of format 2."""
    table = new_table(catalog, version=2)
    table.append(pa.table({"id": [1, 2], "part": ["a"] * 2, "value": [1, 2]}))
    group = plan(table)
    without = replace(merged(table, group), outputs=(data_file(table, rows(0, 2)).file_path,))
    table = upgrade(catalog, table)
    replaced = replace_files(table, [without])
    assert "row ids that format 3 has brought" in replaced.conflicts["task"]


def test_values_are_deleted_in_format_3_as_before(catalog: Catalog) -> None:
    """An equality delete stays while an older file is there, and goes with it."""
    table = new_table(catalog, spec=BY_PART)
    (one,) = add(table, rows(0, 3))
    (two,) = add(table, rows(3, 3, "b"))
    delete_values(table, [10, 40], "a")
    before = lineage(table)
    assert [found.row[0] for found in before] == [0, 2, 3, 4, 5]

    replace_files(table, [merged(table, plan(table, [two]), "b")])
    assert len(delete_entries(table)) == 1
    replace_files(table, [merged(table, plan(table, [one]), "a")])

    assert lineage(table) == before
    assert delete_entries(table) == []


@pytest.mark.parametrize("broken", ["checksum", "length", "count", "gone"])
def test_a_broken_vector_is_named(table: Table, broken: str) -> None:
    """Its rows are neither lost nor back."""
    (one,) = add(table, rows(0, 10))
    puffin = Path(delete_positions(table, {one: [1, 2]}))
    (file,) = live_files(table.refresh()).files
    (vector,) = file.deletes
    content = bytearray(puffin.read_bytes())
    place = present(vector.offset)
    match broken:
        case "checksum":
            content[place + vector.size - 6] ^= 1
        case "length":
            content[place] = 7
        case "count":
            object.__setattr__(vector, "rows", 3)
    puffin.write_bytes(content)
    if broken == "gone":
        puffin.unlink()
    with pytest.raises(LakeError, match=puffin.name):
        deleted_positions(table.io, [file])


def test_encrypted_tables_are_refused_by_name(catalog: Catalog, table: Table) -> None:
    """By their property, by the keys in their metadata, and by those of their files."""
    file = data_file(table, rows(0, 1))
    file[12] = b"a key"
    commit(table, [file])
    with pytest.raises(UnsupportedTable, match="key_metadata"):
        live_files(table)

    location = Path(table.metadata_location)
    whole = json.loads(location.read_text())
    location.write_text(json.dumps(whole | {"encryption-keys": [{"key-id": "1"}]}))
    with pytest.raises(UnsupportedTable, match=r"lake\.three: it has encryption-keys"):
        require_supported_table(table)
    location.write_text(json.dumps(whole))
    require_supported_table(table)
    with table.transaction() as transaction:
        transaction.set_properties({"encryption.key-id": "key"})
    with pytest.raises(UnsupportedTable, match=r"property encryption\.key-id"):
        require_supported_table(table)


def test_what_cannot_survive_is_refused_by_name(catalog: Catalog) -> None:
    """What only columns may have, a reserved name, and what is unknown to pyiceberg."""
    inner = StructType(NestedField(10, "shape", GeometryType()))
    shapes = Schema(*SCHEMA.fields, NestedField(9, "s", inner))
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.shapes", shapes, properties={"format-version": "3"})
    with pytest.raises(UnsupportedTable, match="column s.shape: type geometry does not survive"):
        require_supported_table(table)

    reserved = Schema(*SCHEMA.fields, NestedField(9, "_ROW_ID", LongType()))
    table = catalog.create_table("lake.reserved", reserved, properties={"format-version": "3"})
    with pytest.raises(UnsupportedTable, match="column _ROW_ID: format 3 reserves its name"):
        require_supported_table(table)

    location = Path(table.metadata_location)
    location.write_text(location.read_text().replace('"long"', '"variant"'))
    with pytest.raises(UnsupportedTable, match=r"lake\.reserved: .*variant"):
        load_table(catalog, "lake.reserved")

    nanoseconds = '"timestamp_ns","initial-default":"2017-11-16T22:31:08.123456789"'
    location.write_text(location.read_text().replace('"variant"', nanoseconds))
    with pytest.raises(UnsupportedTable, match=r"lake\.reserved: .*timestamp_ns not supported"):
        load_table(catalog, "lake.reserved")
