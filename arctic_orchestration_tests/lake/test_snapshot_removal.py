"""Removing many snapshots at once: pyiceberg's result, without its searches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import read_manifest_list as stock_read_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate, update_table_metadata
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.lake.manifest_lists import read_manifest_list
from arctic_orchestration.lake.upkeep.snapshot_removal import RemoveManySnapshots
from arctic_orchestration_tests.executed_lines import executed_lines
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.reference_merge import BY_ORIGIN, add, new_table

SCHEMA = Schema(NestedField(1, "id", LongType()))
ids = st.integers(1, 8)


def metadata_of(
    parents: dict[int, int], refs: dict[str, int], statistics: set[int]
) -> TableMetadataV2:
    """A table whose snapshots have these parents, some of which have expired already."""
    snapshots = [
        Snapshot(
            snapshot_id=one,
            parent_snapshot_id=parent,
            sequence_number=one,
            timestamp_ms=one,
            manifest_list=f"/list-{one}",
            summary=Summary(Operation.APPEND),
        )
        for one, parent in parents.items()
    ]
    main = refs.get("main")
    return TableMetadataV2(
        location="/table",
        last_column_id=1,
        schemas=[SCHEMA],
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        current_snapshot_id=main,
        snapshots=snapshots,
        snapshot_log=[SnapshotLogEntry(snapshot_id=one, timestamp_ms=one) for one in parents],
        refs={
            name: SnapshotRef.model_validate({"snapshot-id": one, "type": "branch"})
            for name, one in refs.items()
        },
        statistics=[
            StatisticsFile(
                snapshot_id=one,
                statistics_path=f"/statistics-{one}",
                file_size_in_bytes=1,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
            for one in statistics
        ],
    )


def after(metadata: TableMetadataV2, update: TableUpdate) -> str:
    changed = update_table_metadata(metadata, (update,))
    return changed.model_copy(update={"last_updated_ms": 0}).model_dump_json()


@given(
    parents=st.dictionaries(ids, ids, min_size=1),
    refs=st.dictionaries(st.sampled_from(["main", "audit", "old"]), ids),
    statistics=st.sets(ids),
    gone=st.lists(ids, unique=True),
)
def test_what_is_left_is_what_pyiceberg_leaves(
    parents: dict[int, int], refs: dict[str, int], statistics: set[int], gone: list[int]
) -> None:
    """Snapshots, their log, refs and statistics; unknown ids are refused by both."""
    refs = {name: one for name, one in refs.items() if one in parents}
    metadata = metadata_of(parents, refs, statistics & parents.keys())
    ours = RemoveManySnapshots(snapshot_ids=gone)
    stock = RemoveSnapshotsUpdate(snapshot_ids=gone)
    if set(gone) <= parents.keys():
        assert after(metadata, ours) == after(metadata, stock)
    else:
        for update in (ours, stock):
            with pytest.raises(ValueError, match="exist"):
                after(metadata, update)


def test_the_cost_is_linear_in_the_number_of_snapshots() -> None:
    """All snapshots but one go; pyiceberg compares each with each."""

    def work(count: int, kind: type[RemoveManySnapshots | RemoveSnapshotsUpdate]) -> int:
        metadata = metadata_of(
            {one: one - 1 for one in range(1, count + 1)}, {"main": count}, set()
        )
        update = kind(snapshot_ids=list(range(1, count)))
        return executed_lines(lambda: update_table_metadata(metadata, (update,)))

    assert work(3000, RemoveManySnapshots) < 2.5 * work(1500, RemoveManySnapshots)
    assert work(400, RemoveSnapshotsUpdate) > 3 * work(200, RemoveSnapshotsUpdate)


def test_a_catalog_behind_http_is_sent_the_same() -> None:
    """The name and the fields of the specification."""
    bodies = [
        CommitTableRequest(
            identifier={"namespace": ["lake"], "name": "t"},
            requirements=(),
            updates=(update,),
        ).model_dump_json()
        for update in (
            RemoveManySnapshots(snapshot_ids=[1, 2]),
            RemoveSnapshotsUpdate(snapshot_ids=[1, 2]),
        )
    ]
    assert bodies[0] == bodies[1]
    assert '"remove-snapshots"' in bodies[0]
    assert '"snapshot-ids":[1,2]' in bodies[0]


def test_lists_of_manifests_are_read_as_pyiceberg_reads_them(catalog: Catalog) -> None:
    """All fields of each manifest, of data and of deletes; also of a table in format 1."""
    table = new_table(catalog, spec=BY_ORIGIN)
    path = add(table, (1, "JFK"), (2, "JFK"))
    add_position_deletes(table, {path: [0]})
    add(table, (3, "EWR"))
    old = new_table(catalog, "lake.old", properties={"format-version": "1"})
    add(old, (1, "JFK"))
    seen = 0
    for one in (table, old):
        for snapshot in catalog.load_table(one.name()).metadata.snapshots:
            ours = read_manifest_list(one.io, snapshot.manifest_list)
            stock = list(stock_read_manifest_list(one.io.new_input(snapshot.manifest_list)))
            # The last one is the row id of format 3, which pyiceberg does not read.
            expected = [[*manifest._data, None] for manifest in stock]
            assert [manifest._data for manifest in ours] == expected
            seen += len(ours)
    assert seen > 4
