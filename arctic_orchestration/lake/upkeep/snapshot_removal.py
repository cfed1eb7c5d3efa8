"""Removes many snapshots from a table's metadata, at linear cost.

pyiceberg applies its own ``RemoveSnapshotsUpdate`` with linear searches: for 9,900 of 10,000
snapshots that is some 250 million comparisons.
"""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)


class RemoveManySnapshots(RemoveSnapshotsUpdate):
    """pyiceberg's update with the same wire format and the same result."""


@_apply_table_update.register(RemoveManySnapshots)
def _(
    update: RemoveManySnapshots, base: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    gone = frozenset(update.snapshot_ids)
    if missing := gone.difference(one.snapshot_id for one in base.snapshots):
        raise ValueError(f"Snapshots with snapshot ids {sorted(missing)} do not exist")
    snapshots = [
        one.model_copy(update={"parent_snapshot_id": None})
        if one.parent_snapshot_id in gone
        else one
        for one in base.snapshots
        if one.snapshot_id not in gone
    ]
    log = [entry for entry in base.snapshot_log if entry.snapshot_id not in gone]
    needless: list[TableUpdate] = [
        RemoveSnapshotRefUpdate(ref_name=name)
        for name, ref in base.refs.items()
        if ref.snapshot_id in gone
    ]
    needless += [
        RemoveStatisticsUpdate(snapshot_id=one.snapshot_id)
        for one in base.statistics
        if one.snapshot_id in gone
    ]
    changed = base
    for one in needless:
        changed = _apply_table_update(one, changed, context)
    context.add_update(update)
    return changed.model_copy(update={"snapshots": snapshots, "snapshot_log": log})
