"""What must hold of a lake when all is done, whoever was killed meanwhile."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlparse

import sqlalchemy as sa
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import LIVE, TaskState
from arctic_orchestration.lake.replacing.replace import TASKS
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_records,
    is_uncleaned,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.reference_merge import Row, rows_of
from arctic_orchestration_tests.proofs.compaction.written_tables import WrittenTable


def is_done(database: Database, written: Sequence[WrittenTable]) -> Callable[[], bool]:
    """Whether nothing is left to plan, merge, commit or remove."""

    def check() -> bool:
        with database.read() as tx:
            # Tables first: on Postgres each statement sees what was committed before it, and the
            # planner notes that it has looked at a table together with the tasks that it made.
            known = {row.name: row for row in tables.all_tables(tx)}
            if task_store.tasks(tx, states=LIVE, limit=1):
                return False
            if tx.execute(sa.select(compaction_attempts.c.id).where(is_uncleaned)).first():
                return False
        for one in written:
            head = one.table.refresh().current_snapshot()
            row = known.get(one.name)
            if row is None or head is None or row.due_since is not None:
                return False
            if row.looked_snapshot_id != head.snapshot_id:
                return False
        return True

    return check


def what_is_wrong(database: Database, written: Sequence[WrittenTable]) -> list[str]:
    """All that does not hold, in words; nothing, if all is well."""
    wrong = []
    for one in written:
        wrong += _rows(one) + _files(one.table.refresh()) + _tasks(database, one)
    return wrong


def unknown_files(written: Sequence[WrittenTable]) -> list[str]:
    """All files below the tables that their metadata does not lead to, read by pyiceberg alone."""
    found = []
    for one in written:
        table = one.table.refresh()
        known = {key_of(path) for path in _metadata_leads_to(table)}
        found += [
            path
            for path in _files_below(table)
            if path not in known and not _is_checksum(path, known)
        ]
    return found


def key_of(location: str) -> str:
    """The path of a file of a file system, or the bucket and the key of an object."""
    parsed = urlparse(location)
    return parsed.netloc + parsed.path


def _files_below(table: Table) -> list[str]:
    root = urlparse(table.location())
    if root.scheme in ("", "file"):
        return sorted(str(path) for path in Path(root.path).rglob("*") if path.is_file())
    assert isinstance(table.io, PyArrowFileIO)
    store = table.io.fs_by_scheme(root.scheme, root.netloc)
    selector = FileSelector(key_of(table.location()), recursive=True)
    return sorted(info.path for info in store.get_file_info(selector) if info.is_file)


def _metadata_leads_to(table: Table) -> Iterator[str]:
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
    for manifest in _manifests(table):
        yield manifest.manifest_path
        yield from _live_files(table, manifest)


def _manifests(table: Table) -> list[ManifestFile]:
    """The manifests of all snapshots, each once: snapshots share most of theirs."""
    found = {
        manifest.manifest_path: manifest
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
    }
    return list(found.values())


def _live_files(table: Table, manifest: ManifestFile) -> Iterator[str]:
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
        yield entry.data_file.file_path


def _rows(one: WrittenTable) -> list[str]:
    """The rows of now, and those of a snapshot from before."""
    wrong = _differences(f"{one.name}: readers", one.found, one.expected())
    if one.early is not None:
        snapshot_id, rows = one.early
        wrong += _differences(
            f"{one.name}: readers of an early snapshot",
            lambda: rows_of(one.table, snapshot_id),
            rows,
        )
    return wrong


def _differences(who: str, read: Callable[[], list[Row]], expected: list[Row]) -> list[str]:
    try:
        found = Counter(read())
    except FileNotFoundError as error:
        return [f"{who} miss a file: {error}"]
    lost, more = Counter(expected) - found, found - Counter(expected)
    wrong = [f"{who} miss {sorted(lost)}"] if lost else []
    return wrong + ([f"{who} find {sorted(more.elements())} besides"] if more else [])


def _files(table: Table) -> list[str]:
    """What lies in the directories of attempts, and belongs to no snapshot."""
    known = {
        key_of(path) for manifest in _manifests(table) for path in _live_files(table, manifest)
    }
    there = [path for path in _files_below(table) if "/compaction-" in path]
    unknown = [path for path in there if path not in known and not _is_checksum(path, known)]
    return [f"{path} belongs to no snapshot" for path in unknown]


def _is_checksum(path: str, known: set[str]) -> bool:
    """Hadoop writes one beside each file."""
    directory, _, file = path.rpartition("/")
    name = file.removeprefix(".").removesuffix(".crc")
    return file == f".{name}.crc" and f"{directory}/{name}" in known


def _tasks(database: Database, one: WrittenTable) -> list[str]:
    """Each task that was committed is in one snapshot, and in one record."""
    in_snapshots: dict[str, list[int]] = {}
    for snapshot in one.table.snapshots():
        names = snapshot.summary.additional_properties.get(TASKS, "") if snapshot.summary else ""
        for id in filter(None, names.split(",")):
            in_snapshots.setdefault(id, []).append(snapshot.snapshot_id)
    with database.read() as tx:
        tasks = {task.id: task for task in task_store.tasks(tx, table=one.name)}
        query = sa.select(compaction_records.c.tasks)
        query = query.where(compaction_records.c.table_name == one.name)
        kept = sa.select(compaction_attempts.c.kept_reason)
        kept = kept.where(compaction_attempts.c.table_name == one.name)
        kept = kept.where(compaction_attempts.c.kept_reason.is_not(None))
        wrong = [f"files of an attempt that is over: {why}" for why in tx.execute(kept).scalars()]
        recorded = Counter(id for text in tx.execute(query).scalars() for id in json.loads(text))
    for task in tasks.values():
        ids = in_snapshots.get(task.id, [])
        committed = task.state is TaskState.COMMITTED
        if ids != ([task.snapshot_id] if committed else []):
            wrong.append(f"task {task.id} is {task.state} {task.snapshot_id}, in snapshots {ids}")
        if recorded[task.id] != committed:
            wrong.append(f"task {task.id} is {task.state}, in {recorded[task.id]} records")
        if task.state in (*LIVE, TaskState.QUARANTINED):
            wrong.append(f"task {task.id} is {task.state}: {task.reason}")
    unknown = sorted(in_snapshots.keys() - tasks.keys())
    return wrong + [f"nobody knows the tasks {unknown} of snapshots"] * bool(unknown)
