"""Access to long histories: work that pyiceberg repeats for all snapshots, done once.

``Transaction.table_metadata`` copies the whole metadata at each access, and ``ancestors_of``
searches all snapshots for each ancestor. With 5,000 snapshots that is 0.3 s for each access, and
seconds for each walk.
"""

from collections.abc import Iterator

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot


class SharedMetadataTransaction(Transaction):
    """A transaction that exposes the table's own metadata until something is staged.

    Snapshot producers only read it. Staged updates are applied to a copy, as pyiceberg does.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table, autocommit=False)

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yields a snapshot and its ancestors, newest first, up to the first that has expired.

    Cost: linear in the number of snapshots. A cycle of parents ends the walk.
    """
    left = {one.snapshot_id: one for one in metadata.snapshots}
    while snapshot_id is not None and (snapshot := left.pop(snapshot_id, None)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id
