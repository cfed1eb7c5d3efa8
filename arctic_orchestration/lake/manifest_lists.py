"""Reads the lists of manifests of many snapshots.

pyiceberg converts the Avro schema of each list and resolves a reader for it, which takes longer
than reading the list. A table's lists have one or two different schemas.
"""

import json
from functools import lru_cache
from typing import Any, Self

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from arctic_orchestration.lake.manifest_fields import MANIFEST

_HEADER: Reader = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


def read_manifest_list(io: FileIO, path: str) -> list[ManifestFile]:
    """Returns the manifests of a list, like pyiceberg's own ``read_manifest_list``.

    Errors:
        OSError, ValueError, EOFError, ResolveError, zlib.error: the list cannot be read.
    """
    with _ManifestList(io.new_input(path)) as manifests:
        return list(manifests)


class _ManifestList(AvroFile[ManifestFile]):
    def __enter__(self) -> Self:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = _HEADER.read(self.decoder)
        schema: Any = self.header.meta.get("avro.schema")
        if schema is None:
            raise ValueError("No schema found in Avro file headers")
        self.reader = _reader(schema)
        return self


@lru_cache(maxsize=64)
def _reader(avro_schema: str) -> Reader:
    return resolve_reader(
        AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)),
        MANIFEST,
        {-1: ManifestFile, 508: PartitionFieldSummary},
        {517: ManifestContent},
    )
