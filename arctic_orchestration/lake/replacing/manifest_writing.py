"""Writes manifests of data files and of delete files, with all fields of their entries.

pyiceberg writes manifests of data files only, omits ``referenced_data_file``, has a list of longs
for ``equality_ids`` where Java's reader requires ints, and compresses entries one by one.
"""

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType

from arctic_orchestration.lake.manifest_fields import complete

_ENTRIES_A_BLOCK = 500
_DATA_FILE, _EQUALITY_IDS, _REFERENCED_ID = 2, 135, 143
_INTS = NestedField(
    _EQUALITY_IDS,
    "equality_ids",
    ListType(136, IntegerType(), element_required=True),
    required=False,
)
_REFERENCED = NestedField(_REFERENCED_ID, "referenced_data_file", StringType(), required=False)


def _complete(schema: Schema) -> Schema:
    """Returns the schema of entries with the fields that pyiceberg changes or omits."""
    fields = []
    for field in schema.fields:
        if field.field_id == _DATA_FILE:
            assert isinstance(field.field_type, StructType)
            inside = [
                _INTS if one.field_id == _EQUALITY_IDS else one for one in field.field_type.fields
            ]
            if all(one.field_id != _REFERENCED_ID for one in inside):
                inside.append(_REFERENCED)
            kind = StructType(*inside)
            field = NestedField(_DATA_FILE, "data_file", kind, required=True)
        fields.append(field)
    return Schema(*fields)


def schema_of(metadata: TableMetadata, spec: PartitionSpec) -> Schema | None:
    """Returns a schema with all columns of a partition spec: the current one, else the newest."""
    wanted = {field.source_id for field in spec.fields}
    older = sorted(metadata.schemas, key=lambda schema: -schema.schema_id)
    for schema in (metadata.schema(), *older):
        if wanted <= schema._lazy_id_to_field.keys():
            return schema
    return None


def manifest_writer(
    metadata: TableMetadata,
    content: ManifestContent,
    spec: PartitionSpec,
    path: str,
    io: FileIO,
    snapshot_id: int,
) -> ManifestWriter:
    """Writes a manifest of data files, or of delete files, in the table's format version."""
    schema = schema_of(metadata, spec) or metadata.schema()
    codec = metadata.properties.get("write.avro.compression-codec", "gzip")
    output = io.new_output(path)
    if metadata.format_version == 1:
        return write_manifest(1, spec, schema, output, snapshot_id, codec)  # type: ignore[arg-type]
    kind = _DeletesWriter if content == ManifestContent.DELETES else _DataWriter
    return kind(spec, schema, output, snapshot_id, codec, metadata.format_version)


class _Blocks(AvroOutputFile[ManifestEntry]):
    """Collects entries into blocks of some hundred, like other writers."""

    def __enter__(self) -> "_Blocks":
        super().__enter__()
        self._waiting: list[ManifestEntry] = []
        return self

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._waiting.extend(objects)
        if len(self._waiting) >= _ENTRIES_A_BLOCK:
            self._flush()

    def __exit__(self, *error: object) -> None:
        if self._waiting:
            self._flush()
        super().__exit__(*error)  # type: ignore[arg-type]

    def _flush(self) -> None:
        super().write_block(self._waiting)
        self._waiting = []


class _DataWriter(ManifestWriterV2):
    def __init__(
        self,
        spec: PartitionSpec,
        schema: Schema,
        output: OutputFile,
        snapshot_id: int,
        codec: str,
        version: TableVersion,
    ) -> None:
        super().__init__(spec, schema, output, snapshot_id, codec)  # type: ignore[arg-type]
        self._version = version

    @property
    def version(self) -> TableVersion:
        return self._version

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return _Blocks(
            output_file=self._output_file,
            file_schema=_complete(self._with_partition(self.version)),
            # Entries have all fields of format 3, in the order of their description.
            record_schema=_complete(self._with_partition(3)),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def add_entry(self, entry: ManifestEntry) -> ManifestWriter:
        complete(entry.data_file)
        return super().add_entry(entry)


class _DeletesWriter(_DataWriter):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
