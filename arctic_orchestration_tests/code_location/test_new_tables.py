"""The columns of a table that is made for the rows of a query; no Spark is started."""

import pyspark.sql.types as spark
import pytest

from arctic_orchestration.errors import UnsupportedTable
from arctic_orchestration.freshness.dagster.new_tables import schema_for
from arctic_orchestration.lake.schema import spark_schema

#: what comes back as it went in
KEPT = {
    "yes": spark.BooleanType(),
    "whole": spark.IntegerType(),
    "long": spark.LongType(),
    "single": spark.FloatType(),
    "double": spark.DoubleType(),
    "money": spark.DecimalType(12, 2),
    "day": spark.DateType(),
    "instant": spark.TimestampType(),
    "wall": spark.TimestampNTZType(),
    "text": spark.StringType(),
    "bytes": spark.BinaryType(),
}


def rows(**columns: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in columns.items()])


def test_columns_are_numbered_in_their_order_and_optional() -> None:
    """And Spark reads them as the types that it wrote."""
    schema = schema_for(rows(**KEPT), "n.t")
    assert [field.field_id for field in schema.fields] == list(range(1, 12))
    assert not any(field.required for field in schema.fields)
    assert {field.name: field.dataType for field in spark_schema(schema).fields} == KEPT


def test_small_numbers_become_whole_ones() -> None:
    """Iceberg has no shorter ones."""
    schema = schema_for(rows(a=spark.ByteType(), b=spark.ShortType()), "n.t")
    assert [str(field.field_type) for field in schema.fields] == ["int", "int"]


def test_types_that_a_person_had_better_choose_are_refused() -> None:
    """All of them, by column, with what to do; and names that Spark does not tell apart."""
    bad = rows(
        nothing=spark.NullType(),
        many=spark.ArrayType(spark.LongType()),
        n=spark.LongType(),
        N=spark.LongType(),
    )
    with pytest.raises(UnsupportedTable) as refused:
        schema_for(bad, "n.t")
    assert str(refused.value) == (
        "n.t is to be made: column nothing: got void, expected a plain type; cast it; "
        "column many: got array<bigint>, expected a plain type; cast it; "
        "column N: got it twice, expected it once"
    )
