"""The counts and bounds of files with values that pyiceberg cannot make bounds of."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_metrics import describe

#: 9999-12-31 is day 2932896, and 0001-01-01 day -719162
FIRST_DAY_AFTER_9999 = 2932897
LAST_DAY_BEFORE_YEAR_1 = -719163
MICROS_OF_A_DAY = 86_400_000_000


def table_with(catalog: Catalog, kind: IcebergType, **properties: str) -> Table:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", kind))
    return ensure_table(catalog, "lake.measured", schema, properties=properties)


def file_of(table: Table, values: pa.Array) -> str:
    """A file of the table with these values, whose ids count from 0."""
    path = f"{table.location()}/data/one.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    ids = pa.array(range(len(values)), pa.int64())
    schema = schema_to_pyarrow(table.schema())
    fields = [schema.field("id"), schema.field("value").with_type(values.type)]
    pq.write_table(pa.table([ids, values], schema=pa.schema(fields)), path)
    return path


def not_utf8() -> pa.Array:
    raw = pa.array([b"\xffA", b"b"], pa.binary())
    return pa.StringArray.from_buffers(2, *raw.buffers()[1:])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DateType(), pa.array([0, FIRST_DAY_AFTER_9999], pa.int32()).cast(pa.date32())),
        (DateType(), pa.array([LAST_DAY_BEFORE_YEAR_1, 0], pa.int32()).cast(pa.date32())),
        (
            TimestampType(),
            pa.array([0, FIRST_DAY_AFTER_9999 * MICROS_OF_A_DAY], pa.timestamp("us")),
        ),
        (StringType(), not_utf8()),
        (StringType(), pa.array(["a" * 15 + "\ud7ff" + "zzz", "a"])),
    ],
    ids=["after 9999", "before year 1", "timestamp", "not UTF-8", "before the surrogates"],
)
def test_a_column_without_possible_bounds_has_counts(
    catalog: Catalog, kind: IcebergType, values: pa.Array
) -> None:
    """The other columns of the file have bounds."""
    table = table_with(catalog, kind)
    found = describe(table, file_of(table, values), spec_id=0, partition=())
    assert dict(found.value_counts) == {1: 2, 2: 2}
    assert dict(found.null_value_counts) == {1: 0, 2: 0}
    assert dict(found.lower_bounds) == {1: bytes(8)}
    assert dict(found.upper_bounds) == {1: (1).to_bytes(8, "little")}


@pytest.mark.parametrize("mode", ["bogus", "truncate(0)", "truncate(x)"])
def test_an_invalid_metrics_mode_of_the_table_is_replaced_by_the_default(
    catalog: Catalog, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Iceberg, whose default is 16 characters; the greatest value is rounded up."""
    table = table_with(catalog, StringType(), **{"write.metadata.metrics.default": mode})
    found = describe(table, file_of(table, pa.array(["a" * 20])), spec_id=0, partition=())
    assert found.lower_bounds[2] == b"a" * 16
    assert found.upper_bounds[2] == b"a" * 15 + b"b"
    assert "write.metadata.metrics.default is ignored" in caplog.text


def test_an_invalid_metrics_mode_of_a_column_is_replaced_by_that_of_the_table(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """Other properties of metrics are no modes, and are not reported."""
    properties = {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.value": "bogus",
        "write.metadata.metrics.column.id": "full",
        "write.metadata.metrics.max-inferred-column-defaults": "100",
    }
    table = table_with(catalog, StringType(), **properties)
    found = describe(table, file_of(table, pa.array(["a"])), spec_id=0, partition=())
    assert dict(found.value_counts) == {1: 1, 2: 1}
    assert dict(found.lower_bounds) == {1: bytes(8)}
    assert [one.getMessage() for one in caplog.records] == [
        "the property write.metadata.metrics.column.value is ignored: "
        "Unsupported metrics mode: bogus"
    ]
