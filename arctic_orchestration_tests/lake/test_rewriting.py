"""Plain files are decoded by Arrow in a worker of Spark, and other readers find the same rows."""

import datetime as dt
import decimal
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.lake import arrow_files as module
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.arrow_files import Writing
from arctic_orchestration.lake.merging.arrow_rewrite import rewrite_files
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.plain_files import PlainFile, PlainFiles
from arctic_orchestration.lake.schema import spark_schema
from arctic_orchestration_tests.lake.merged_files import (
    fill,
    group_of,
    merged,
)
from arctic_orchestration_tests.lake.random_tables import SCHEMA as RANDOM
from arctic_orchestration_tests.lake.random_tables import VALUES
from arctic_orchestration_tests.lake.worker_files import FullFileIO

ID = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
LOCAL = PyArrowFileIO()
UTC = dt.UTC

NOTHING: dict[str, Any] = dict.fromkeys(field.name for field in RANDOM.fields)
_INNER = {"a": None, "b": None}
HAND = [
    NOTHING | {"row": 0},
    NOTHING | {"row": 1, "text": "", "raw": b"", "list": [], "map": {}, "struct": _INNER},
    NOTHING
    | {"row": 2, "list": [None, _INNER, {"a": 1, "b": []}], "map": {"": None, "k": _INNER}}
    | {"struct": {"a": 2**31 - 1, "b": [None, "", "é\U0001f6eb"]}, "raw": b"\x00\xff\x80"},
    NOTHING | {"row": 3, "single": math.nan, "double": math.nan, "flag": False},
    NOTHING | {"row": 4, "single": -0.0, "double": -0.0, "flag": True},
    NOTHING | {"row": 5, "single": math.inf, "double": -math.inf, "text": "x" * 70_000},
    NOTHING | {"row": 6, "day": dt.date.min, "wall": dt.datetime(1, 1, 1), "big": -(2**63)},
    NOTHING
    | {
        "row": 7,
        "day": dt.date.max,
        "wall": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "big": 2**63 - 1,
    },
    NOTHING | {"row": 8, "moment": dt.datetime(1, 1, 1, tzinfo=UTC), "key": -(2**31)},
    NOTHING | {"row": 9, "moment": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)},
    NOTHING | {"row": 10, "price": decimal.Decimal("-9999999.99"), "huge": decimal.Decimal(0)},
    NOTHING
    | {"row": 11, "price": decimal.Decimal("0.01")}
    | {"huge": decimal.Decimal("-9999999999999999999999999999.9999999999")},
]


def written(path: Path, rows: pa.Table, **options: Any) -> str:
    pq.write_table(rows, path, **options)
    return str(path)


def plain_of(schema: Schema, rows: int = 1 << 40, **more: Any) -> Writing:
    from arctic_orchestration.lake.merging.plain_files import _columns

    return Writing(columns=_columns(schema), rows_per_file=rows, **more)


def inputs_of(schema: Schema, *paths: str) -> PlainFiles:
    return PlainFiles(files=tuple(PlainFile(path=path) for path in paths), schema=schema)


def by_arrow(paths: Sequence[str]) -> list[str]:
    """The rows as text, since NaN and minus zero are not distinguished otherwise."""
    found = []
    for path in paths:
        rows = pq.ParquetFile(path).read()
        found += [repr(row) for row in rows.to_pylist()]
    return found


def by_duckdb(paths: Sequence[str]) -> list[str]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        query = "select columns(*)::varchar from read_parquet(?) order by row"
        return list(map(repr, connection.execute(query, [list(paths)]).fetchall()))


def by_spark(spark: SparkSession, table: Table, paths: Sequence[str]) -> list[str]:
    """By field ids; as text, since Python cannot hold all times of all zones."""
    rows = spark.read.schema(spark_schema(table.schema())).parquet(*paths).orderBy("row")
    text = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    return [row[0] for row in rows.select(text).collect()]


def test_every_reader_finds_the_same_rows(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """Nulls and empty values, NaN and minus zero, the first and the last day."""
    table = ensure_table(catalog, "lake.hand", RANDOM)
    fill(table, HAND[:5], HAND[5:])
    group = group_of(table)
    inputs = [file.path for file in group.files]
    done = merged(spark, table, group, engine=Engine.ARROW)
    outputs = [output.path for output in done.outputs]
    assert len(outputs) == 1
    assert by_arrow(outputs) == by_arrow(inputs)
    assert by_duckdb(outputs) == by_duckdb(inputs)
    assert by_spark(spark, table, outputs) == by_spark(spark, table, inputs)
    table.add_files(outputs)
    scanned = table.scan().to_arrow()
    # pyiceberg gives an empty list or map of structs for a null one.
    flat = [name for name in scanned.column_names if name not in ("list", "map")]
    expected = [
        repr(row) for path in inputs for row in pq.read_table(path, columns=flat).to_pylist()
    ]
    assert list(map(repr, scanned.select(flat).to_pylist())) == expected


def test_files_are_as_the_specification_has_them(spark: SparkSession, catalog: Catalog) -> None:
    """Ids everywhere, decimals by their precision, UTC or not, optional, with all statistics."""
    table = ensure_table(catalog, "lake.physical", RANDOM)
    fill(table, HAND[:2], HAND[6:])
    (output,) = merged(spark, table, group_of(table), engine=Engine.ARROW).outputs
    file = pq.ParquetFile(output.path)
    found = pyarrow_to_schema(file.schema_arrow)
    assert found.as_struct() == table.schema().as_struct()
    assert set(found._lazy_id_to_field) == set(table.schema()._lazy_id_to_field)
    kinds = {file.schema.column(n).path: file.schema.column(n) for n in range(len(file.schema))}
    assert kinds["price"].physical_type == "INT32"
    assert (kinds["huge"].physical_type, kinds["huge"].length) == ("FIXED_LEN_BYTE_ARRAY", 16)
    assert '"isAdjustedToUTC": false' in kinds["wall"].logical_type.to_json().replace(":", ": ")
    assert '"isAdjustedToUTC": true' in kinds["moment"].logical_type.to_json().replace(":", ": ")
    assert b"ARROW:schema" not in (file.metadata.metadata or {})
    group = file.metadata.row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        assert (column.compression, column.is_stats_set) == ("ZSTD", True), column.path_in_schema
        assert column.statistics.has_null_count
        assert column.has_column_index


def test_timestamps_and_days_that_python_cannot_say(tmp_path: Path) -> None:
    """Both ends of 64 and 32 bits are the same numbers afterwards."""
    numbers = pa.array([-(2**63) + 1, -1, 0, 2**63 - 1], pa.int64())
    days = pa.array([-(2**31), -1, 0, 2**31 - 1], pa.int32())
    schema = RANDOM.select("wall", "moment", "day", "row")
    arrow = schema_to_pyarrow(schema)
    columns = [
        numbers.cast(arrow.field(name).type) if name != "day" else days.cast(pa.date32())
        for name in arrow.names
    ]
    path = written(tmp_path / "far.parquet", pa.Table.from_arrays(columns, schema=arrow))
    inputs = inputs_of(schema, path)
    done = rewrite_files(LOCAL, inputs, str(tmp_path / "out"), plain_of(schema), name="x")
    (output,) = done.paths
    found = pq.ParquetFile(output).read()
    for name in ("wall", "moment"):
        assert found[name].cast(pa.int64()).to_pylist() == numbers.to_pylist()
    assert found["day"].cast(pa.int32()).to_pylist() == days.to_pylist()


rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=12,
)


@pytest.mark.proof
@settings(
    max_examples=300 if os.environ.get("ARCTIC_PROOF") == "full" else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(files=st.lists(rows, min_size=1, max_size=4), data=st.data())
def test_any_rows_come_out_in_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[dict[str, Any]]], data: Any
) -> None:
    """However inputs are cut into row groups and encoded, and whatever is written at a time."""
    home = tmp_path_factory.mktemp("rows")
    schema = schema_to_pyarrow(RANDOM)
    number = 0
    inputs = []
    for place, values in enumerate(files):
        listed = [row | {"row": number + n} for n, row in enumerate(values)]
        number += len(listed)
        inputs.append(
            written(
                home / f"{place}.parquet",
                pa.Table.from_pylist(listed, schema),
                row_group_size=data.draw(st.integers(1, 6)),
                use_dictionary=data.draw(st.booleans()),
                store_schema=data.draw(st.booleans()),
                version=data.draw(st.sampled_from(["1.0", "2.6"])),
                compression=data.draw(st.sampled_from(["none", "snappy", "zstd"])),
                coerce_timestamps="us",
            )
        )
    per_file = data.draw(st.integers(1, number))
    writing = plain_of(
        RANDOM, per_file, row_group_bytes=data.draw(st.sampled_from([1, 500, 1 << 20]))
    )
    plain = inputs_of(RANDOM, *inputs)
    outputs = rewrite_files(LOCAL, plain, str(home / "out"), writing, name="x").paths
    assert by_arrow(outputs) == by_arrow(inputs)
    assert by_duckdb(outputs) == by_duckdb(inputs)
    found = [pq.read_metadata(output).num_rows for output in outputs]
    assert found == [per_file] * (number // per_file) + [number % per_file] * (
        number % per_file > 0
    )


def test_row_groups_are_bounded_by_bytes_and_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 rows of 100 letters and a number of 8 bytes: about 112 bytes a row."""
    monkeypatch.setattr(module, "_FIRST_ROWS", 100)
    texts = pa.table({"id": range(10_000), "text": [f"{n:0100}" for n in range(10_000)]})
    one = written(tmp_path / "in.parquet", texts.cast(schema_to_pyarrow(ID)))

    def sizes(name: str) -> list[int]:
        writing = plain_of(ID, 10_000, row_group_bytes=112_000)
        done = rewrite_files(LOCAL, inputs_of(ID, one), str(tmp_path), writing, name=name)
        (output,) = done.paths
        metadata = pq.read_metadata(output)
        return [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]

    assert all(900 < size <= 1200 for size in sizes("bytes")[:-1])
    monkeypatch.setattr(module, "_ROW_GROUP_ROWS", 300)
    # Not 33 of 300 and one of 100.
    assert sizes("rows") == [295] * 33 + [265]


def test_large_row_groups_are_read_through_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is the same."""
    monkeypatch.setattr(module, "_MOST_HELD", 1000)
    monkeypatch.setattr(module, "_BUFFER", 4096)
    monkeypatch.setattr(module, "_FIRST_ROWS", 10)
    texts = pa.table({"id": range(5000), "text": [f"{n * 7919:0100}" for n in range(5000)]})
    one = written(tmp_path / "in.parquet", texts.cast(schema_to_pyarrow(ID)), row_group_size=2000)
    outputs = rewrite_files(LOCAL, inputs_of(ID, one), str(tmp_path), plain_of(ID), name="x").paths
    assert by_arrow(outputs) == by_arrow([one])


def test_what_is_not_kept_is_decoded_in_pieces_too(tmp_path: Path) -> None:
    """The width of rows is that of what is decoded: 4,000 bytes, of which a dictionary has one."""
    wide = pa.table({"id": range(30_000), "text": ["x" * 4000] * 30_000})
    one = written(tmp_path / "wide.parquet", wide.cast(schema_to_pyarrow(ID)), row_group_size=9000)
    assert os.path.getsize(one) < 400_000
    most = 8 << 20
    for keep in (
        lambda rows: rows,
        lambda rows: rows.select(["id"]),
        lambda rows: rows.slice(0, 0),
    ):
        seen: list[int] = []

        def convert(
            rows: pa.Table, seen: list[int] = seen, keep: Callable[[pa.Table], pa.Table] = keep
        ) -> pa.Table:
            seen.append(len(rows))
            return keep(rows)

        list(module.pieces(LOCAL, one, most, convert))
        assert sum(seen) == 30_000
        # But for the first one, whose width is unknown.
        assert max(seen[1:]) * 4000 <= most


def test_what_cannot_be_removed_does_not_look_whole(tmp_path: Path) -> None:
    """No footer is written by closing what was being written."""
    texts = pa.table({"id": range(9000), "text": [f"{n * 7919:0100}" for n in range(9000)]})
    one = written(tmp_path / "in.parquet", texts.cast(schema_to_pyarrow(ID)))
    for room in (0, 100, 20_000):
        io = FullFileIO({"room": str(room), "keeps": "yes"})
        with pytest.raises(OSError, match="No space"):
            writing = plain_of(ID, row_group_bytes=100_000)
            rewrite_files(io, inputs_of(ID, one), str(tmp_path), writing, name=f"out-{room}")
        left = tmp_path / f"out-{room}-00000.parquet"
        assert left.stat().st_size <= room
        assert left.read_bytes()[-4:] != b"PAR1" or room == 100
        with pytest.raises(pa.ArrowInvalid):
            pq.read_metadata(left)
