"""Delete files that nobody needs any more go with the files that they were for."""

import json

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from arctic_orchestration.lake.manifest_fields import referenced_of
from arctic_orchestration.lake.manifests import read_entries
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.reference_merge import (
    BY_ORIGIN,
    add,
    delete_paths,
    merge,
    new_table,
    plan,
    rows_by_the_rules,
    rows_of,
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog, spec=BY_ORIGIN)


@pytest.fixture
def files(table: Table) -> list[str]:
    """Three files of JFK with two rows each, and one of LGA."""
    jfk = [add(table, (number, "JFK"), (number + 10, "JFK")) for number in range(3)]
    return [*jfk, add(table, (50, "LGA"), (51, "LGA"))]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_delete_stays_with_a_file_that_it_names_in_another_form(
    table: Table, files: list[str], scope: Scope
) -> None:
    """It names files 0 and 1, the latter as a URL; only file 0 is merged."""
    add_position_deletes(table, {files[0]: [1]}, scope=scope)
    url = add_position_deletes(table, {files[1]: [0]}, scope=scope, form="file://".__add__)
    merged = merge(table, plan(table, files[:1]))
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert delete_paths(table) == [one.path for one in url]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_delete_that_names_a_replaced_file_in_another_form_goes_with_it(
    table: Table, files: list[str], scope: Scope
) -> None:
    """It was planned with, and no other file has that path; of that, live files are asked."""
    add_position_deletes(table, {files[0]: [1]}, scope=scope, form="file://".__add__)
    merged = merge(table, plan(table, files[:1]))
    assert merged.rows_deleted == 0
    before = rows_of(table)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert delete_paths(table) == []
    assert rows_of(table) == before


def test_deletes_of_replaced_files_are_applied_and_removed(table: Table, files: list[str]) -> None:
    """A position delete and an equality delete, both for the files that are merged."""
    add_position_deletes(table, {files[0]: [1], files[1]: [0]}, scope=Scope.PARTITION)
    add_equality_deletes(table, pa.table({"id": [2]}), ["id"], partition=("JFK",))
    planned = table.current_snapshot()
    assert planned is not None
    merged = merge(table, plan(table, files[:3]))
    assert merged.rows_deleted == 3

    assert replace_files(table, [merged]).committed == ("task-1",)

    expected = [(0, "JFK"), (11, "JFK"), (12, "JFK"), (50, "LGA"), (51, "LGA")]
    assert rows_of(table) == expected == rows_by_the_rules(table)
    assert delete_paths(table) == []
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    found = head.summary.additional_properties
    assert {key: found[key] for key in found if "delete-files" in key or "-deletes" in key} == {
        "removed-delete-files": "2",
        "removed-position-delete-files": "1",
        "removed-equality-delete-files": "1",
        "removed-position-deletes": "2",
        "removed-equality-deletes": "1",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    assert (found["added-records"], found["deleted-records"]) == ("3", "6")


@pytest.mark.parametrize("scope", [Scope.PARTITION, Scope.PARTITION_WITHOUT_BOUNDS])
def test_a_position_delete_that_a_live_file_needs_stays(
    table: Table, files: list[str], scope: Scope
) -> None:
    """It names files 0 and 1; only file 0 is replaced. When file 1 goes too, the delete goes."""
    (delete,) = add_position_deletes(table, {files[0]: [1], files[1]: [0]}, scope=scope)
    before = rows_of(table)
    replace_files(table, [merge(table, plan(table, files[:1]))])
    assert delete_paths(table) == [delete.path]
    assert rows_of(table) == before
    replace_files(table, [merge(table, plan(table, files[1:2]), name="task-2")])
    assert delete_paths(table) == []
    assert rows_of(table) == before


def test_an_equality_delete_that_an_older_file_needs_stays(table: Table, files: list[str]) -> None:
    """Files 0 and 1 are merged, file 2 is older than the delete; a younger file does not count."""
    (delete,) = add_equality_deletes(table, pa.table({"id": [0, 2]}), ["id"], partition=("JFK",))
    young = add(table, (0, "JFK"))
    before = rows_by_the_rules(table)
    replace_files(table, [merge(table, plan(table, files[:2]))])
    assert delete_paths(table) == [delete.path]
    assert rows_by_the_rules(table) == before
    replace_files(table, [merge(table, plan(table, files[2:3]), name="task-2")])
    assert delete_paths(table) == []
    assert (0, "JFK") in rows_by_the_rules(table)
    assert young in {file.file.file_path for file in table.scan().plan_files()}
    assert rows_by_the_rules(table) == before


def test_an_equality_delete_for_all_partitions_stays_as_long_as_one_needs_it(
    catalog: Catalog,
) -> None:
    """Written by a spec without partitions, before the table got some."""
    table = new_table(catalog, "lake.evolved", spec=PartitionSpec())
    with table.update_spec() as update:
        update.add_identity("origin")
    jfk = [add(table, (number, "JFK")) for number in range(2)]
    lga = add(table, (1, "LGA"))
    (delete,) = add_equality_deletes(table, pa.table({"id": [1]}), ["id"])
    replace_files(table, [merge(table, plan(table, jfk))])
    assert delete_paths(table) == [delete.path]
    assert rows_by_the_rules(table) == [(0, "JFK")]
    replace_files(table, [merge(table, plan(table, [lga]), name="task-2")])
    assert delete_paths(table) == []
    assert rows_by_the_rules(table) == [(0, "JFK")]


def test_an_output_of_an_older_plan_may_still_need_the_delete(
    table: Table, files: list[str]
) -> None:
    """Two merges in one commit: the older one was planned before the equality delete."""
    old = merge(table, plan(table, files[:1]), name="old")
    (delete,) = add_equality_deletes(table, pa.table({"id": [0, 1]}), ["id"], partition=("JFK",))
    new = merge(table, plan(table, files[1:3]), name="new")
    before = rows_by_the_rules(table)
    assert replace_files(table, [old, new]).committed == ("old", "new")
    assert delete_paths(table) == [delete.path]
    assert rows_by_the_rules(table) == before
    assert (0, "JFK") not in before


def test_deletes_that_came_after_the_plan_stay(table: Table, files: list[str]) -> None:
    """They may be for the outputs."""
    merged = merge(table, plan(table, files[:3]))
    (delete,) = add_equality_deletes(table, pa.table({"id": [0]}), ["id"], partition=("JFK",))
    replace_files(table, [merged])
    assert delete_paths(table) == [delete.path]
    assert (0, "JFK") not in rows_by_the_rules(table)


def test_all_rows_deleted_leaves_no_file(table: Table, files: list[str]) -> None:
    """No outputs at all, and the deletes go as well."""
    add_position_deletes(table, {files[3]: [0, 1]})
    merged = merge(table, plan(table, files[3:]))
    assert (merged.outputs, merged.rows_deleted) == ((), 2)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert delete_paths(table) == []
    assert rows_of(table) == sorted((number, "JFK") for number in (0, 1, 2, 10, 11, 12))


def test_deletes_that_stay_in_a_manifest_keep_all_that_they_had(
    table: Table, files: list[str]
) -> None:
    """Two deletes in one manifest, one of them goes: the other one is as it was."""
    written = add_position_deletes(table, {files[0]: [1], files[3]: [0]}, scope=Scope.REFERENCED)
    by_value = add_equality_deletes(
        table, pa.table({"id": [51], "origin": ["LGA"]}), ["id", "origin"], partition=("LGA",)
    )
    replace_files(table, [merge(table, plan(table, files[:3]))])
    left = {
        entry.data_file.file_path: (
            referenced_of(entry.data_file),
            entry.data_file.equality_ids,
        )
        for manifest in table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
        if manifest.content == ManifestContent.DELETES
        for entry in read_entries(table.io, manifest)
    }
    stays = next(one for one in written if one.partition == ("LGA",))
    assert left == {stays.path: (files[3], None), by_value[0].path: (None, [1, 2])}
    for manifest in table.current_snapshot().manifests(table.io):  # type: ignore[union-attr]
        if manifest.content == ManifestContent.DELETES:
            assert header_of(table, manifest.manifest_path) == ("deletes", "int")


def header_of(table: Table, path: str) -> tuple[str, str]:
    """The content that a manifest says it has, and the type of ids of equality deletes in it."""
    with table.io.new_input(path).open() as stream:
        text = stream.read(9000).decode("latin-1")
    schema, _ = json.JSONDecoder().raw_decode(text[text.index('{"type": "record"') :])
    (file,) = [one["type"] for one in schema["fields"] if one["name"] == "data_file"]
    (ids,) = [one for one in file["fields"] if one["name"] == "equality_ids"]
    return "deletes" if "deletes" in text.split("content", 1)[1][:10] else "data", ids["type"][1][
        "items"
    ]
