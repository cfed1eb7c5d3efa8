"""Merged files are sorted as the table says, by each engine."""

import datetime as dt
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
    TimestampType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration_tests.lake.merged_files import fill, group_of, ids, merged, numbered
from arctic_orchestration_tests.present import present


def order(catalog: Catalog, name: str, *fields: SortField) -> Table:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "text", StringType()),
        NestedField(3, "at", TimestampType()),
    )
    catalog.create_namespace_if_not_exists("lake")
    return catalog.create_table(name, schema, sort_order=SortOrder(*fields))


@pytest.mark.parametrize("engine", Engine)
def test_outputs_are_sorted_as_the_table_says(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """By the day, the latest first and no day last; then by the first letter; then by the id.

    Arrow does not sort by parts of texts; where it decodes, the whole text is the second key.
    """
    second: Transform[Any, Any] = (
        IdentityTransform() if engine is Engine.ARROW else TruncateTransform(1)
    )
    table = order(
        catalog,
        "lake.sorted",
        SortField(3, DayTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(2, second, SortDirection.ASC, NullOrder.NULLS_FIRST),
        SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST),
    )
    day, next_day = dt.datetime(1969, 12, 31, 23), dt.datetime(1970, 1, 1, 1)
    late = dt.datetime(1970, 1, 1, 23)
    rows = [
        (9, "b", next_day),
        (10, "bz", late),
        (None, "ba", next_day),
        (1, "z", day),
        (2, None, day),
        (100, "a", next_day),
        (3, None, None),
    ]
    values = [{"id": one, "text": text, "at": at} for one, text, at in rows]
    fill(table, values[:3], values[3:])
    done = merged(spark, table, group_of(table), engine=engine)
    # "b", "ba" and "bz", or b three times.
    third = [9, None, 10] if engine is Engine.ARROW else [9, 10, None]
    assert ids(done) == [100, *third, 2, 1, 3]
    assert done.sort_order_id == table.sort_order().order_id == 1


@pytest.mark.parametrize("engine", Engine)
def test_a_table_sorted_by_buckets(spark: SparkSession, catalog: Catalog, engine: Engine) -> None:
    """The buckets come in order, as pyiceberg counts them, whatever their first digits."""
    bucket: BucketTransform[int] = BucketTransform(16)
    table = order(
        catalog,
        "lake.buckets",
        SortField(1, bucket, SortDirection.ASC, NullOrder.NULLS_FIRST),
    )
    fill(table, *numbered(list(range(50)), list(range(50, 100))))
    done = merged(spark, table, group_of(table), target_bytes=1, engine=engine)
    found = [present(bucket.transform(LongType())(number)) for number in ids(done)]
    assert sorted(ids(done)) == list(range(100))
    assert found == sorted(found)
    assert len(set(found)) == 16
