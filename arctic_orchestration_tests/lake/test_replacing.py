"""Merged files in the place of those that they were merged from: readers see no difference."""

import json

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform

from arctic_orchestration.errors import InvalidInput, UnsupportedTable
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.replacing.replace import TASKS, replace_files
from arctic_orchestration_tests.lake.reference_merge import (
    BY_ORIGIN,
    add,
    arrow,
    merge,
    new_table,
    paths,
    plan,
    renamed,
    rows_in_files,
    rows_of,
    sequence_numbers,
)


def summary(table: Table) -> dict[str, str]:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {
        "operation": snapshot.summary.operation.value,
        **snapshot.summary.additional_properties,
    }


def manifests(table: Table) -> dict[str, tuple[int, int, int]]:
    """Added, existing and deleted files of each manifest of the head."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return {
        one.manifest_path: (
            one.added_files_count or 0,
            one.existing_files_count or 0,
            one.deleted_files_count or 0,
        )
        for one in snapshot.manifests(table.io)
    }


def test_readers_see_the_same_rows_in_fewer_files(catalog: Catalog) -> None:
    """Twelve files become two, by one commit of two tasks; an older snapshot stays as it is."""
    table = new_table(catalog)
    files = [add(table, (number, "JFK"), (number + 100, "LGA")) for number in range(12)]
    before = rows_of(table)
    planned = table.current_snapshot()
    assert planned is not None
    first = merge(table, plan(table, files[:6]), name="task-1")
    second = merge(table, plan(table, files[6:]), name="task-2")

    done = replace_files(table, [first, second], properties={"arctic.note": "by hand"})

    assert done.committed == ("task-1", "task-2")
    assert (done.conflicts, done.wrong, done.already) == ({}, {}, {})
    assert paths(table) == sorted(first.outputs + second.outputs)
    assert rows_of(table) == before == rows_in_files(table)
    assert rows_of(table, planned.snapshot_id) == before
    assert table.current_snapshot().snapshot_id == done.snapshot_id  # type: ignore[union-attr]
    assert summary(table)[TASKS] == "task-1,task-2"
    assert summary(table)["arctic.note"] == "by hand"


def test_the_summary_counts_what_changed(catalog: Catalog) -> None:
    """Three files of two rows become one of six; a fourth one stays."""
    table = new_table(catalog)
    files = [add(table, (number, "JFK"), (number + 10, "JFK")) for number in range(4)]
    sizes = {path: len(table.io.new_input(path)) for path in files}
    merged = merge(table, plan(table, files[:3]))
    size = len(table.io.new_input(merged.outputs[0]))

    replace_files(table, [merged])

    found = summary(table)
    assert found["operation"] == "replace"
    assert {key: int(found[key]) for key in found if key.startswith(("added", "deleted"))} == {
        "added-data-files": 1,
        "added-records": 6,
        "added-files-size": size,
        "deleted-data-files": 3,
        "deleted-records": 6,
    }
    assert int(found["removed-files-size"]) == sum(sizes[path] for path in files[:3])
    assert found["total-data-files"] == "2"
    assert found["total-records"] == "8"
    assert int(found["total-files-size"]) == size + sizes[files[3]]


def test_outputs_are_as_old_as_the_plan_and_the_rest_as_it_was(catalog: Catalog) -> None:
    """Files appended after the plan keep their numbers, their manifest too; the output has 3."""
    table = new_table(catalog)
    files = [add(table, (number, "JFK")) for number in range(3)]
    merged = merge(table, plan(table, files[:2]))
    late = add(table, (9, "JFK"))
    kept = set(manifests(table)) - set(list(manifests(table))[-2:])

    replace_files(table, [merged])

    assert sequence_numbers(table) == {merged.outputs[0]: 3, files[2]: 3, late: 4}
    # The third file and the late one, each in the manifest of its append; the output in one of its
    # own; and the two that are gone, in one.
    assert sorted(manifests(table).values()) == [(0, 0, 2), (1, 0, 0), (1, 0, 0), (1, 0, 0)]
    assert kept <= set(manifests(table))


def test_manifests_with_nothing_but_the_past_are_dropped(catalog: Catalog) -> None:
    """Ten merges, one after the other: the list of manifests does not grow with them."""
    table = new_table(catalog)
    add(table, (0, "JFK"))
    for number in range(10):
        add(table, (number + 1, "JFK"))
        done = replace_files(table, [merge(table, plan(table), name=f"task-{number}")])
        assert done.committed == (f"task-{number}",)
    assert sorted(manifests(table).values()) == [(0, 0, 2), (1, 0, 0)]
    assert rows_of(table) == [(number, "JFK") for number in range(11)]


def test_what_stays_of_a_manifest_keeps_its_numbers(catalog: Catalog) -> None:
    """One manifest of four files in four partitions; one partition's file is replaced."""
    table = new_table(catalog, spec=BY_ORIGIN)
    add(table, (0, "JFK"))
    table.append(arrow([(1, "JFK"), (2, "LGA"), (3, "EWR"), (4, "BOS")]))
    appended = table.current_snapshot()
    assert appended is not None
    jfk = [file.file.file_path for file in table.scan("origin = 'JFK'").plan_files()]
    replace_files(table, [merge(table, plan(table, jfk))])

    entries = [
        (entry.data_file.partition[0], entry.status, entry.snapshot_id, entry.sequence_number)
        for manifest in table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    existing, added = ManifestEntryStatus.EXISTING, ManifestEntryStatus.ADDED
    head = table.current_snapshot()
    assert head is not None
    assert sorted(entries, key=lambda one: one[0]) == [
        ("BOS", existing, appended.snapshot_id, 2),
        ("EWR", existing, appended.snapshot_id, 2),
        ("JFK", added, head.snapshot_id, 2),
        ("LGA", existing, appended.snapshot_id, 2),
    ]
    assert rows_of(table) == [(0, "JFK"), (1, "JFK"), (2, "LGA"), (3, "EWR"), (4, "BOS")]


def test_each_partition_spec_gets_a_manifest_of_its_own(catalog: Catalog) -> None:
    """The spec was changed; files of the old and the new one are replaced in one commit."""
    table = new_table(catalog, spec=BY_ORIGIN)
    old = [add(table, (number, "JFK")) for number in range(2)]
    with table.update_spec() as update:
        update.remove_field("origin")
        update.add_field("id", BucketTransform(2), "bucket")
    new = [add(table, (7, "LGA")) for _ in range(2)]
    merged = [
        merge(table, plan(table, old), name="old"),
        merge(table, plan(table, new), name="new"),
    ]
    before = rows_of(table)

    assert replace_files(table, merged).committed == ("old", "new")

    added = {
        one.partition_spec_id: one.added_files_count
        for one in table.refresh().current_snapshot().manifests(table.io)  # type: ignore[union-attr]
        if one.added_files_count
    }
    assert added == {0: 1, 1: 1}
    assert rows_of(table) == before
    assert rows_of(table.refresh()) == rows_in_files(table)
    # Both specs still leave out files by their partitions.
    assert len(list(table.scan("origin = 'nowhere'").plan_files())) == 0


def test_a_partition_whose_column_was_dropped_can_be_merged(catalog: Catalog) -> None:
    """Files of an old spec, of which the source column is gone."""
    table = new_table(catalog, spec=BY_ORIGIN)
    old = [add(table, (number, "JFK")) for number in range(3)]
    merged = merge(table, plan(table, old[:2]))
    with table.update_spec() as update:
        update.remove_field("origin")
    with table.update_schema() as schema:
        schema.delete_column("origin")

    assert replace_files(table, [merged]).committed == ("task-1",)

    assert table.refresh().scan().to_arrow().sort_by("id").to_pydict() == {"id": [0, 1, 2]}


def test_tables_of_format_1_are_merged(catalog: Catalog) -> None:
    """They have no sequence numbers, before and after."""
    table = new_table(catalog, properties={"format-version": "1"})
    files = [add(table, (number, "JFK")) for number in range(3)]
    merged = merge(table, plan(table, files[:2]))

    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == [(0, "JFK"), (1, "JFK"), (2, "JFK")] == rows_in_files(table)
    assert table.metadata.format_version == 1


def test_a_table_may_be_upgraded_between_plan_and_commit(catalog: Catalog) -> None:
    """Planned in format 1, committed in format 2: files from before it have the number 0."""
    table = new_table(catalog, properties={"format-version": "1"})
    files = [add(table, (number, "JFK")) for number in range(3)]
    merged = merge(table, plan(table, files[:2]))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    late = add(table, (9, "JFK"))

    assert replace_files(table, [merged]).committed == ("task-1",)

    assert sequence_numbers(table) == {merged.outputs[0]: 0, files[2]: 0, late: 1}
    assert rows_of(table) == [(0, "JFK"), (1, "JFK"), (2, "JFK"), (9, "JFK")]
    assert replace_files(table, [merge(table, plan(table), name="task-2")]).committed == ("task-2",)
    assert rows_of(table) == [(0, "JFK"), (1, "JFK"), (2, "JFK"), (9, "JFK")]


def test_format_4_is_refused(catalog: Catalog) -> None:
    """It is unknown; nothing is tried."""
    table = new_table(catalog)
    merged = merge(table, plan_of_two(table))
    table.metadata = table.metadata.model_copy(update={"format_version": 4})
    with pytest.raises(UnsupportedTable, match="got format version 4, expected 1, 2 or 3"):
        replace_files(table, [merged])


def plan_of_two(table: Table) -> FileGroup:
    add(table, (1, "JFK"))
    add(table, (2, "JFK"))
    return plan(table)


def test_nothing_requested_is_nothing_done(catalog: Catalog) -> None:
    """No replacement, no snapshot."""
    table = new_table(catalog)
    add(table, (1, "JFK"))
    done = replace_files(table, [])
    assert (done.snapshot_id, done.committed) == (None, ())
    assert len(table.refresh().snapshots()) == 1


def test_ids_must_distinguish_replacements(catalog: Catalog) -> None:
    """Twice the same id, or one that the summary could not hold, is refused by name."""
    table = new_table(catalog)
    merged = merge(table, plan_of_two(table))
    with pytest.raises(InvalidInput, match=r"replacements\[1\].id: got 'task-1'"):
        replace_files(table, [merged, merged])
    with pytest.raises(InvalidInput, match=r"replacements\[0\].id: got 'a,b'"):
        replace_files(table, [renamed(merged, "a,b")])


def test_files_are_found_by_partition_and_bounds_afterwards(catalog: Catalog) -> None:
    """Statistics are there: a filter leaves out the outputs that cannot match."""
    table = new_table(catalog)
    files = [add(table, (number, "JFK")) for number in range(4)]
    merged = merge(table, plan(table, files), outputs=2)
    replace_files(table, [merged])
    assert len(merged.outputs) == 2
    assert len(list(table.scan("id = 3").plan_files())) == 1
    assert rows_of(table) == [(number, "JFK") for number in range(4)]


def test_manifests_are_as_other_readers_want_them(catalog: Catalog) -> None:
    """Ids of equality deletes are a list of ints in every manifest, as the specification says."""
    table = new_table(catalog)
    merged = merge(table, plan_of_two(table))
    replace_files(table, [merged])
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        assert manifest.content == ManifestContent.DATA
        with table.io.new_input(manifest.manifest_path).open() as stream:
            header = stream.read(8000)
        start = header.index(b'{"type": "record"')
        schema, _ = json.JSONDecoder().raw_decode(header[start:].decode("latin-1"))
        (data_file,) = [one["type"] for one in schema["fields"] if one["name"] == "data_file"]
        (ids,) = [one for one in data_file["fields"] if one["name"] == "equality_ids"]
        assert ids["type"][1]["items"] == "int"


@pytest.mark.parametrize(
    "key", ["commit.manifest.target-size-bytes", "write.summary.partition-limit"]
)
def test_a_property_that_is_no_number_is_named(catalog: Catalog, key: str) -> None:
    """Nothing is committed; once it is corrected, the same replacement is."""
    table = new_table(catalog)
    merged = merge(table, plan(table, [add(table, (number, "JFK")) for number in range(2)]))
    with table.transaction() as change:
        change.set_properties({key: "8MB"})
    with pytest.raises(InvalidInput) as refused:
        replace_files(table, [merged])
    assert str(refused.value) == f"{key}: got '8MB', expected a whole number"
    assert len(table.refresh().snapshots()) == 2
    with table.transaction() as change:
        change.remove_properties(key)
    assert replace_files(table, [merged]).committed == ("task-1",)
