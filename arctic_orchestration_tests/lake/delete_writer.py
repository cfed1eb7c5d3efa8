"""Writes position and equality deletes to an Iceberg table, as the specification of v2 says.

pyiceberg writes neither. The files are written with pyarrow, with the field ids that the
specification reserves, and committed as manifests of deletes whose ``equality_ids`` are a list of
ints, as Java's reader wants them (pyiceberg's own schema has longs there).

::

    add_position_deletes(table, {path: [0, 7]})                      # one file for each data file
    add_position_deletes(table, {one: [0], two: [3]}, scope=Scope.PARTITION)
    add_equality_deletes(table, pa.table({"id": [1, 2]}), ["id"])
    add_equality_deletes(table, rows, ["id"], partition=("JFK",))

The table that is given is refreshed by each commit.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType

from arctic_orchestration.clock import utc_now
from arctic_orchestration.identifiers import new_id

FILE_PATH, POSITION = 2147483546, 2147483545
_REFERENCED = NestedField(143, "referenced_data_file", StringType(), required=False)
_EQUALITY_IDS = NestedField(
    135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False
)


class Scope(StrEnum):
    """How far one file of position deletes reaches."""

    #: one file for each data file; lower and upper bound of the paths are equal
    FILE = "file"
    #: one file for each partition; the bounds span the paths
    PARTITION = "partition"
    #: one file for each partition, and no bounds
    PARTITION_WITHOUT_BOUNDS = "partition without bounds"
    #: one file for each data file, named in ``referenced_data_file``, and no bounds
    REFERENCED = "referenced"


@dataclass(frozen=True)
class WrittenDelete:
    """A delete file that was committed."""

    path: str
    size: int
    rows: int
    spec_id: int
    partition: tuple[Any, ...]
    #: its data sequence number, and the snapshot that added it
    sequence_number: int
    snapshot_id: int


def add_position_deletes(
    table: Table,
    positions: Mapping[str, Sequence[int]],
    *,
    scope: Scope = Scope.FILE,
    branch: str = MAIN_BRANCH,
    form: Callable[[str], str] = str,
) -> list[WrittenDelete]:
    """Deletes rows by their positions in data files, in one snapshot.

    Args:
        positions: of live data files of the branch, by their paths as the table has them; the
            first row is 0.
        form: how the deletes write a path.

    Raises:
        KeyError: a path is no live data file.
    """
    table.refresh()
    places = _places(table, positions.keys(), branch)
    groups: dict[Any, list[str]] = defaultdict(list)
    for path, (spec_id, partition) in places.items():
        alone = scope in (Scope.FILE, Scope.REFERENCED)
        groups[(spec_id, tuple(partition._data), path if alone else None)].append(path)
    files = []
    for paths in groups.values():
        spec_id, partition = places[paths[0]]
        # The specification wants them in order of paths and positions.
        pairs = sorted((form(path), position) for path in paths for position in positions[path])
        files.append(_position_file(table, pairs, spec_id, partition, scope))
    return _commit(table, files, branch)


def add_equality_deletes(
    table: Table,
    rows: pa.Table,
    field_names: Sequence[str],
    *,
    partition: Sequence[Any] | None = None,
    spec_id: int | None = None,
    branch: str = MAIN_BRANCH,
) -> list[WrittenDelete]:
    """Deletes rows that are equal to given ones in some columns, in one snapshot; nulls are equal.

    Args:
        rows: the values, in columns named as the table's; columns not in ``field_names`` are left
            out.
        partition: the values of the spec's partition fields. None: everywhere, by the table's
            spec without partitions.
        spec_id: of the partition; the table's current spec when it is None.

    Raises:
        LookupError: a delete everywhere, and the table never had a spec without partitions.
    """
    table.refresh()
    if partition is None:
        spec_id, values = _unpartitioned(table, spec_id)
    else:
        spec_id = table.spec().spec_id if spec_id is None else spec_id
        values = Record(*partition)
    fields = [table.schema().find_field(name) for name in field_names]
    narrow = Schema(*(table.schema().find_field(name) for name in field_names))
    written = rows.select(list(field_names)).cast(schema_to_pyarrow(narrow))
    file = _file(
        table,
        written,
        spec_id,
        values,
        content=DataFileContent.EQUALITY_DELETES,
        equality_ids=[field.field_id for field in fields],
    )
    return _commit(table, [file], branch)


def _position_file(
    table: Table,
    pairs: Sequence[tuple[str, int]],
    spec_id: int,
    partition: Record,
    scope: Scope,
) -> DataFile:
    paths = [path for path, _ in pairs]
    rows = pa.table(
        {"file_path": paths, "pos": [position for _, position in pairs]},
        schema=pa.schema(
            [
                pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(FILE_PATH)}),
                pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION)}),
            ]
        ),
    )
    bounds = {}
    if scope in (Scope.FILE, Scope.PARTITION):
        bounds = {
            "lower_bounds": {FILE_PATH: min(paths).encode()},
            "upper_bounds": {FILE_PATH: max(paths).encode()},
        }
    file = _file(
        table, rows, spec_id, partition, content=DataFileContent.POSITION_DELETES, **bounds
    )
    if scope is Scope.REFERENCED:
        file._data[_REFERENCED_PLACE] = paths[0]
    return file


def _file(
    table: Table, rows: pa.Table, spec_id: int, partition: Record, **described: Any
) -> DataFile:
    name = f"delete-{new_id(utc_now())}.parquet"
    path = table.location_provider().new_data_location(name)
    output = table.io.new_output(path)
    with output.create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(output),
        **described,
    )
    file.spec_id = spec_id
    # Room for the field that pyiceberg does not have in v2.
    file._data.extend([None] * (_REFERENCED_PLACE + 1 - len(file._data)))
    return file


def _places(table: Table, paths: Collection[str], branch: str) -> dict[str, tuple[int, Record]]:
    found: dict[str, tuple[int, Record]] = {}
    snapshot = table.snapshot_by_name(branch)
    for manifest in snapshot.manifests(table.io) if snapshot else []:
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.data_file.file_path in paths:
                    place = manifest.partition_spec_id, entry.data_file.partition
                    found[entry.data_file.file_path] = place
    for path in paths:
        if path not in found:
            raise KeyError(path)
    return found


def _unpartitioned(table: Table, spec_id: int | None) -> tuple[int, Record]:
    for number, spec in sorted(table.specs().items()):
        wanted = spec_id is None or number == spec_id
        if wanted and all(isinstance(field.transform, VoidTransform) for field in spec.fields):
            return number, Record(*([None] * len(spec.fields)))
    raise LookupError(f"no spec without partitions among {table.specs()}")


def _commit(table: Table, files: Sequence[DataFile], branch: str) -> list[WrittenDelete]:
    with table.transaction() as transaction:
        producer = _AddDeletes(files, transaction, branch)
        producer.commit()
    snapshot = table.snapshot_by_id(producer.snapshot_id)
    assert snapshot is not None
    assert snapshot.sequence_number is not None
    return [
        WrittenDelete(
            path=file.file_path,
            size=file.file_size_in_bytes,
            rows=file.record_count,
            spec_id=file.spec_id,
            partition=tuple(file.partition._data),
            sequence_number=snapshot.sequence_number,
            snapshot_id=snapshot.snapshot_id,
        )
        for file in files
    ]


class _AddDeletes(_SnapshotProducer["_AddDeletes"]):
    """One snapshot that adds delete files and leaves everything else as it is."""

    def __init__(self, files: Sequence[DataFile], transaction: Any, branch: str) -> None:
        super().__init__(Operation.DELETE, transaction, transaction._table.io, branch=branch)
        self._delete_files = files

    def _validate_concurrency(self) -> None:
        """Nothing that others commit can be in the way of a delete here."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        if self._parent_snapshot_id is None:
            return []
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        return [] if parent is None else parent.manifests(self._io)

    def _manifests(self) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in self._delete_files:
            by_spec[file.spec_id].append(file)
        written = []
        for spec_id, files in by_spec.items():
            with _DeleteManifestWriter(
                self.spec(spec_id),
                self.schema(),
                self.new_manifest_output(),
                self._snapshot_id,
                self._compression,
            ) as writer:
                for file in files:
                    writer.add_entry(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self._snapshot_id,
                            sequence_number=None,
                            file_sequence_number=None,
                            data_file=file,
                        )
                    )
            written.append(writer.to_manifest_file())
        return written + self._existing_manifests()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        kinds = [file.content for file in self._delete_files]
        equality = kinds.count(DataFileContent.EQUALITY_DELETES)
        rows = {
            kind: sum(file.record_count for file in self._delete_files if file.content == kind)
            for kind in (DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES)
        }
        counts = {
            "delete-files": len(kinds),
            "position-deletes": rows[DataFileContent.POSITION_DELETES],
            "equality-deletes": rows[DataFileContent.EQUALITY_DELETES],
        }
        for name, count in counts.items():
            summary[f"added-{name}"] = str(count)
            summary[f"total-{name}"] = str(int(summary[f"total-{name}"] or 0) + count)
        summary["added-position-delete-files"] = str(len(kinds) - equality)
        summary["added-equality-delete-files"] = str(equality)
        return summary


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(2)
        entry = Schema(*(_as_java_has_it(field) for field in schema.fields))
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=entry,
            record_schema=entry,
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def _as_java_has_it(field: NestedField) -> NestedField:
    if not isinstance(field.field_type, StructType):
        return field
    fields = [_EQUALITY_IDS if one.field_id == 135 else one for one in field.field_type.fields]
    return NestedField(2, "data_file", StructType(*fields, _REFERENCED), required=True)


_REFERENCED_PLACE = len(DataFile.from_args()._data)
