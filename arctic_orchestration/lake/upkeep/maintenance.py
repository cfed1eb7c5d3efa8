"""Removes what a table no longer needs: old snapshots, and orphans.

::

    expire_snapshots(table, older_than=now - timedelta(days=3), keep_last=10, dry_run=True)
    remove_orphans(table, older_than=now - timedelta(days=7), protected=of_a_live_task)

A file is removed only after the catalog has accepted the commit that drops it, and after the table
was read again, including all commits up to then. A process that ends in between leaves files that
``remove_orphans`` finds later.
"""

import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from pydantic import PrivateAttr
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    TableUpdate,
)

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    InvalidInput,
)
from arctic_orchestration.lake.manifests import read_entries, snapshot_manifests
from arctic_orchestration.lake.tables import is_locked
from arctic_orchestration.lake.upkeep.expiry import (
    Expiry,
    default_keep_last,
    default_older_than,
    expiry,
)
from arctic_orchestration.lake.upkeep.orphans import Orphans, remove_orphans
from arctic_orchestration.lake.upkeep.reachable import Reachable, literal_key
from arctic_orchestration.lake.upkeep.removal import (
    FailedRemoval,
    FileKind,
    RemovedFile,
    checksums_of,
    name_of,
    nothing,
    read_again,
    require_aware,
    require_garbage_collection,
)
from arctic_orchestration.lake.upkeep.snapshot_removal import RemoveManySnapshots

__all__ = [
    "Expired",
    "FailedRemoval",
    "FileKind",
    "Orphans",
    "RemovedFile",
    "expire_snapshots",
    "remove_orphans",
]

_ATTEMPTS = 50
_LONGEST_WAIT_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Expired:
    """The result, or the preview, of ``expire_snapshots``."""

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    files: tuple[RemovedFile, ...] = ()
    failed: tuple[FailedRemoval, ...] = ()


def expire_snapshots(
    table: Table,
    *,
    older_than: datetime | None = None,
    keep_last: int | None = None,
    dry_run: bool = False,
    keep: Collection[int] = (),
    protected: Callable[[str], bool] = nothing,
    now: datetime | None = None,
) -> Expired:
    """Expires old snapshots, and removes files of theirs alone; refreshes ``table``.

    :mod:`arctic_orchestration.lake.upkeep.expiry` has the rules for snapshots and refs.

    Args:
        older_than: snapshots from this moment on stay. None: the table's
            ``history.expire.max-snapshot-age-ms``.
        keep_last: how many snapshots of a branch stay, at least one. None: the table's
            ``history.expire.min-snapshots-to-keep``.
        dry_run: returns what would be done, and changes nothing.
        keep: ids of snapshots that stay, such as planned snapshots of live tasks.
        protected: paths, as the table has them, of files that stay.
        now: the moment from which ages of refs and tables count.

    Errors:
        InvalidInput: ``keep_last`` is below one, ``older_than`` has no zone, or a property of the
            table cannot be read.
        CommitConflict: other writers were first for too long. Nothing was changed.
        CommitUnknown: the catalog neither confirmed nor refused the commit. No file was removed.
        CatalogUnavailable: the catalog did not answer, after several tries. Nothing was changed.
        LakeError: the table's ``gc.enabled`` is false, or a manifest cannot be read. If it is one
            of a remaining snapshot, the others are already expired; their files are left.
    """
    now = now or utc_now()
    require_aware(older_than)
    if keep_last is not None and keep_last < 1:
        raise InvalidInput("keep_last", keep_last, "at least 1")
    for attempt in range(_ATTEMPTS):
        read_again(table)
        require_garbage_collection(table)
        metadata = table.metadata
        over = expiry(
            metadata,
            older_than=older_than or default_older_than(metadata, now),
            keep_last=keep_last or default_keep_last(metadata),
            now=now,
            keep=keep,
        )
        if not over.snapshot_ids and not over.refs:
            return Expired()
        files = list(_known_to(table, over.snapshot_ids))
        if dry_run:
            return _expired(table, over, files, protected, without=over.snapshot_ids)
        try:
            _forget(table, over)
        except CommitFailedException as error:
            if is_locked(error):
                raise CatalogUnavailable(f"{name_of(table)}: {error}") from error
            time.sleep(random.uniform(0.005, min(_LONGEST_WAIT_SECONDS, 0.05 * 1.5**attempt)))
            continue
        return _expired(table, over, files, protected)
    raise CommitConflict(f"{name_of(table)}: other writers were first {_ATTEMPTS} times")


class _SameRefs(AssertTableUUID):
    """A requirement that the table has exactly its known refs.

    A tag that is created while a snapshot expires would be removed with it: the requirements of the
    specification cover known refs only. Catalogs that check requirements in this process check this
    one; others see only the table's id and the single asserted refs.
    """

    _refs: dict[str, int] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(cls, metadata: TableMetadata) -> "_SameRefs":
        made = cls(uuid=metadata.table_uuid)
        made._refs = _heads(metadata)
        return made

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        if base_metadata is not None and _heads(base_metadata) != self._refs:
            raise CommitFailedException("Branches or tags have changed")


def _heads(metadata: TableMetadata) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}


def _forget(table: Table, over: Expiry) -> None:
    """Commits; returns when the snapshots are known to be gone, and ``table`` is refreshed."""
    metadata = table.metadata
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in over.refs]
    # pyiceberg drops a snapshot's table statistics, but not its partition statistics.
    updates += [
        RemovePartitionStatisticsUpdate(snapshot_id=statistics.snapshot_id)
        for statistics in metadata.partition_statistics
        if statistics.snapshot_id in over.snapshot_ids
    ]
    if over.snapshot_ids:
        updates.append(RemoveManySnapshots(snapshot_ids=sorted(over.snapshot_ids)))
    asserted = [
        AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in _heads(metadata).items()
    ]
    try:
        table._do_commit(updates=tuple(updates), requirements=(_SameRefs.of(metadata), *asserted))
        table.refresh()
    except CommitFailedException:
        raise
    except Exception as error:
        _require_gone(table, over, error)


def _require_gone(table: Table, over: Expiry, error: Exception) -> None:
    try:
        read_again(table)
    except Exception:
        left = True
    else:
        there = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        left = not there.isdisjoint(over.snapshot_ids) or any(
            name in table.metadata.refs for name in over.refs
        )
    if left:
        raise CommitUnknown(
            f"{name_of(table)}: the catalog neither confirmed nor refused to expire "
            f"{len(over.snapshot_ids)} snapshots: {error}. No file was removed"
        ) from error


def _known_to(table: Table, snapshot_ids: Collection[int]) -> Iterator[RemovedFile]:
    """Yields the files of some snapshots, from manifests that no other snapshot has."""
    metadata, io = table.metadata, table.io
    shared: set[str] = set()
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in snapshot_ids:
            shared.update(one.manifest_path for one in snapshot_manifests(io, snapshot))
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in snapshot_ids:
            continue
        for manifest in snapshot_manifests(io, snapshot):
            if manifest.manifest_path in shared:
                continue
            shared.add(manifest.manifest_path)
            for entry in read_entries(io, manifest):
                file = entry.data_file
                is_data = file.content == DataFileContent.DATA
                kind = FileKind.DATA if is_data else FileKind.DELETES
                yield RemovedFile(file.file_path, kind, file.file_size_in_bytes)
            path, size = manifest.manifest_path, manifest.manifest_length
            yield RemovedFile(path, FileKind.MANIFEST, size)
        path = snapshot.manifest_list
        yield RemovedFile(path, FileKind.MANIFEST_LIST, _size(table, path))
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        if statistics.snapshot_id in snapshot_ids:
            path, size = statistics.statistics_path, statistics.file_size_in_bytes
            yield RemovedFile(path, FileKind.STATISTICS, size)


def _size(table: Table, path: str) -> int | None:
    try:
        return len(table.io.new_input(path))
    except OSError:
        return None


def _expired(
    table: Table,
    over: Expiry,
    files: list[RemovedFile],
    protected: Callable[[str], bool],
    without: Collection[int] | None = None,
) -> Expired:
    """Removes the unknown files; ``without``: only returns them, as if those were gone."""
    known = Reachable(table.io)
    known.files.add(table.metadata_location)
    known.add(table.metadata, without=without or ())
    unknown = {
        literal_key(file.path): file
        for file in files
        if file.path not in known.files and not protected(file.path)
    }
    failed: dict[RemovedFile, str] = {}
    if without is None:
        for file in unknown.values():
            if why := _removal_fails(table, file.path):
                failed[file] = why
    return Expired(
        snapshot_ids=tuple(sorted(over.snapshot_ids)),
        refs=over.refs,
        files=tuple(file for file in unknown.values() if file not in failed),
        failed=tuple(FailedRemoval(file.path, why) for file, why in failed.items()),
    )


def _removal_fails(table: Table, path: str) -> str | None:
    for one in (path, *checksums_of(path)):
        try:
            table.io.delete(one)
        except FileNotFoundError:
            continue
        except Exception as error:
            # Stores have errors of their own; the other files are still to be removed.
            return str(error) or type(error).__name__
    return None
