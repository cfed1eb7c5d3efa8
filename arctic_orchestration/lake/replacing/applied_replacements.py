"""Which replacements a table already contains: after a crash or a lost answer, none is repeated.

The summary of a snapshot names its replacements. When that snapshot has expired, they are
recognized by their files: an output is in the head, or in another snapshot of the table, and no
input is in the head. One output is sufficient: all came in one snapshot, and a later removal of the
others has changed what they contained.

Missing such a replacement would do harm: its outputs would be removed as orphans, from under a tag,
or from under the head.
"""

from collections.abc import Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.replacing.replacement import Replacement
from arctic_orchestration.lake.replacing.table_head import Head, Place, ReadManifests

#: The key of the snapshot's summary that names the replacements, separated by commas.
TASKS = "arctic.compaction.tasks"


class HistoryUnreadable(Exception):
    """It is unknown whether some replacements were made; the message contains the reason."""

    def __init__(self, found: dict[str, int], unknown: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        #: the replacements that were recognized
        self.found = found
        #: the ids of undecided replacements
        self.unknown = tuple(unknown)


def tasks_of(snapshot: Snapshot) -> list[str]:
    """Returns the replacements that a snapshot's summary names."""
    if snapshot.summary is None:
        return []
    names = snapshot.summary.additional_properties.get(TASKS, "")
    return [name for name in names.split(",") if name]


def made_before(
    table: Table, replacements: Sequence[Replacement], head: Head, read: ReadManifests
) -> dict[str, int]:
    """Returns the replacements in the head, or in another snapshot of the table.

    By their ids, with the snapshots that added them, which may have expired. Older snapshots are
    read only where the head contains neither inputs nor outputs.

    Errors:
        HistoryUnreadable: an older snapshot was needed and could not be read.
    """
    recorded = _recorded(head.metadata)
    found = {each.id: recorded[each.id] for each in replacements if each.id in recorded}
    lost = []
    for each in replacements:
        if each.id in found or any(file.path in head.places for file in each.group.files):
            continue
        if (snapshot_id := _added_by(each, head.places)) is not None:
            found[each.id] = snapshot_id
        elif each.outputs:
            lost.append(each)
    if lost:
        try:
            places = read.places_in_any(_since(lost, table.metadata))
        except LakeError as error:
            raise HistoryUnreadable(found, [each.id for each in lost], str(error)) from error
        for each in lost:
            if (snapshot_id := _added_by(each, places)) is not None:
                found[each.id] = snapshot_id
    return found


def _since(replacements: Sequence[Replacement], metadata: TableMetadata) -> list[Snapshot]:
    """Returns the snapshots that may contain an output: those after the plans."""
    planned = min(each.group.sequence_number for each in replacements)
    # In format 1 all snapshots have the number 0.
    return [
        one for one in metadata.snapshots if not planned or (one.sequence_number or 0) > planned
    ]


def _added_by(each: Replacement, places: Mapping[str, list[Place]]) -> int | None:
    """Returns the snapshot that added an output, if one contains it."""
    for path in each.outputs:
        if path in places:
            return places[path][0].snapshot_id or 0
    return None


def _recorded(metadata: TableMetadata) -> dict[str, int]:
    return {key: one.snapshot_id for one in metadata.snapshots for key in tasks_of(one)}
