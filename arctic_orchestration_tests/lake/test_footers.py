"""Field ids that Spark leaves out are put into the footer, and nothing else changes."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, MapType, NestedField, StringType, StructType
from pyspark.sql import SparkSession

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.parquet_footers import with_ids
from arctic_orchestration.lake.schema import spark_schema

SCHEMA = Schema(
    NestedField(1, "plain", StringType()),
    NestedField(
        2,
        "list",
        ListType(200, StructType(NestedField(7, "list", ListType(1_000_000, IntegerType())))),
    ),
    NestedField(
        3, "map", MapType(31, StringType(), 16_384, MapType(33, IntegerType(), 34, StringType()))
    ),
)

#: Written down from the schema above, in the order of the file.
EXPECTED = {
    "plain": 1,
    "list": 2,
    "list.list.element": 200,
    "list.list.element.list": 7,
    "list.list.element.list.list.element": 1_000_000,
    "map": 3,
    "map.key_value.key": 31,
    "map.key_value.value": 16_384,
    "map.key_value.value.key_value.key": 33,
    "map.key_value.value.key_value.value": 34,
}


def test_every_field_has_its_id_and_the_data_is_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file of Spark with lists and maps in one another, read by pyarrow before and after."""
    row = ("a", [([1, None],), None, (None,)], {"k": {5: "v", 6: None}, "n": None})
    frame = spark.createDataFrame([row, (None, None, None)], spark_schema(SCHEMA)).coalesce(1)
    frame.write.parquet(str(tmp_path / "written"))
    (source,) = (tmp_path / "written").glob("*.parquet")
    content = source.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer = with_ids(content[-8 - size : -8], SCHEMA)
    edited = tmp_path / "edited.parquet"
    edited.write_bytes(content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert pq.read_table(edited).to_pylist() == pq.read_table(source).to_pylist()
    found = dict(_ids(pq.read_schema(edited)))
    assert found == EXPECTED
    assert with_ids(footer, SCHEMA) == footer


def test_a_footer_of_another_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The ids would have no place to go."""
    spark.range(1).coalesce(1).write.parquet(str(tmp_path / "written"))
    (source,) = (tmp_path / "written").glob("*.parquet")
    content = source.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    with pytest.raises(LakeError, match="has no fields"):
        with_ids(content[-8 - size : -8], SCHEMA)


def _ids(schema: object) -> list[tuple[str, int]]:
    """Path and id of each field, as pyarrow sees them."""
    import pyarrow as pa

    found: list[tuple[str, int]] = []

    def walk(field: pa.Field, path: str) -> None:
        found.append((path, int(field.metadata[b"PARQUET:field_id"])))
        kind = field.type
        if pa.types.is_list(kind):
            walk(kind.value_field, f"{path}.list.element")
        elif pa.types.is_map(kind):
            walk(kind.key_field, f"{path}.key_value.key")
            walk(kind.item_field, f"{path}.key_value.value")
        elif pa.types.is_struct(kind):
            for child in kind:
                walk(child, f"{path}.{child.name}")

    assert isinstance(schema, pa.Schema)
    for top in schema:
        walk(top, top.name)
    return found
