"""Iceberg's geometry and geography in Arrow: bytes that Parquet files annotate."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import GeographyType, GeometryType

SHAPES = (GeometryType, GeographyType)


class ShapeType(pa.ExtensionType):  # type: ignore[misc]
    """Well-known binary. Arrow's writer annotates columns of this name as Iceberg requires.

    Source: the extension type ``geoarrow.wkb`` of the GeoArrow specification.
    """

    def __init__(self, **metadata: str) -> None:
        self._metadata = metadata
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self._metadata).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, serialized: bytes) -> "ShapeType":
        return cls(**json.loads(serialized))


def is_annotated(kind: pa.DataType) -> bool:
    """Returns whether Arrow's writer annotates a type: before Arrow 21, it writes bytes alone."""
    written = pa.BufferOutputStream()
    pq.ParquetWriter(written, pa.schema([("x", kind)])).close()
    schema = pq.ParquetFile(pa.BufferReader(written.getvalue())).schema
    return bool(schema.column(0).logical_type.type != "NONE")


def shape_type(kind: GeometryType | GeographyType) -> ShapeType:
    """Returns Arrow's type for a type of shapes."""
    if isinstance(kind, GeographyType):
        return ShapeType(crs=kind.crs, edges=kind.algorithm)
    return ShapeType(crs=kind.crs)
