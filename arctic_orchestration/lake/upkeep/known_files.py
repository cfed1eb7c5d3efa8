"""Whether a table knows a file below a directory of compaction, before that is removed."""

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake.catalog_answers import answered
from arctic_orchestration.lake.manifests import read_entries, snapshot_manifests
from arctic_orchestration.lake.upkeep.reachable import keys_of, metadata_files

#: The prefix of the names of directories of merges.
DIRECTORY_PREFIX = "compaction-"


class KnownFiles:
    """The directories of merges with files that a table knows.

    A file is known if it is live in any snapshot of the table, with or without a ref, or named in
    its metadata. A directory is identified by its name, which is unique to its attempt, so that
    neither the form of the paths nor a moved table can make a known file look unknown. One file is
    kept in memory for each directory, however many it has.

    Args:
        table: is reloaded on each query; its contents are read once.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._uuid = table.metadata.table_uuid
        self._name = ".".join(table.name())
        #: one known file of each directory
        self._files: dict[str, str] = {}
        self._read: set[str] = set()

    def below(self, location: str) -> str | None:
        """Returns a file below a directory that the table knows now; None: there is none.

        Errors:
            InvalidInput: its name is not that of a directory of merges.
            LakeError: a manifest cannot be read, the catalog does not answer, it no longer has the
                table, or has another one of that name.
        """
        name = location.rstrip("/").rpartition("/")[2]
        if not name.startswith(DIRECTORY_PREFIX):
            raise InvalidInput("location", location, f"a directory {DIRECTORY_PREFIX}...")
        self._refresh()
        return self._files.get(name)

    def _refresh(self) -> None:
        catalog = self.table.catalog
        try:
            fresh = answered(lambda: catalog.load_table(self.table.name()), self._name)
        except NoSuchTableError as error:
            raise LakeError(f"{self._name} was dropped since") from error
        if fresh.metadata.table_uuid != self._uuid:
            raise LakeError(f"{self._name} was dropped and made again")
        self.table = fresh
        for path in metadata_files(fresh.metadata):
            self._add(path)
        for statistics in (*fresh.metadata.statistics, *fresh.metadata.partition_statistics):
            self._add(statistics.statistics_path)
        for snapshot in fresh.metadata.snapshots:
            if snapshot.manifest_list in self._read:
                continue
            self._add(snapshot.manifest_list)
            for manifest in snapshot_manifests(fresh.io, snapshot):
                if manifest.manifest_path in self._read:
                    continue
                self._add(manifest.manifest_path)
                for entry in read_entries(fresh.io, manifest):
                    self._add(entry.data_file.file_path)
                self._read.add(manifest.manifest_path)
            self._read.add(snapshot.manifest_list)

    def _add(self, path: str) -> None:
        if DIRECTORY_PREFIX not in path:
            return
        # As it is written, and as it may be meant.
        for form in (path, *keys_of(path)) if ":" in path else (path,):
            for name in form.split("/")[:-1]:
                if name.startswith(DIRECTORY_PREFIX):
                    self._files.setdefault(name, path)
