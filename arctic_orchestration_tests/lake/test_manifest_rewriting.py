"""Small manifests are merged; files, rows and their numbers stay."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from arctic_orchestration.errors import CommitUnknown, InvalidInput, LakeError
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots
from arctic_orchestration.lake.upkeep.manifest_rewriting import rewrite_manifests
from arctic_orchestration.lake.upkeep.orphans import remove_orphans
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake import format_three, format_three_reader
from arctic_orchestration_tests.lake.crashing_committer import LANDED, STEPS, commit_until
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.expiring_tables import LATER, on_disk
from arctic_orchestration_tests.present import present

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


def table_of(catalog: Catalog, version: int, files: int) -> Table:
    """One with a manifest for each of its files, of three rows each."""
    table = format_three.new_table(catalog, version=version)
    for number in range(files):
        append(table, number)
    return table


def append(table: Table, number: int) -> None:
    """By pyiceberg, where it can: it writes a manifest a commit."""
    rows = [(3 * number + place, "a", number) for place in range(3)]
    if table.format_version == 3:
        format_three.add(table, rows)
        return
    schema = table.schema().as_arrow()
    values = zip(*rows, strict=True)
    table.append(pa.table(dict(zip(schema.names, values, strict=True)), schema=schema))


def rows_of(table: Table) -> list[Any]:
    """The live rows; in format 3, which pyiceberg does not read whole, with their lineage."""
    if table.refresh().format_version == 3:
        return format_three_reader.lineage(table)
    return sorted(table.scan().to_arrow().to_pylist(), key=repr)


def manifests(table: Table) -> list[tuple[int, int, int]]:
    """Of each manifest of the head its kind, its spec and its live files, as pyiceberg has them."""
    return sorted(
        (
            int(one.content),
            one.partition_spec_id,
            present(one.added_files_count) + present(one.existing_files_count),
        )
        for one in present(table.refresh().current_snapshot()).manifests(table.io)
    )


def entries(table: Table) -> list[dict[str, Any]]:
    """The files of the head with their numbers, as pyiceberg reads them."""
    found = table.refresh().inspect.entries().to_pylist()
    kept = ("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
    return sorted(({name: one[name] for name in kept} for one in found), key=repr)


def summary(table: Table) -> dict[str, str]:
    found = present(present(table.refresh().current_snapshot()).summary)
    return {"operation": found.operation.value, **found.additional_properties}


@VERSIONS
def test_manifests_are_merged_and_files_keep_their_numbers(catalog: Catalog, version: int) -> None:
    """As BaseRewriteManifests notes it; an older snapshot is read as before; twice is once."""
    table = table_of(catalog, version, 5)
    before, rows = entries(table), rows_of(table)
    older, total = present(table.current_snapshot()).snapshot_id, summary(table)["total-records"]
    assert manifests(table) == [(0, 0, 1)] * 5
    done = rewrite_manifests(table)
    assert (done.before, done.merged, done.written) == (5, 5, 1)
    assert done.snapshot_id == present(table.current_snapshot()).snapshot_id
    assert manifests(table) == [(0, 0, 5)]
    assert entries(table) == before
    assert rows_of(table) == rows
    assert len(rows) == 15
    numbers = summary(table)
    names = ("operation", "manifests-created", "manifests-kept", "manifests-replaced")
    assert [numbers[name] for name in names] == ["replace", "1", "0", "5"]
    assert [numbers[name] for name in ("entries-processed", "total-records")] == ["5", total]
    assert "added-data-files" not in numbers
    assert table.scan(snapshot_id=older).to_arrow().num_rows == 15
    again = rewrite_manifests(table)
    assert (again.before, again.merged, again.snapshot_id) == (1, 0, None)
    append(table, 5)
    assert rewrite_manifests(table).merged == 2
    assert manifests(table) == [(0, 0, 6)]


@pytest.mark.parametrize("version", [2, 3])
def test_each_kind_is_merged_by_itself(catalog: Catalog, version: int) -> None:
    """Data and deletes, and those of two partition specs; the rows stay."""
    table = table_of(catalog, version, 3)
    paths = [file.path for file in live_files(table).files]
    for path in paths[:2]:
        if version == 2:
            add_position_deletes(table, {path: [0]})
        else:
            format_three.delete_positions(table, {path: [0]})
    with table.update_spec() as change:
        change.add_field("part", IdentityTransform(), "part")
    for number in (3, 4):
        append(table, number)
    rows = rows_of(table)
    assert len(rows) == 13
    assert manifests(table) == [*[(0, 0, 1)] * 3, *[(0, 1, 1)] * 2, *[(1, 0, 1)] * 2]
    assert rewrite_manifests(table, fewest=3).merged == 3
    assert manifests(table) == [(0, 0, 3), *[(0, 1, 1)] * 2, *[(1, 0, 1)] * 2]
    done = rewrite_manifests(table)
    assert (done.before, done.merged, done.written) == (5, 4, 2)
    assert manifests(table) == [(0, 0, 3), (0, 1, 2), (1, 0, 2)]
    assert rows_of(table) == rows


def test_rows_of_an_upgraded_table_get_their_ids(catalog: Catalog) -> None:
    """As with any commit; those that have ids keep them."""
    table = format_three.upgrade(catalog, table_of(catalog, 2, 2))
    append(table, 2)
    known = {one.row: one.row_id for one in format_three_reader.lineage(table)}
    assert rewrite_manifests(table).merged == 3
    ids = {one.row: present(one.row_id) for one in format_three_reader.lineage(table)}
    assert len(set(ids.values())) == 9
    assert all(ids[row] == row_id for row, row_id in known.items() if row_id is not None)


def test_manifests_of_enough_size_stay(catalog: Catalog) -> None:
    """Half of the table's target is enough; the merged ones are not longer than it."""
    table = table_of(catalog, 2, 6)
    length = max(one.manifest_length for one in _files(table))
    with table.transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": str(length)})
    assert rewrite_manifests(table, dry_run=True).merged == 0
    with table.transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": str(2 * length + 2)})
    done = rewrite_manifests(table)
    assert (done.merged, done.written) == (6, 3)


def _files(table: Table) -> list[Any]:
    return present(table.refresh().current_snapshot()).manifests(table.io)


def test_a_dry_run_changes_nothing(catalog: Catalog) -> None:
    """It counts what would be merged."""
    table = table_of(catalog, 2, 3)
    head, files = present(table.current_snapshot()).snapshot_id, on_disk(table)
    done = rewrite_manifests(table, dry_run=True)
    assert (done.merged, done.written, done.snapshot_id) == (3, None, None)
    assert present(table.refresh().current_snapshot()).snapshot_id == head
    assert on_disk(table) == files


def test_a_writer_that_is_first_keeps_its_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt merges its manifest, too; what the refused one wrote is removed."""
    table = table_of(catalog, 2, 3)
    other = load_table(catalog, "lake.three")
    _before_commits(monkeypatch, lambda: append(other, 9))
    done = rewrite_manifests(table)
    assert (done.before, done.merged) == (4, 4)
    assert manifests(table) == [(0, 0, 4)]
    assert table.scan().to_arrow().num_rows == 12
    known = {one.manifest_path for one in _files(table)}
    expire_snapshots(table, keep_last=1, older_than=LATER)
    lists = {present(table.refresh().current_snapshot()).manifest_list}
    assert {path for path in on_disk(table) if path.endswith(".avro")} == {
        path.removeprefix("file://") for path in known | lists
    }


def test_a_merge_that_was_planned_before_is_committed_after(catalog: Catalog) -> None:
    """Its files are where the merged manifests say."""
    table = table_of(catalog, 2, 4)
    files = [file.path for file in live_files(table).files][:2]
    merge = format_three.merged(table, format_three.plan(table, files))
    assert rewrite_manifests(table).merged == 4
    assert replace_files(table, [merge]).committed == ("task",)
    assert len(live_files(table.refresh()).files) == 3
    assert table.scan().to_arrow().num_rows == 12


def test_a_commit_whose_answer_is_lost_is_recognised(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once; one that nobody confirms is not taken for done."""
    table = table_of(catalog, 2, 3)
    commit = type(catalog).commit_table

    def unanswered(self: Catalog, *arguments: Any, **more: Any) -> Any:
        commit(self, *arguments, **more)
        raise CommitStateUnknownException("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "commit_table", unanswered)
        assert rewrite_manifests(table).merged == 3
    assert len(table.refresh().snapshots()) == 4
    append(table, 4)

    def lost(self: Catalog, *arguments: Any, **more: Any) -> Any:
        raise CommitStateUnknownException("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "commit_table", lost)
        with pytest.raises(CommitUnknown, match="again is safe"):
            rewrite_manifests(table)
    assert manifests(table) == [(0, 0, 1), (0, 0, 3)]
    assert rewrite_manifests(table).merged == 2
    assert table.scan().to_arrow().num_rows == 12


@pytest.mark.parametrize("step", [step for step in STEPS if step != "outputs looked at"])
def test_a_killed_process_leaves_the_table_as_it_was_or_as_it_shall_be(
    settings: Settings, catalog: Catalog, step: str
) -> None:
    """SIGKILL at every step; what it wrote until then are orphans."""
    table = table_of(catalog, 2, 3)
    files = {file.path for file in live_files(table).files}
    commit_until(settings.lake, "lake.three", (), step)
    assert manifests(table) == ([(0, 0, 3)] if step in LANDED else [(0, 0, 1)] * 3)
    assert rewrite_manifests(table).merged == (0 if step in LANDED else 3)
    assert {file.path for file in live_files(table.refresh()).files} == files
    remove_orphans(table, older_than=LATER, any_age=True, now=LATER)
    expire_snapshots(table, keep_last=1, older_than=LATER)
    assert len([path for path in on_disk(table) if path.endswith(".avro")]) == 2
    assert table.scan().to_arrow().num_rows == 9


def _before_commits(monkeypatch: pytest.MonkeyPatch, does: Callable[[], object]) -> None:
    """Something happens right before the first commit that this process sends from now on."""
    commit, waiting = Table._do_commit, [does]

    def beaten(self: Table, *arguments: Any, **more: Any) -> None:
        if waiting:
            waiting.pop()()
        commit(self, *arguments, **more)

    monkeypatch.setattr(Table, "_do_commit", beaten)


def test_what_cannot_be_is_refused(catalog: Catalog) -> None:
    """By name; a table that was dropped is named."""
    table = table_of(catalog, 2, 2)
    with pytest.raises(InvalidInput, match="fewest: got 1, expected at least 2"):
        rewrite_manifests(table, fewest=1)
    catalog.drop_table("lake.three")
    with pytest.raises(LakeError, match=r"lake\.three: the table was dropped"):
        rewrite_manifests(table)
