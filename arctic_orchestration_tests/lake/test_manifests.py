"""What manifests tell of a snapshot's files: manually, and beside pyiceberg and Iceberg's Rust."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

from arctic_orchestration.errors import LakeError, NotFound, UnsupportedTable
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.delete_index import DeleteIndex
from arctic_orchestration.lake.file_groups import DeleteKind, LiveFile
from arctic_orchestration.lake.manifests import (
    LiveFiles,
    live_entries,
    live_files,
    read_entries,
    table_numbers,
)
from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined
from arctic_orchestration_tests.present import present

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "origin", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "delay", DoubleType()),
)
BY_ORIGIN = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))
ONE = pa.table({"id": [1]})


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table without partitions."""
    return ensure_table(catalog, "lake.flights", SCHEMA)


@pytest.fixture
def parted(catalog: Catalog) -> Table:
    """A table by origin."""
    return ensure_table(catalog, "lake.by_origin", SCHEMA, partition_spec=BY_ORIGIN)


def by_path(live: LiveFiles) -> dict[str, LiveFile]:
    return {file.path: file for file in live.files}


def deletes_of(table: Table, snapshot_id: int | None = None) -> dict[str, list[str]]:
    """The paths of the deletes of each file."""
    return {
        file.path: [delete.path for delete in file.deletes]
        for file in live_files(table, snapshot_id).files
    }


def planned(table: Table) -> dict[str, list[str]]:
    """The same by pyiceberg's own planner, which refuses equality deletes."""
    return {
        task.file.file_path: sorted(delete.file_path for delete in task.delete_files)
        for task in table.refresh().scan().plan_files()
    }


def test_a_table_without_a_snapshot_has_no_files(table: Table) -> None:
    assert live_files(table) == LiveFiles(snapshot_id=None, sequence_number=0, files=[])
    numbers = table_numbers(table)
    assert (numbers.files, numbers.bytes, numbers.read_amplification) == (0, 0, 1.0)


def test_files_have_what_their_entries_say(parted: Table) -> None:
    """Paths, sizes and rows are as committed; the sequence number is the snapshot's."""
    commit_files(parted, [imagined("/a", ["JFK"], size=70, rows=7, sort_order_id=3)])
    commit_files(parted, [imagined("/b", [None], size=50, rows=5)])
    live = live_files(parted)
    assert (live.snapshot_id, live.sequence_number) == (
        present(parted.current_snapshot()).snapshot_id,
        2,
    )
    assert by_path(live) == {
        "/a": LiveFile(
            path="/a",
            size=70,
            rows=7,
            sequence_number=1,
            spec_id=0,
            partition=("JFK",),
            sort_order_id=3,
        ),
        "/b": LiveFile(path="/b", size=50, rows=5, sequence_number=2, spec_id=0, partition=(None,)),
    }


def test_a_file_keeps_its_sequence_number_in_a_rewritten_manifest(parted: Table) -> None:
    """An overwrite writes the manifest again; what stays in it is as old as it was."""
    stays, goes = imagined("/stays", ["JFK"]), imagined("/goes", ["JFK"])
    commit_files(parted, [stays, goes])
    commit_files(parted, [imagined("/new", ["JFK"])], [goes])
    found = by_path(live_files(parted))
    assert {path: file.sequence_number for path, file in found.items()} == {"/stays": 1, "/new": 2}


def test_an_older_snapshot_has_its_own_files_and_deletes(table: Table) -> None:
    commit_files(table, [imagined("/a"), imagined("/b")])
    first = present(table.current_snapshot()).snapshot_id
    [delete] = add_position_deletes(table, {"/a": [0]})
    commit_files(table, [], [imagined("/b")])
    assert deletes_of(table, first) == {"/a": [], "/b": []}
    assert deletes_of(table, delete.snapshot_id) == {"/a": [delete.path], "/b": []}
    assert deletes_of(table) == {"/a": [delete.path]}


def test_a_branch_has_its_own_files(table: Table) -> None:
    commit_files(table, [imagined("/a")])
    table.manage_snapshots().create_branch(
        present(table.current_snapshot()).snapshot_id, "audit"
    ).commit()
    commit_files(table, [imagined("/b")], branch="audit")
    add_equality_deletes(table, ONE, ["id"], branch="audit")
    audit = live_files(table, present(table.snapshot_by_name("audit")).snapshot_id)
    assert sorted(by_path(audit)) == ["/a", "/b"]
    assert all(len(file.deletes) == 1 for file in audit.files)
    assert deletes_of(table) == {"/a": []}


def test_position_deletes_are_for_files_that_are_not_younger(table: Table) -> None:
    """The delete has the sequence number 2, the files 1 and 3: it is for the first alone."""
    commit_files(table, [imagined("/1")])
    [delete] = add_position_deletes(table, {"/1": [4, 5]}, scope=Scope.PARTITION_WITHOUT_BOUNDS)
    commit_files(table, [imagined("/3")])
    assert deletes_of(table) == {"/1": [delete.path], "/3": []} == planned(table)
    [found] = by_path(live_files(table))["/1"].deletes
    assert (found.kind, found.rows, found.sequence_number) == (DeleteKind.POSITION, 2, 2)
    assert found.size == Path(delete.path).stat().st_size == delete.size


def test_a_delete_of_the_snapshot_that_adds_the_file(table: Table) -> None:
    """With equal sequence numbers a position delete applies and an equality delete does not.

    The position delete has the number 2, the equality delete 3; the file is imagined with each.
    """
    commit_files(table, [imagined("/1")])
    [position] = add_position_deletes(table, {"/1": [0]}, scope=Scope.PARTITION_WITHOUT_BOUNDS)
    [equality] = add_equality_deletes(table, ONE, ["id"])
    found = {}
    for number in (1, 2, 3):
        index = _index(table)
        found[number] = [delete.path for delete in index.of("/other", number, (0, ()))]
    assert found == {
        1: [position.path, equality.path],
        2: [position.path, equality.path],
        3: [],
    }
    assert equality.sequence_number == 3
    assert position.sequence_number == 2


def _index(table: Table) -> DeleteIndex:
    index = DeleteIndex(frozenset({0}))
    for manifest in present(table.current_snapshot()).manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            for entry in read_entries(table.io, manifest):
                index.add(entry)
    return index


def test_equality_deletes_are_for_older_files_only(table: Table) -> None:
    """The file of the next snapshot, which has the same values again, keeps its rows."""
    commit_files(table, [imagined("/1")])
    [delete] = add_equality_deletes(table, pa.table({"origin": ["x"], "id": [1]}), ["id", "origin"])
    commit_files(table, [imagined("/3")])
    assert deletes_of(table) == {"/1": [delete.path], "/3": []}
    [found] = by_path(live_files(table))["/1"].deletes
    assert (found.kind, found.equality_ids) == (DeleteKind.EQUALITY, (1, 2))


def test_deletes_stay_in_their_partition(parted: Table) -> None:
    """Of two partitions and the one of null, each has its own deletes."""
    commit_files(parted, [imagined(f"/{one}", [one]) for one in ("JFK", "EWR", None)])
    [jfk] = add_equality_deletes(parted, ONE, ["id"], partition=["JFK"])
    [null] = add_equality_deletes(parted, ONE, ["id"], partition=[None])
    [ewr] = add_position_deletes(parted, {"/EWR": [1]}, scope=Scope.PARTITION_WITHOUT_BOUNDS)
    assert deletes_of(parted) == {"/JFK": [jfk.path], "/EWR": [ewr.path], "/None": [null.path]}


def test_an_equality_delete_without_partitions_is_for_all_of_them(catalog: Catalog) -> None:
    """The table began without partitions: spec 0 has none, and reaches files of spec 1."""
    table = ensure_table(catalog, "lake.grown", SCHEMA)
    commit_files(table, [imagined("/old")])
    with table.update_spec() as update:
        update.add_identity("origin")
    commit_files(table, [imagined("/new", ["JFK"], spec_id=1)])
    [everywhere] = add_equality_deletes(table, ONE, ["id"])
    [jfk] = add_equality_deletes(table, ONE, ["id"], partition=["JFK"])
    # A position delete of spec 0 is for files of spec 0 only.
    [old] = add_position_deletes(table, {"/old": [0]}, scope=Scope.PARTITION_WITHOUT_BOUNDS)
    assert (everywhere.spec_id, jfk.spec_id, old.spec_id) == (0, 1, 0)
    assert deletes_of(table) == {
        "/old": [everywhere.path, old.path],
        "/new": [everywhere.path, jfk.path],
    }
    assert {file.path: file.spec_id for file in live_files(table).files} == {"/old": 0, "/new": 1}


def test_equal_values_of_another_spec_are_another_partition(parted: Table) -> None:
    """Bucket 3 of one spec has nothing to do with bucket 3 of another one."""
    with parted.update_spec() as update:
        update.remove_field("origin")
        update.add_field("id", BucketTransform(8), "of_id")
    with parted.update_spec() as update:
        update.remove_field("of_id")
        update.add_field("delay", IdentityTransform(), "of_delay")
    first, second = sorted(parted.specs())[1:]
    commit_files(parted, [imagined("/float", [3.0], spec_id=second)])
    [float_] = add_equality_deletes(parted, ONE, ["id"], partition=[3.0])
    with parted.update_spec() as update:
        update.remove_field("of_delay")
        update.add_field("id", BucketTransform(8), "of_id")
    assert parted.spec().spec_id == first
    commit_files(parted, [imagined("/bucket", [3], spec_id=first)])
    [bucket] = add_equality_deletes(parted, ONE, ["id"], partition=[3])
    assert deletes_of(parted) == {"/float": [float_.path], "/bucket": [bucket.path]}


def test_not_a_number_is_one_partition_and_minus_zero_another(catalog: Catalog) -> None:
    by_delay = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "delay"))
    table = ensure_table(catalog, "lake.by_delay", SCHEMA, partition_spec=by_delay)
    nan = float("nan")
    commit_files(table, [imagined(f"/{one}", [one]) for one in (nan, 0.0, -0.0)])
    [of_nan] = add_equality_deletes(table, ONE, ["id"], partition=[nan])
    [of_zero] = add_equality_deletes(table, ONE, ["id"], partition=[-0.0])
    assert deletes_of(table) == {"/nan": [of_nan.path], "/0.0": [], "/-0.0": [of_zero.path]}
    assert table_numbers(table).partitions == 3


@pytest.mark.parametrize("scope", [Scope.FILE, Scope.REFERENCED])
def test_a_delete_that_names_one_file_is_for_that_file_only(table: Table, scope: Scope) -> None:
    """By equal bounds, or by the field for it; pyiceberg does not know the field."""
    commit_files(table, [imagined("/a"), imagined("/b"), imagined("/c")])
    of_a, of_b = add_position_deletes(table, {"/a": [0], "/b": [0]}, scope=scope)
    assert deletes_of(table) == {"/a": [of_a.path], "/b": [of_b.path], "/c": []}
    if scope is Scope.FILE:
        assert deletes_of(table) == planned(table)


def test_bounds_leave_out_files_that_are_not_between_them(table: Table) -> None:
    commit_files(table, [imagined(f"/{name}") for name in "abcd"])
    [delete] = add_position_deletes(table, {"/b": [0], "/c": [1]}, scope=Scope.PARTITION)
    assert deletes_of(table) == {"/a": [], "/b": [delete.path], "/c": [delete.path], "/d": []}
    assert deletes_of(table) == planned(table)


def test_deletes_of_all_kinds_are_in_the_order_of_their_age(table: Table) -> None:
    commit_files(table, [imagined("/a")])
    written = [
        *add_position_deletes(table, {"/a": [0]}, scope=Scope.PARTITION_WITHOUT_BOUNDS),
        *add_equality_deletes(table, ONE, ["id"]),
        *add_position_deletes(table, {"/a": [1]}),
        *add_position_deletes(table, {"/a": [2]}, scope=Scope.PARTITION),
    ]
    assert deletes_of(table) == {"/a": [delete.path for delete in written]}
    numbers = table_numbers(table)
    # One data file and its four deletes, where one file would do.
    assert (numbers.delete_files, numbers.read_amplification) == (4, 5.0)


def test_a_delete_for_no_file_is_idle(table: Table) -> None:
    """Its data file was overwritten; pyiceberg left the delete in the table."""
    commit_files(table, [imagined("/a"), imagined("/b")])
    [of_a, of_b] = add_position_deletes(table, {"/a": [0], "/b": [0]})
    commit_files(table, [imagined("/c")], [imagined("/a")])
    live = live_files(table)
    assert {file.path for file in live.files} == {"/b", "/c"}
    assert [delete.path for delete in live.idle_deletes] == [of_a.path]
    assert table_numbers(table).delete_files == 2
    assert of_b.path not in {delete.path for delete in live.idle_deletes}


def test_a_table_of_format_1_has_the_sequence_number_0(catalog: Catalog) -> None:
    """Before and after it is raised to format 2, when its deletes begin."""
    table = ensure_table(catalog, "lake.old", SCHEMA, properties={"format-version": "1"})
    commit_files(table, [imagined("/a")])
    commit_files(table, [imagined("/b")])
    assert {file.sequence_number for file in live_files(table).files} == {0}
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    [delete] = add_equality_deletes(table, ONE, ["id"])
    commit_files(table, [imagined("/c")])
    assert delete.sequence_number == 1
    assert deletes_of(table) == {"/a": [delete.path], "/b": [delete.path], "/c": []}
    assert by_path(live_files(table))["/c"].sequence_number == 2


def test_partition_values_are_those_of_pyiceberg(catalog: Catalog) -> None:
    """Dates as days, buckets as numbers: the same that a commit takes."""
    spec = PartitionSpec(
        PartitionField(3, 1000, DayTransform(), "day_of"),
        PartitionField(1, 1001, BucketTransform(16), "bucket"),
    )
    table = ensure_table(catalog, "lake.days", SCHEMA, partition_spec=spec)
    rows = {"id": [34], "origin": ["x"], "day": [19000], "delay": [0.5]}
    schema = table.schema().as_arrow()
    table.append(pa.table(rows, schema=schema))
    [file] = live_files(table).files
    [task] = table.scan().plan_files()
    assert file.partition == tuple(task.file.partition._data) == (19000, 3)


def test_full_entries_are_those_that_were_requested(parted: Table) -> None:
    """With their statistics and the numbers they inherit; an unknown path is left out."""
    bounds: dict[str, Any] = {
        "lower_bounds": {1: b"\1"},
        "upper_bounds": {1: b"\2"},
        "value_counts": {1: 10},
    }
    commit_files(parted, [imagined("/a", ["JFK"], **bounds), imagined("/b", ["JFK"])])
    snapshot = present(parted.current_snapshot())
    [delete] = add_position_deletes(parted, {"/a": [0]})
    head = present(parted.current_snapshot())
    found = live_entries(parted, head.snapshot_id, ["/a", delete.path, "/lost"])
    assert found.keys() == {"/a", delete.path}
    entry = found["/a"]
    assert (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) == (
        snapshot.snapshot_id,
        1,
        1,
    )
    assert entry.data_file.lower_bounds == {1: b"\1"}
    assert dict(entry.data_file.value_counts) == {1: 10}
    assert entry.data_file.spec_id == 0
    assert live_entries(parted, snapshot.snapshot_id, [delete.path]) == {}


def test_numbers_are_counted_by_partition(parted: Table) -> None:
    """Targets of 100 bytes: JFK has 250 bytes in four files and needs three, EWR has one of two."""
    files = [imagined(f"/j{size}", ["JFK"], size=size) for size in (20, 74, 76, 80)]
    commit_files(parted, [*files, imagined("/e1", ["EWR"], size=30), imagined("/e2", ["EWR"])])
    add_position_deletes(parted, {"/j20": [1], "/e1": [1]})
    numbers = table_numbers(parted, target_bytes=100)
    # EWR: 1030 bytes, so eleven files; six data files and two deletes are opened.
    assert (numbers.files, numbers.small_files, numbers.partitions) == (6, 3, 2)
    assert (numbers.bytes, numbers.rows, numbers.delete_files) == (1280, 60, 2)
    assert numbers.read_amplification == pytest.approx(8 / (3 + 11))
    assert table_numbers(parted, target_bytes=100, small_bytes=25).small_files == 1
    first = parted.history()[0].snapshot_id
    assert table_numbers(parted, first, target_bytes=10_000).read_amplification == 3.0


def test_a_snapshot_that_is_not_there_is_not_found(table: Table) -> None:
    with pytest.raises(NotFound, match=r"lake\.flights: no snapshot 17"):
        live_files(table, 17)
    with pytest.raises(NotFound):
        live_entries(table, 17, ["/a"])


def test_a_file_that_is_in_the_table_twice_is_refused(table: Table) -> None:
    """Its rows count twice for a reader; a merge by paths would take both away."""
    commit_files(table, [imagined("/a")])
    commit_files(table, [imagined("/a")])
    with pytest.raises(UnsupportedTable, match=r"/a twice"):
        live_files(table)


def test_a_newer_format_is_refused(table: Table) -> None:
    table.metadata = table.metadata.model_copy(update={"format_version": 4})
    with pytest.raises(UnsupportedTable, match="format version 4"):
        live_files(table)


def test_a_manifest_that_is_lost_or_cut_off_is_named(table: Table) -> None:
    commit_files(table, [imagined("/a")])
    [manifest] = present(table.current_snapshot()).manifests(table.io)
    path = Path(manifest.manifest_path)
    whole = path.read_bytes()
    for length in (0, 3, 100, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:length])
        with pytest.raises(LakeError, match=path.name):
            live_files(table)
    path.unlink()
    with pytest.raises(LakeError, match=path.name):
        live_files(table)
    listing = Path(present(table.current_snapshot()).manifest_list)
    listing.unlink()
    with pytest.raises(LakeError, match=listing.name):
        live_files(table)
