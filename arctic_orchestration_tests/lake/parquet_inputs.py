"""Parquet files as an Iceberg writer makes them, and groups of them, without any table's commit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from arctic_orchestration.lake.file_groups import FileGroup, LiveFile


def arrow_rows(schema: Schema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The rows with the types and the field ids of the schema."""
    return pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(schema))


def written(path: Path, rows: pa.Table, **options: Any) -> LiveFile:
    """Writes a file; returns it as the table would know it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **{"compression": "zstd", **options})
    return live(path, len(rows))


def live(path: Path, rows: int, **more: Any) -> LiveFile:
    size = path.stat().st_size
    known = {"size": size, "rows": rows, "sequence_number": 1, "spec_id": 0}
    return LiveFile(path=str(path), **{**known, **more})


def group(*files: LiveFile) -> FileGroup:
    return FileGroup(snapshot_id=1, sequence_number=1, spec_id=0, files=files)


class _OneKey(pe.KmsClient):  # type: ignore[misc]
    """Keeps no secret: a key is wrapped as itself."""

    def __init__(self, _config: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _master: str) -> bytes:
        return key.hex().encode()

    def unwrap_key(self, wrapped: bytes, _master: str) -> bytes:
        return bytes.fromhex(wrapped.decode())


def encrypted(path: Path, rows: pa.Table, *, footer: bool) -> LiveFile:
    """Writes a file of which the columns, and the footer too if requested, are encrypted."""
    properties = pe.CryptoFactory(_OneKey).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(footer_key="k", uniform_encryption=True)
        if footer
        else pe.EncryptionConfiguration(
            footer_key="k", uniform_encryption=True, plaintext_footer=True
        ),
    )
    with pq.ParquetWriter(path, rows.schema, encryption_properties=properties) as writer:
        writer.write_table(rows)
    return live(path, len(rows))
