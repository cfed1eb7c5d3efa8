"""The snapshot that appends data files to a table of format 3; pyiceberg refuses to write one."""

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile, ManifestWriter
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation

from arctic_orchestration.lake.manifests import snapshot_manifests
from arctic_orchestration.lake.replacing.manifest_writing import manifest_writer
from arctic_orchestration.lake.replacing.table_head import holds_files
from arctic_orchestration.lake.snapshot_writing import WithRowIds


class AppendFiles(WithRowIds["AppendFiles"]):
    """A snapshot of operation ``append``, with one manifest more than its parent.

    Compaction merges the manifests that it rewrites.
    """

    def __init__(self, transaction: Transaction, properties: dict[str, str]) -> None:
        super().__init__(
            Operation.APPEND,
            transaction,
            transaction._table.io,
            snapshot_properties=properties,
        )

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        path = self.new_manifest_output().location
        metadata, content = self._transaction.table_metadata, ManifestContent.DATA
        return manifest_writer(metadata, content, spec, path, self._io, self._snapshot_id)

    def _validate_concurrency(self) -> None:
        """Does nothing: an append conflicts with no other operation."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.current_snapshot()
        manifests = [] if parent is None else snapshot_manifests(self._io, parent)
        # With their row ids, which pyiceberg does not read.
        return [manifest for manifest in manifests if holds_files(manifest)]
