"""Commits to branches that keep the branches' retention settings."""

from collections.abc import Iterable

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetSnapshotRefUpdate, TableUpdate


def keeping_retention(
    updates: Iterable[TableUpdate], metadata: TableMetadata
) -> tuple[TableUpdate, ...]:
    """Returns the updates, with the present settings of their branches.

    pyiceberg sets a branch to its new snapshot without them, and so drops them.
    """
    return tuple(
        _kept(update, metadata) if isinstance(update, SetSnapshotRefUpdate) else update
        for update in updates
    )


def _kept(update: SetSnapshotRefUpdate, metadata: TableMetadata) -> SetSnapshotRefUpdate:
    branch = metadata.refs.get(update.ref_name)
    if branch is None:
        return update
    return update.model_copy(
        update={
            "max_ref_age_ms": branch.max_ref_age_ms,
            "max_snapshot_age_ms": branch.max_snapshot_age_ms,
            "min_snapshots_to_keep": branch.min_snapshots_to_keep,
        }
    )
