"""Which replacements are in a table already: after a crash, or a lost answer, nothing is repeated.

The summary of a snapshot names the replacements in it. When that snapshot has expired, they are
recognised by their files: all outputs are there, and no input is.
"""

from collections.abc import Mapping, Sequence

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.lake.heads import Head, Place, ReadManifests
from arctic_orchestration.lake.manifests import snapshot_manifests
from arctic_orchestration.lake.replacement import Replacement

#: The key of the snapshot's summary that names the replacements, separated by commas.
TASKS = "arctic.compaction.tasks"


def tasks_of(snapshot: Snapshot) -> list[str]:
    """The replacements that a snapshot says it made."""
    if snapshot.summary is None:
        return []
    names = snapshot.summary.additional_properties.get(TASKS, "")
    return [name for name in names.split(",") if name]


def made_before(
    table: Table, replacements: Sequence[Replacement], head: Head, read: ReadManifests
) -> dict[str, int]:
    """The replacements that the head, or another snapshot that the table still has, holds.

    By their ids, with the snapshots that added them, which may have expired.
    """
    recorded = _recorded(head.metadata)
    found = {each.id: recorded[each.id] for each in replacements if each.id in recorded}
    gone = [
        each
        for each in replacements
        if each.id not in found and not any(file.path in head.places for file in each.group.files)
    ]
    lost = []
    for each in gone:
        if (snapshot_id := _added_by(each, head.places)) is not None:
            found[each.id] = snapshot_id
        elif each.outputs and head.metadata.snapshot_by_id(each.group.snapshot_id) is None:
            lost.append(each)
    if lost:
        found |= _in_history(table, lost, head.metadata, read)
    return found


def _in_history(
    table: Table, replacements: Sequence[Replacement], metadata: TableMetadata, read: ReadManifests
) -> dict[str, int]:
    """Looks through all snapshots: the outputs may have been replaced themselves since."""
    found: dict[str, int] = {}
    for snapshot in sorted(metadata.snapshots, key=lambda one: -one.timestamp_ms):
        manifests = snapshot_manifests(table.io, snapshot)
        places = read.places(one for one in manifests if one.content == ManifestContent.DATA)
        for each in replacements:
            if (snapshot_id := _added_by(each, places)) is not None:
                found.setdefault(each.id, snapshot_id)
    return found


def _added_by(each: Replacement, places: Mapping[str, list[Place]]) -> int | None:
    """The snapshot that added the outputs, if all of them are there."""
    if not each.outputs or not all(path in places for path in each.outputs):
        return None
    return places[each.outputs[0]][0].snapshot_id or 0


def _recorded(metadata: TableMetadata) -> dict[str, int]:
    return {key: one.snapshot_id for one in metadata.snapshots for key in tasks_of(one)}
