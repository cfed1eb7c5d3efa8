"""Long histories: the number of snapshots is paid for once, not for each file or each ancestor."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from pyiceberg import table as pyiceberg_table
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadataCommonFields
from pyiceberg.table.update import update_table_metadata

from arctic_orchestration.lake import table_writer
from arctic_orchestration.lake.replacing import commit_loop
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.lake.snapshot_history import SharedMetadataTransaction, ancestors
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined
from arctic_orchestration_tests.lake.reference_merge import add, merge, new_table, plan


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the copies of the metadata that transactions make."""
    counted: Counter[str] = Counter()
    real = update_table_metadata

    def counting(*args: object, **kwargs: object) -> object:
        counted["copies"] += 1
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(pyiceberg_table, "update_table_metadata", counting)
    return counted


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the searches of all snapshots for one."""
    counted: Counter[str] = Counter()
    real = TableMetadataCommonFields.snapshot_by_id

    def counting(self: TableMetadataCommonFields, snapshot_id: int) -> object:
        counted["searches"] += 1
        return real(self, snapshot_id)

    monkeypatch.setattr(TableMetadataCommonFields, "snapshot_by_id", counting)
    return counted


def copies_of_a_commit(catalog: Catalog, copies: Counter[str], files: int) -> int:
    table = new_table(catalog, f"lake.of_{files}")
    paths = [add(table, (number, "JFK")) for number in range(files)]
    one = merge(table, plan(table, paths), name=f"task-{files}")
    copies.clear()
    assert replace_files(table, [one]).committed == (f"task-{files}",)
    return copies["copies"]


def test_a_commit_copies_no_metadata_however_many_files_it_removes(
    catalog: Catalog, copies: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files or twelve: no copy but the catalog's own; with pyiceberg's transaction, several."""
    assert [copies_of_a_commit(catalog, copies, files) for files in (2, 12)] == [0, 0]
    monkeypatch.setattr(commit_loop, "SharedMetadataTransaction", Transaction)
    assert copies_of_a_commit(catalog, copies, 3) > 0


def test_staged_changes_are_in_the_metadata_of_the_transaction(catalog: Catalog) -> None:
    """Until something is staged it is the table's own metadata, and afterwards a copy."""
    table = new_table(catalog)
    transaction = SharedMetadataTransaction(table)
    assert transaction.table_metadata is table.metadata
    transaction.set_properties({"one": "1"})
    assert transaction.table_metadata.properties["one"] == "1"
    assert "one" not in table.metadata.properties


def long_table(catalog: Catalog, snapshots: int) -> Table:
    table = new_table(catalog, f"lake.long_{snapshots}")
    for number in range(snapshots):
        commit_files(table, [imagined(f"{table.location()}/data/{number}.parquet")])
    return table


def test_ancestors_are_those_of_the_head_newest_first(catalog: Catalog) -> None:
    """Four appends: numbers 4 to 1; of a snapshot that has expired, nothing."""
    table = long_table(catalog, 4)
    head = table.metadata.current_snapshot_id
    assert [one.sequence_number for one in ancestors(table.metadata, head)] == [4, 3, 2, 1]
    assert list(ancestors(table.metadata, None)) == []
    assert list(ancestors(table.metadata, 1)) == []


@pytest.mark.parametrize("snapshots", [3, 9])
def test_expiry_and_the_look_for_an_append_search_no_snapshot_for_each_ancestor(
    catalog: Catalog, searches: Counter[str], snapshots: int
) -> None:
    """However many snapshots there are, the number of searches is that of refs."""
    table = long_table(catalog, snapshots)
    searches.clear()
    expired = expire_snapshots(
        table, older_than=datetime(2100, 1, 1, tzinfo=UTC), keep_last=1, dry_run=True
    )
    assert len(expired.snapshot_ids) == snapshots - 1
    assert table_writer._recorded(table, table_writer.ONCE, "no such key") is None
    assert searches["searches"] <= 2
