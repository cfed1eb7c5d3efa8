"""Snapshots that expire, and the files that go with them: real files, counted on the disk."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake.upkeep.maintenance import Expired, FileKind, expire_snapshots
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.expiring_tables import (
    LATER,
    ids,
    on_disk,
    overwritten,
    rows,
    snapshot_ids,
    table,
)
from arctic_orchestration_tests.present import present

__all__ = ["table"]


def moment_of(table: Table) -> datetime:
    """The moment of the current snapshot."""
    milliseconds = present(table.refresh().current_snapshot()).timestamp_ms
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_files_that_only_expired_snapshots_knew_are_gone(table: Table) -> None:
    """The table reads the same; on the disk is what the head's own metadata names, no more."""
    overwritten(table)
    before = on_disk(table)
    done = expire_snapshots(table, older_than=LATER, keep_last=1)
    assert ids(table) == [2, 5]
    assert len(snapshot_ids(table)) == 1
    head = present(table.current_snapshot())
    needed = {head.manifest_list}
    for manifest in head.manifests(table.io):
        needed.add(manifest.manifest_path)
    needed |= {task.file.file_path for task in table.scan().plan_files()}
    assert on_disk(table) == needed
    assert {file.path for file in done.files} == before - needed
    assert len(done.snapshot_ids) == 3
    assert not done.failed


def test_what_was_removed_is_reported_with_kinds_and_sizes(table: Table) -> None:
    overwritten(table)
    sizes = {path: Path(path).stat().st_size for path in on_disk(table)}
    done = expire_snapshots(table, older_than=LATER)
    kinds = [file.kind for file in done.files]
    # The data file with row 1; three manifest lists; the manifests that held the file.
    assert kinds.count(FileKind.DATA) == 1
    assert kinds.count(FileKind.MANIFEST_LIST) == 3
    assert {file.path: file.size for file in done.files} == {
        file.path: sizes[file.path] for file in done.files
    }


def test_a_dry_run_reports_the_same_and_does_nothing(table: Table) -> None:
    overwritten(table)
    before, snapshots, location = on_disk(table), snapshot_ids(table), table.metadata_location
    would = expire_snapshots(table, older_than=LATER, dry_run=True)
    assert (on_disk(table), snapshot_ids(table)) == (before, snapshots)
    assert table.refresh().metadata_location == location
    done = expire_snapshots(table, older_than=LATER)
    assert set(would.files) == set(done.files)
    assert would.files
    assert (would.snapshot_ids, would.refs) == (done.snapshot_ids, done.refs)


def test_younger_snapshots_can_still_be_read(table: Table) -> None:
    table.append(rows(1))
    table.overwrite(rows(2))
    kept = present(table.current_snapshot()).snapshot_id
    limit = moment_of(table)
    table.overwrite(rows(3))
    expire_snapshots(table, older_than=limit)
    assert ids(table) == [3]
    assert ids(table, kept) == [2]
    assert kept in snapshot_ids(table)


def test_branches_and_tags_can_still_be_read(table: Table) -> None:
    """A branch whose newest row was never on main, and a tag on a snapshot that main has left."""
    table.append(rows(1))
    tagged = present(table.current_snapshot()).snapshot_id
    table.manage_snapshots().create_tag(tagged, "release").create_branch(tagged, "audit").commit()
    table.append(rows(7), branch="audit")
    table.overwrite(rows(2))
    table.overwrite(rows(3))
    done = expire_snapshots(table, older_than=LATER)
    table.refresh()
    assert ids(table) == [3]
    assert ids(table, tagged) == [1]
    assert ids(table, present(table.snapshot_by_name("audit")).snapshot_id) == [1, 7]
    assert len(done.snapshot_ids) == 3


def test_a_branch_that_is_over_goes_with_its_files(table: Table) -> None:
    table.append(rows(1))
    head = present(table.current_snapshot()).snapshot_id
    table.manage_snapshots().create_branch(head, "audit").commit()
    before = on_disk(table)
    table.append(rows(7), branch="audit")
    # pyiceberg's append forgets what a branch says of its age: it is said afterwards.
    audit = present(table.snapshot_by_name("audit")).snapshot_id
    table.manage_snapshots().create_branch(audit, "audit", max_ref_age_ms=1000).commit()
    done = expire_snapshots(table, older_than=LATER, now=LATER)
    assert done.refs == ("audit",)
    assert set(table.refresh().refs()) == {"main"}
    assert on_disk(table) == before
    assert ids(table) == [1]


def test_deletes_that_no_snapshot_has_any_more_go_too(table: Table) -> None:
    table.append(rows(1, 2))
    [path] = [task.file.file_path for task in table.scan().plan_files()]
    [delete] = add_position_deletes(table, {path: [0]})
    done = expire_snapshots(table, older_than=LATER)
    assert ids(table) == [2]
    assert Path(delete.path).exists()
    assert {file.kind for file in done.files} == {FileKind.MANIFEST_LIST}
    with table.transaction() as transaction:
        transaction.set_properties({"note": "a commit without a snapshot changes nothing"})
    current = present(table.current_snapshot()).manifests(table.io)
    table.manage_snapshots().create_branch(
        present(table.current_snapshot()).snapshot_id, "old"
    ).commit()
    assert expire_snapshots(table, older_than=LATER).files == ()
    assert all(Path(manifest.manifest_path).exists() for manifest in current)


def test_files_of_live_tasks_stay(table: Table) -> None:
    """A protected file stays, and a snapshot that a task was planned from stays whole."""
    table.append(rows(1))
    planned = present(table.current_snapshot()).snapshot_id
    [path] = [task.file.file_path for task in table.scan().plan_files()]
    table.overwrite(rows(2))
    table.overwrite(rows(3))
    kept = expire_snapshots(table, older_than=LATER, keep=[planned], dry_run=True)
    assert path not in {file.path for file in kept.files}
    assert planned not in kept.snapshot_ids
    done = expire_snapshots(table, older_than=LATER, protected=lambda known: known == path)
    assert Path(path).exists()
    assert planned in done.snapshot_ids
    assert path not in {file.path for file in done.files}


def test_a_file_under_another_spelling_is_the_same_file(table: Table) -> None:
    """The head has the file as a URL, an expired snapshot as a plain path."""
    table.append(rows(1))
    [path] = [task.file.file_path for task in table.scan().plan_files()]
    table.delete()
    table.add_files([f"file://{path}"])
    done = expire_snapshots(table, older_than=LATER)
    assert ids(table) == [1]
    assert FileKind.DATA not in {file.kind for file in done.files}


def test_checksums_go_with_their_files(table: Table) -> None:
    """Hadoop's local file system leaves one beside each file; that of a file that stays, stays."""
    table.append(rows(1))
    table.overwrite(rows(2))
    gone, stays = (
        next(iter(table.scan(snapshot_id=id).plan_files())).file.file_path
        for id in (snapshot_ids(table)[0], snapshot_ids(table)[-1])
    )
    for path in (gone, stays):
        Path(path).with_name(f".{Path(path).name}.crc").write_bytes(b"crc")

    expired = expire_snapshots(table, older_than=LATER, keep_last=1)

    assert gone in {file.path for file in expired.files}
    left = {path.name for path in Path(gone).parent.iterdir()}
    assert left == {Path(stays).name, f".{Path(stays).name}.crc"}


def test_statistics_go_with_their_snapshot(table: Table) -> None:
    """Those of the table and those of its partitions; the head keeps its own."""
    files = {}
    for number in (1, 2):
        table.overwrite(rows(number))
        snapshot_id = present(table.current_snapshot()).snapshot_id
        for name in ("table", "partitions"):
            path = Path(table.location()) / "metadata" / f"{name}-{number}.stats"
            path.write_bytes(b"12345")
            files[name, number] = str(path)
        common = {"snapshot-id": snapshot_id, "file-size-in-bytes": 5}
        with table.update_statistics() as update:
            update.set_statistics(
                StatisticsFile(
                    **common,
                    **{
                        "statistics-path": files["table", number],
                        "file-footer-size-in-bytes": 1,
                        "blob-metadata": [],
                    },
                )
            )
        of_partitions = PartitionStatisticsFile(
            **common, **{"statistics-path": files["partitions", number]}
        )
        table._do_commit(
            updates=(SetPartitionStatisticsUpdate(**{"partition-statistics": of_partitions}),),
            requirements=(),
        )
    done = expire_snapshots(table, older_than=LATER)
    removed = {file.path for file in done.files if file.kind is FileKind.STATISTICS}
    assert removed == {files["table", 1], files["partitions", 1]}
    assert not any(Path(path).exists() for path in removed)
    assert Path(files["table", 2]).exists()
    assert Path(files["partitions", 2]).exists()
    metadata = table.refresh().metadata
    assert [one.statistics_path for one in metadata.statistics] == [files["table", 2]]
    left = [one.statistics_path for one in metadata.partition_statistics]
    assert left == [files["partitions", 2]]


def test_nothing_to_expire_commits_nothing(table: Table) -> None:
    assert expire_snapshots(table, older_than=LATER) == Expired()
    table.append(rows(1))
    location = table.metadata_location
    assert expire_snapshots(table, older_than=LATER) == Expired()
    assert table.refresh().metadata_location == location


def test_the_tables_own_age_counts_where_the_caller_gives_none(table: Table) -> None:
    table.append(rows(1))
    table.overwrite(rows(2))
    assert expire_snapshots(table).snapshot_ids == ()
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "1000"})
    assert len(expire_snapshots(table, now=LATER).snapshot_ids) == 2


def test_a_file_that_cannot_be_removed_is_reported_and_the_others_go(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten(table)
    would = expire_snapshots(table, older_than=LATER, dry_run=True)
    stuck = next(file.path for file in would.files if file.kind is FileKind.DATA)
    gone = next(file.path for file in would.files if file.kind is FileKind.MANIFEST)
    delete = type(table.io).delete

    def refused(io: Any, location: Any) -> None:
        if location == stuck:
            raise PermissionError("read-only")
        if location == gone:
            delete(io, location)
        delete(io, location)

    monkeypatch.setattr(type(table.io), "delete", refused)
    done = expire_snapshots(table, older_than=LATER)
    [failed] = done.failed
    assert (failed.path, failed.reason) == (stuck, "read-only")
    # Another process removed the manifest a moment before.
    assert {file.path for file in done.files} == {file.path for file in would.files} - {stuck}


def test_a_manifest_that_is_lost_stops_it_before_the_commit(table: Table) -> None:
    overwritten(table)
    first = table.metadata.snapshots[0]
    [manifest] = first.manifests(table.io)
    Path(first.manifest_list).unlink()
    snapshots = snapshot_ids(table)
    with pytest.raises(LakeError, match=Path(first.manifest_list).name):
        expire_snapshots(table, older_than=LATER)
    assert snapshot_ids(table) == snapshots
    assert Path(manifest.manifest_path).exists()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"keep_last": 0}, "keep_last"), ({"older_than": datetime(2026, 1, 1)}, "older_than")],
)
def test_bad_limits_are_refused(table: Table, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        expire_snapshots(table, **arguments)
    assert refused.value.field == field


def test_a_table_that_shares_its_files_is_left_alone(table: Table) -> None:
    overwritten(table)
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    with pytest.raises(LakeError, match=r"gc\.enabled"):
        expire_snapshots(table, older_than=LATER)


def test_an_unknown_answer_to_whether_files_are_shared_is_refused(table: Table) -> None:
    """With a blank it is neither true nor false."""
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "False "})
    with pytest.raises(InvalidInput) as refused:
        expire_snapshots(table, older_than=LATER)
    assert str(refused.value) == "gc.enabled: got 'False ', expected true or false"
