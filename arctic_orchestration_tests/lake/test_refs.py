"""What was said of how long a branch's snapshots stay outlives commits to it."""

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration_tests.compaction.small_lake import Merging, add_file, table_of


def kept(table: Table) -> int | None:
    return table.refresh().metadata.refs["main"].min_snapshots_to_keep


def test_main_keeps_its_settings_when_files_are_replaced(catalog: Catalog) -> None:
    table = table_of(catalog, files=2)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(
        head.snapshot_id, "main", min_snapshots_to_keep=7
    ).commit()
    assert kept(table) == 7
    live = live_files(table)
    assert live.snapshot_id is not None
    group = FileGroup(
        snapshot_id=live.snapshot_id,
        sequence_number=live.sequence_number,
        spec_id=0,
        files=tuple(live.files),
    )
    directory = table.location_provider().new_data_location("merged")
    merged = Merging()(table, group, directory, target_bytes=1_000_000)
    done = replace_files(
        table,
        [Replacement(id="one", group=group, outputs=(merged.outputs[0].path,), rows_deleted=0)],
    )
    assert done.committed == ("one",)
    assert kept(table) == 7
    # The control: a commit of pyiceberg's own forgets it.
    add_file(table, 9)
    assert kept(table) is None
