"""The files that the compaction benchmark merges: invented flights, the same ones every time."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

#: of all writers: parquet-java's own, which Spark and Iceberg's writers have too
ZSTD_LEVEL = 3

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "departed", TimestampType()),
    NestedField(3, "flight", IntegerType()),
    NestedField(4, "tail", StringType()),
    NestedField(5, "origin", StringType()),
    NestedField(6, "dest", StringType()),
    NestedField(7, "dep_delay", IntegerType()),
    NestedField(8, "arr_delay", IntegerType()),
    NestedField(9, "distance", DoubleType()),
    NestedField(10, "fuel", DoubleType()),
    NestedField(11, "note", StringType()),
)

_PORTS = np.array([f"X{number:02}" for number in range(106)])
_TAILS = np.array([f"N{number:05}" for number in range(4000)])
_WORDS = np.array(
    [
        "gate",
        "late",
        "crew",
        "fog",
        "de-icing",
        "slot",
        "fuel",
        "bag",
        "door",
        "tow",
        "none",
        "swap",
    ]
)
_YEAR_2013 = 1_356_998_400_000_000


def write_files(directory: Path, files: int, rows: int) -> list[Path]:
    """So many files of one row group each, two at a time; their paths in order."""
    directory.mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(partial(_write, directory, rows), range(files)))


def checksum(paths: Sequence[str | Path]) -> tuple[int, int]:
    """How many rows, and a number that changes with any value of any column of them."""
    columns = ", ".join(f'"{field.name}"' for field in SCHEMA.fields)
    # Timestamps that are adjusted to UTC and those that are not differ in type, not in value.
    columns = columns.replace('"departed"', 'epoch_us("departed")')
    query = f"select count(*), sum(hash({columns})::hugeint) from read_parquet(?)"
    with duckdb.connect(config={"threads": 2}) as connection:
        row = connection.execute(query, [[str(path) for path in paths]]).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _write(directory: Path, rows: int, number: int) -> Path:
    path = directory / f"part-{number:05}.parquet"
    pq.write_table(
        _flights(rows, number),
        path,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        row_group_size=rows,
    )
    return path


def _flights(rows: int, number: int) -> pa.Table:
    seed = int.from_bytes(hashlib.sha256(str(number).encode()).digest()[:8])
    random = np.random.default_rng(seed)
    delay = random.gamma(1.2, 18, rows).astype("int32") - 10
    unknown = random.random(rows) < 0.03
    notes = np.char.add(
        np.char.add(_WORDS[random.integers(0, len(_WORDS), rows)], " "),
        random.integers(0, 100_000, rows).astype(str),
    )
    gaps = random.integers(1, 120_000_000, rows)
    columns = [
        np.arange(rows, dtype="int64") + number * 10_000_000,
        _YEAR_2013 + number * 3_600_000_000 + np.cumsum(gaps),
        random.integers(1, 8000, rows).astype("int32"),
        _TAILS[random.integers(0, len(_TAILS), rows)],
        _PORTS[random.integers(0, len(_PORTS), rows)],
        _PORTS[random.integers(0, len(_PORTS), rows)],
        pa.array(delay, mask=unknown),
        pa.array(delay + random.normal(0, 12, rows).astype("int32"), mask=unknown),
        np.round(random.gamma(2, 500, rows)),
        np.round(random.gamma(3, 900, rows), 2),
        notes,
    ]
    schema = schema_to_pyarrow(SCHEMA)
    strings = [pa.field(field.name, _narrow(field.type), True, field.metadata) for field in schema]
    return pa.Table.from_arrays(
        [pa.array(column).cast(field.type) for column, field in zip(columns, strings, strict=True)],
        schema=pa.schema(strings),
    )


def _narrow(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind
