"""Appends that are repeated, that replace, that do not fit, and that are not answered."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    FixedType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.errors import (
    CommitConflict,
    ConfigurationError,
    InvalidInput,
    SchemaMismatch,
    UnsupportedTable,
)
from arctic_orchestration.lake import append, ensure_table, read
from arctic_orchestration.lake.scan_sizes import scan_size
from arctic_orchestration_tests.lake.appended_rows import (
    BY_ORIGIN,
    SCHEMA,
    files_in,
    ids,
    live_files,
    rows,
)
from arctic_orchestration_tests.lake.failing_commits import Catalogue
from arctic_orchestration_tests.lake.row_filters import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    Or,
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_table(catalog, "lake.flights", SCHEMA, partition_spec=BY_ORIGIN)


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch, table: Table) -> Catalogue:
    return Catalogue(monkeypatch, table)


def test_an_append_with_a_key_is_there_once(spark: SparkSession, table: Table) -> None:
    """The second append with the key returns the first one's snapshot and writes no file."""
    first = append(spark, rows(spark, (1, "JFK", 0.5)), table, once="run-1")
    append(spark, rows(spark, (2, "JFK", 0.5)), table, once="run-2")
    before = files_in(table)
    again = append(spark, rows(spark, (1, "JFK", 0.5)), table, once="run-1")
    assert (again.snapshot_id, again.rows, again.files, again.written) == (
        first.snapshot_id,
        1,
        1,
        False,
    )
    assert again.bytes == first.bytes > 0
    assert ids(table) == [1, 2]
    assert files_in(table) == before


def test_a_partition_replaced_twice_is_there_once(spark: SparkSession, table: Table) -> None:
    """The same day's rows again and again: one copy, and the other partitions untouched."""
    append(spark, rows(spark, (1, "LGA", 0.0)), table)
    for _ in range(3):
        jfk = rows(spark, (10, "JFK", 1.0), (11, "JFK", 2.0))
        append(spark, jfk, table, replacing=EqualTo("origin", "JFK"))
    assert ids(table) == [1, 10, 11]
    assert [snapshot.summary.operation.value for snapshot in table.snapshots()] == [  # type: ignore[union-attr]
        "append",
        "append",
        "overwrite",
        "overwrite",
    ]


@pytest.mark.parametrize(
    ("replacing", "stay"),
    [
        (LessThan("id", 3), [3, 4, 5, 6]),
        (And(EqualTo("origin", "JFK"), GreaterThanOrEqual("id", 2)), [1, 4, 5, 6]),
        # A null is not different from 1.0: row 5 stays. NaN (row 6) is.
        (NotEqualTo("delay", 1.0), [1, 4, 5]),
        (LessThan("delay", 2.0), [2, 3, 5, 6]),
        (EqualTo("origin", "nowhere"), [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_rows_that_do_not_match_stay(
    spark: SparkSession, table: Table, replacing: BooleanExpression, stay: list[int]
) -> None:
    """Filters that cut through files: the rest of such a file is kept, in the same snapshot."""
    append(
        spark,
        rows(
            spark,
            (1, "JFK", 1.0),
            (2, "JFK", 2.0),
            (3, "JFK", 3.0),
            (4, "LGA", 1.0),
            (5, None, None),
            (6, "LGA", float("nan")),
        ),
        table,
    )
    before = len(table.snapshots())
    appended = append(spark, rows(spark, (7, "EWR", 1.0)), table, replacing=replacing)
    assert ids(table) == [*stay, 7]
    assert len(table.snapshots()) == before + 1
    assert (appended.rows, appended.files) == (1, 1)
    kept = {row.id: (row.origin, row.delay) for row in read(spark, table).collect()}
    if 4 in stay:
        assert kept[4] == ("LGA", 1.0)


def test_rows_are_replaced_by_a_field_of_a_struct(spark: SparkSession, catalog: Catalog) -> None:
    """Statistics of such fields decide nothing, not even where no value is null."""
    inside = StructType(NestedField(3, "origin", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "flight", inside))
    table = ensure_table(catalog, "lake.structs", schema)
    kind = "id long, flight struct<origin:string>"
    append(spark, spark.createDataFrame([(1, ("JFK",)), (2, ("LGA",))], kind).coalesce(1), table)
    jfk = spark.createDataFrame([(3, ("JFK",))], kind)
    append(spark, jfk, table, replacing=EqualTo("flight.origin", "JFK"))
    assert ids(table) == [2, 3]
    append(spark, jfk, table, replacing=NotEqualTo("flight.origin", "EWR"))
    assert ids(table) == [3]


@pytest.mark.parametrize("compared", [LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual])
def test_a_null_partition_is_compared(
    spark: SparkSession, table: Table, compared: Callable[[str, object], BooleanExpression]
) -> None:
    """A filter may select the rows of a null partition by one part, and compare them by another."""
    append(spark, rows(spark, (1, None, 0.0), (2, "JFK", 0.0), (3, None, 9.0)), table)
    either = Or(EqualTo("delay", 0.0), compared("origin", "KKK"))
    assert sorted(row.id for row in read(spark, table, row_filter=either).collect()) == [1, 2]
    assert scan_size(table, either, table.snapshots()[-1]).files == 2
    append(spark, rows(spark, (4, "LGA", 0.0)), table, replacing=either)
    assert ids(table) == [3, 4]


@pytest.mark.parametrize(
    ("replacing", "stay"),
    [
        (EqualTo("delay", 1.0), [2]),
        (In("delay", {1.0, 2.0}), [2]),
        (LessThan("delay", 2.0), [2]),
        (LessThanOrEqual("delay", 1.0), [2]),
        (GreaterThan("delay", 0.0), [2]),
        (GreaterThanOrEqual("delay", 1.0), [2]),
        (NotEqualTo("delay", 2.0), []),
    ],
    ids=str,
)
def test_rows_of_a_file_without_a_count_of_nan_stay(
    spark: SparkSession, table: Table, replacing: BooleanExpression, stay: list[int]
) -> None:
    """As pyiceberg writes them: by its bounds and its counts, all rows would be 1.0."""
    delays = [1.0, float("nan")]
    table.append(
        pa.table(
            {"id": [1, 2], "origin": ["JFK"] * 2, "delay": delays},
            schema=schema_to_pyarrow(SCHEMA),
        )
    )
    (task,) = table.scan().plan_files()
    assert not task.file.nan_value_counts
    append(spark, rows(spark, (7, "EWR", 9.0)), table, replacing=replacing)
    assert ids(table) == [*stay, 7]


def test_partitions_of_doubles_keep_their_values(spark: SparkSession, catalog: Catalog) -> None:
    """Values that 32 bits round, or cannot hold, are read from manifests and written to them."""
    by_delay = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "delay"))
    table = ensure_table(catalog, "lake.by_delay", SCHEMA, partition_spec=by_delay)
    append(
        spark,
        rows(spark, (1, None, 0.1), (2, None, 0.1 + 1e-12), (3, None, 1e300), (4, None, None)),
        table,
    )
    partitions = {task.file.partition[0] for task in table.scan().plan_files()}
    assert partitions == {0.1, 0.1 + 1e-12, 1e300, None}
    assert [row.id for row in read(spark, table, row_filter=EqualTo("delay", 0.1)).collect()] == [1]
    append(spark, rows(spark, (5, None, 0.5)), table, replacing=GreaterThan("delay", 0.1))
    assert ids(table) == [1, 4, 5]


def test_smaller_numbers_are_widened_and_optional_columns_may_be_missing(
    spark: SparkSession, table: Table
) -> None:
    """Columns in another order, a smallint, a float, no origin."""
    frame = spark.sql("select cast(0.5 as float) as delay, cast(3 as smallint) as id")
    append(spark, frame, table)
    assert table.scan().to_arrow().to_pylist() == [{"id": 3, "origin": None, "delay": 0.5}]


def test_a_list_of_required_elements_may_be_missing(spark: SparkSession, catalog: Catalog) -> None:
    """As a column and as a field of a struct; or be a null without a type."""
    legs = ListType(5, LongType(), element_required=True)
    trip = StructType(NestedField(3, "id", LongType()), NestedField(4, "legs", legs))
    hops = NestedField(2, "hops", ListType(6, LongType(), element_required=True))
    schema = Schema(NestedField(1, "trip", trip), hops)
    table = ensure_table(catalog, "lake.trips", schema)
    for query in ("named_struct('id', 1L) as trip", "null as trip, null as hops"):
        append(spark, spark.sql(f"select {query}"), table)
    found = table.scan().to_arrow().to_pylist()
    assert found == [{"trip": None, "hops": None}, {"trip": {"id": 1, "legs": None}, "hops": None}]


def test_rows_that_do_not_fit_are_refused_by_name(spark: SparkSession, table: Table) -> None:
    """An unknown column, a wrong type and a missing required one, all in one message."""
    frame = spark.sql("select 'x' as delay, 1 as gate")
    with pytest.raises(SchemaMismatch) as refusal:
        append(spark, frame, table)
    message = str(refusal.value)
    assert "column delay: got string, expected double" in message
    assert "column gate: got int, expected no such column" in message
    assert "column id: got nothing, expected long (required)" in message
    assert files_in(table) == set()
    assert table.snapshots() == []


def test_a_number_that_would_lose_digits_is_refused(spark: SparkSession, table: Table) -> None:
    """Decimals and doubles do not become longs."""
    frame = spark.sql("select 1.5d as id")
    with pytest.raises(SchemaMismatch, match="column id: got double, expected long"):
        append(spark, frame, table)


def test_a_null_in_a_required_column_is_refused(
    spark: SparkSession, table: Table, catalog: Catalog
) -> None:
    """At the top and inside lists of structs; nothing is committed and no file stays."""
    with pytest.raises(SchemaMismatch, match="column id: got a null"):
        append(spark, rows(spark, (1, "JFK", 0.0), (None, "JFK", 0.0)), table)
    inside = StructType(NestedField(3, "x", LongType(), required=True))
    schema = Schema(NestedField(1, "legs", ListType(2, inside, element_required=True)))
    legs = ensure_table(catalog, "lake.legs", schema)
    kind = "legs array<struct<x: long>>"
    append(spark, spark.createDataFrame([([(1,)],), (None,), ([],)], kind), legs)
    with pytest.raises(SchemaMismatch, match=r"column legs\.element\.x: got a null"):
        append(spark, spark.createDataFrame([([(1,), (None,)],)], kind), legs)
    with pytest.raises(SchemaMismatch, match=r"column legs\.element: got a null"):
        append(spark, spark.createDataFrame([([None],)], kind), legs)
    assert files_in(table) == set()
    assert files_in(legs) == live_files(legs)


@pytest.mark.parametrize(
    ("kind", "name"), [(UUIDType(), "uuid"), (FixedType(16), r"fixed\[16\]"), (TimeType(), "time")]
)
def test_types_that_do_not_survive_are_refused_by_name(
    spark: SparkSession, catalog: Catalog, kind: Any, name: str
) -> None:
    """When the table is made, and when another program made it: before anything is written."""
    deep = StructType(NestedField(3, "code", kind))
    schema = Schema(NestedField(1, "list", ListType(2, deep)))
    reason = rf"column list\.element\.code: type {name} does not survive Spark"
    with pytest.raises(UnsupportedTable, match=reason):
        ensure_table(catalog, "lake.refused", schema)
    catalog.create_namespace("other")
    theirs = catalog.create_table("other.theirs", schema)
    with pytest.raises(UnsupportedTable, match=reason):
        append(spark, spark.range(1), theirs)
    with pytest.raises(UnsupportedTable, match=reason):
        read(spark, theirs)
    assert files_in(theirs) == set()


def test_format_version_4_and_columns_that_differ_in_case_are_refused(catalog: Catalog) -> None:
    """pyiceberg does not know version 4; Spark takes `Id` and `id` for one column."""
    with pytest.raises(UnsupportedTable, match="got format version 4, expected 1, 2 or 3"):
        ensure_table(catalog, "lake.v4", SCHEMA, properties={"format-version": "4"})
    twins = Schema(NestedField(1, "id", LongType()), NestedField(2, "Id", LongType()))
    with pytest.raises(UnsupportedTable, match="column Id: Spark does not distinguish it from id"):
        ensure_table(catalog, "lake.twins", twins)


def test_a_session_without_the_needed_settings_is_refused(
    spark: SparkSession, table: Table
) -> None:
    """A session in New York's time would put flights into the wrong days."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with pytest.raises(ConfigurationError, match="timeZone is 'America/New_York'"):
            append(spark, rows(spark, (1, "JFK", 0.0)), table)
        with pytest.raises(ConfigurationError, match="expected 'UTC'"):
            read(spark, table)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_schema_that_changes_meanwhile_is_a_conflict(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """The files were written for columns that the table no longer has; a new append works."""

    def change_and_refuse(*_: Any) -> Any:
        other = table.catalog.load_table(table.name())
        with other.update_schema() as update:
            update.rename_column("origin", "airport")
        raise CommitFailedException("the schema is another one")

    catalogue.answers = [change_and_refuse]
    with pytest.raises(CommitConflict, match="the columns were changed"):
        append(spark, rows(spark, (1, "JFK", 0.0)), table)
    assert files_in(table) == set()
    append(spark, rows(spark, (1, "JFK", 0.0)).withColumnRenamed("origin", "airport"), table)
    assert ids(table) == [1]


def test_a_replacement_sees_what_was_appended_just_before_it(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """Another writer is first with a row that matches: it came before, so it is replaced too."""
    append(spark, rows(spark, (1, "JFK", 0.0), (2, "JFK", 9.0)), table)

    def let_another_go_first(*_: Any) -> Any:
        other = table.catalog.load_table(table.name())
        append(spark, rows(spark, (3, "JFK", 1.0), (4, "JFK", 8.0)), other)
        raise CommitFailedException("another writer was first")

    catalogue.answers = [let_another_go_first]
    append(spark, rows(spark, (5, "JFK", 0.0)), table, replacing=LessThan("delay", 5.0))
    assert ids(table) == [2, 4, 5]


def test_the_same_key_from_two_writers_is_there_once(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """Both began before either committed: the second finds the key and removes its files."""

    def let_the_twin_go_first(*_: Any) -> Any:
        twin = table.catalog.load_table(table.name())
        append(spark, rows(spark, (1, "JFK", 0.0)), twin, once="job")
        raise CommitFailedException("the twin was first")

    catalogue.answers = [let_the_twin_go_first]
    appended = append(spark, rows(spark, (1, "JFK", 0.0)), table, once="job")
    assert not appended.written
    assert ids(table) == [1]
    assert files_in(table) == live_files(table)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("write.summary.partition-limit", "a whole number"),
        ("commit.manifest-merge.enabled", "true or false"),
    ],
)
def test_a_property_that_cannot_be_read_is_named(
    spark: SparkSession, table: Table, key: str, expected: str
) -> None:
    """Nothing is appended."""
    with table.transaction() as change:
        change.set_properties({key: "x"})
    with pytest.raises(InvalidInput, match=f"{key}: got 'x', expected {expected}"):
        append(spark, rows(spark, (1, "JFK", 0.5)), table)
    assert table.refresh().snapshots() == []
