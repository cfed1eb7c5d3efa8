"""Rows that are deleted stay deleted when files are merged, and no others go.

Each engine decodes them.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.errors import UnsupportedTable
from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging import live_rows as live_rows_module
from arctic_orchestration.lake.merging.merge import Engine, Merged
from arctic_orchestration_tests.lake import merged_files
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    fill,
    group_of,
    position_delete,
    rows_of,
    with_deletes,
)

PAIR = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
ODD = "a [b]{c,d} *?#%20é\\x+&=:;,@~^|'\"`()<>!$ü日"


def rows(table: Table, *files: Sequence[tuple[object, ...]]) -> None:
    """One file for each list of rows."""
    names = [field.name for field in table.schema().fields]
    fill(table, *([dict(zip(names, row, strict=True)) for row in some] for some in files))


def ids(done: object) -> list[object]:
    return [row["id"] for row in rows_of(done)]  # type: ignore[arg-type]


_engine = Engine.SPARK


@pytest.fixture(autouse=True, params=list(Engine))
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(sys.modules[__name__], "_engine", request.param)
    found: Engine = request.param
    return found


def merged(spark: SparkSession, table: Table, group: FileGroup) -> Merged:
    return merged_files.merged(spark, table, group, engine=_engine)


@pytest.fixture
def pair(catalog: Catalog) -> Table:
    """Two files: 0 a, 1 b, null c, 3 null; 10 a, 11 b, 1 null."""
    table = ensure_table(catalog, "lake.pair", PAIR)
    rows(table, [(0, "a"), (1, "b"), (None, "c"), (3, None)], [(10, "a"), (11, "b"), (1, None)])
    return table


def test_positions_of_one_delete_file_belong_to_several_files(
    spark: SparkSession, pair: Table, tmp_path: Path
) -> None:
    """A position that is named twice counts once; other files and places beyond are nothing."""
    group = group_of(pair)
    one, two = (file.path for file in group.files)
    pairs = [(one, 0), (one, 0), (one, 3), (two, 1), ("/elsewhere.parquet", 2), (two, 3), (two, 99)]
    both = position_delete(tmp_path / "both.parquet", pairs)
    again = position_delete(tmp_path / "again.parquet", [(one, 3)])
    done = merged(spark, pair, with_deletes(group, {0: [both, again], 1: [both]}))
    assert ids(done) == [1, None, 10, 1]
    assert (done.rows_in, done.rows_deleted, done.rows_out) == (7, 3, 4)


def test_a_position_delete_counts_for_the_files_that_list_it(
    spark: SparkSession, pair: Table, tmp_path: Path
) -> None:
    """It names a row of each file, and only the second one is younger than it is old."""
    group = group_of(pair)
    pairs = [(group.files[0].path, 0), (group.files[1].path, 0)]
    delete = position_delete(tmp_path / "delete.parquet", pairs)
    done = merged(spark, pair, with_deletes(group, {1: [delete]}))
    assert ids(done) == [0, 1, None, 3, 11, 1]


def test_paths_are_equal_however_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """A directory full of signs that Hadoop, Spark or a URL takes for something else."""
    # The server of a Connect session takes a path with a pattern's signs and a colon for a pattern.
    odd = ODD.replace(":", "") if is_over_connect(spark) else ODD
    table = ensure_table(open_catalog(settings_for(tmp_path / odd)), "lake.odd", PAIR)
    rows(table, *([(number, "x"), (number + 10, "y")] for number in range(4)))
    group = group_of(table)
    path = [file.path for file in group.files]
    assert path[0].startswith("/")
    assert odd in path[0]
    pairs = [(path[0], 0), (path[1], 0), (path[2], 1)]
    # Not the same file: in Iceberg nothing in a path is an escape.
    pairs.append((path[3].replace("%20", " "), 0))
    delete = position_delete(tmp_path / odd / "positions.parquet", pairs)
    values = equality_delete(tmp_path / odd / "values.parquet", table, ["id"], [(3,), (0,)])
    group = with_deletes(group, {number: [delete] for number in range(4)})
    done = merged(spark, table, with_deletes(group, {3: [values]}))
    assert ids(done) == [10, 11, 2, 13]
    assert done.rows_deleted == 4


@pytest.mark.parametrize("form", ["file:", "file://", "file://localhost"])
def test_a_delete_that_names_a_file_in_another_form_is_refused(
    spark: SparkSession, pair: Table, tmp_path: Path, form: str
) -> None:
    """Iceberg's readers keep the row, others may not: whatever a merge did, it might be wrong.

    A file that the delete does not apply to may be named in any form.
    """
    group = group_of(pair)
    one, two = (file.path for file in group.files)
    delete = position_delete(tmp_path / "delete.parquet", [(two, 1), (form + one, 0)])
    with pytest.raises(UnsupportedTable, match=f"deletes rows of {form}{one}, expected {one}"):
        merged(spark, pair, with_deletes(group, {0: [delete], 1: [delete]}))
    done = merged(spark, pair, with_deletes(group, {1: [delete]}))
    assert done.rows_deleted == 1


@pytest.mark.parametrize("form", ["file:", "file://"])
def test_a_table_may_name_its_own_files_by_urls(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Data files by URL, and so in deletes."""
    catalog = open_catalog(settings_for(tmp_path / "l%41 b"))
    location = f"{form}{tmp_path}/l%41 b/table"
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.urls", PAIR, location=location)
    rows(table, [(0, "a"), (1, "b")], [(2, "c")])
    group = group_of(table)
    assert group.files[0].path.startswith(form)
    delete = position_delete(tmp_path / "d.parquet", [(group.files[0].path, 1)])
    done = merged(spark, table, with_deletes(group, {0: [delete]}))
    assert done.outputs[0].path.startswith(location)
    assert ids(done) == [0, 2]


def test_more_than_a_word_of_positions(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """Of 1,000 rows the multiples of three and the last: 334 and one that is one of them."""
    table = ensure_table(catalog, "lake.words", PAIR)
    rows(table, [(number, "x") for number in range(1000)])
    group = group_of(table)
    gone = [*range(999, -1, -3), 999]
    delete = position_delete(
        tmp_path / "d.parquet", [(group.files[0].path, number) for number in gone]
    )
    done = merged(spark, table, with_deletes(group, {0: [delete]}))
    assert ids(done) == [number for number in range(1000) if number % 3]
    assert done.rows_deleted == 334


def test_equal_values_are_deleted_and_nulls_are_equal(
    spark: SparkSession, pair: Table, tmp_path: Path
) -> None:
    """1 with any name, and the pair of 3 and null; a null alone is the row whose id is null."""
    one = equality_delete(tmp_path / "1.parquet", pair, ["id"], [(1,), (None,), (77,), (1,)])
    two = equality_delete(
        tmp_path / "2.parquet", pair, ["name", "id"], [(None, 3), ("a", 11), ("a", 10)]
    )
    group = with_deletes(group_of(pair), {0: [one, two], 1: [one, two]})
    done = merged(spark, pair, group)
    assert ids(done) == [0, 11]
    assert (done.rows_in, done.rows_deleted, done.rows_out) == (7, 5, 2)


@pytest.mark.parametrize("hashed", [1_000_000, 0])
def test_an_equality_delete_counts_for_the_files_that_list_it(
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hashed: int,
) -> None:
    """The same four rows in four files; deletes that reach one, two, and another two of them.

    Once by a hash table, once by sorting, as when there are millions of deletes.
    """
    monkeypatch.setattr(live_rows_module, "MOST_HASHED", hashed)
    table = ensure_table(catalog, "lake.reach", PAIR)
    same: list[tuple[object, ...]] = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    rows(table, same, same, same, same)
    first = equality_delete(tmp_path / "1.parquet", table, ["id"], [(1,)])
    older = equality_delete(tmp_path / "2.parquet", table, ["id"], [(1,), (2,)])
    other = equality_delete(tmp_path / "3.parquet", table, ["id"], [(3,)])
    group = with_deletes(group_of(table), {0: [first, older], 1: [older], 2: [other], 3: [other]})
    done = merged(spark, table, group)
    assert sorted(ids(done)) == sorted([3, 4, 3, 4, 1, 2, 4, 1, 2, 4])  # type: ignore[type-var]
    assert ids(done) == [3, 4, 3, 4, 1, 2, 4, 1, 2, 4]
    assert done.rows_deleted == 6


def test_positions_and_values_together_count_a_row_once(
    spark: SparkSession, pair: Table, tmp_path: Path
) -> None:
    """The row 1 of the first file is deleted in both ways, and by two sets of columns."""
    group = group_of(pair)
    positions = position_delete(tmp_path / "p.parquet", [(group.files[0].path, 1)])
    by_id = equality_delete(tmp_path / "1.parquet", pair, ["id"], [(1,)])
    by_both = equality_delete(tmp_path / "2.parquet", pair, ["id", "name"], [(1, "b"), (1, None)])
    every = [positions, by_id, by_both]
    done = merged(spark, pair, with_deletes(group, {0: every, 1: every}))
    assert ids(done) == [0, None, 3, 10, 11]
    assert done.rows_deleted == 2


def test_columns_that_changed_since_are_still_compared(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """Renamed and widened; dropped, at the top and in a struct, whole and in part; added later."""
    inner = StructType(NestedField(5, "x", IntegerType()), NestedField(6, "y", StringType()))
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "gone", StringType()),
        NestedField(3, "s", inner),
        NestedField(4, "t", StructType(NestedField(7, "z", IntegerType()))),
    )
    table = ensure_table(catalog, "lake.changed", schema)
    first = [(number, str(number), {"x": number, "y": "y"}, {"z": number}) for number in range(8)]
    rows(table, [*first, (8, None, None, None)])
    by_id = equality_delete(tmp_path / "1.parquet", table, ["id"], [(1,)])
    by_gone = equality_delete(tmp_path / "2.parquet", table, ["gone"], [("2",), ("77",)])
    by_x = equality_delete(tmp_path / "3.parquet", table, ["s.x"], [(3,)])
    by_z = equality_delete(tmp_path / "4.parquet", table, ["t.z", "gone"], [(4, "4"), (5, "4")])
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("id", "gone2").update_column("id", LongType())
        update.delete_column("gone").delete_column("s.x").delete_column("t")
        update.add_column("late", LongType())
    with table.update_schema() as update:
        update.rename_column("gone2", "id")
        # Another column of the old name must not be taken for it.
        update.add_column("gone", StringType())
    by_late = equality_delete(tmp_path / "5.parquet", table, ["id", "late"], [(6, None), (7, 7)])
    every = [by_id, by_gone, by_x, by_z, by_late]
    done = merged(spark, table, with_deletes(group_of(table), {0: every}))
    assert rows_of(done) == [
        {"id": 0, "s": {"y": "y"}, "late": None, "gone": None},
        {"id": 5, "s": {"y": "y"}, "late": None, "gone": None},
        {"id": 7, "s": {"y": "y"}, "late": None, "gone": None},
        {"id": 8, "s": None, "late": None, "gone": None},
    ]
    assert done.rows_deleted == 5


def test_numbers_with_a_point_are_equal_as_java_has_it(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """NaN is NaN, and minus zero is not zero; 0.1 as a float is not 0.1 as a double."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "d", DoubleType()),
        NestedField(3, "f", FloatType()),
    )
    table = ensure_table(catalog, "lake.points", schema)
    values = [math.nan, 0.0, -0.0, 0.1, None, math.inf]
    rows(table, [(number, value, value) for number, value in enumerate(values)])
    doubles = equality_delete(tmp_path / "d.parquet", table, ["d"], [(math.nan,), (-0.0,), (None,)])
    floats = equality_delete(tmp_path / "f.parquet", table, ["f"], [(0.1,)])
    with table.update_schema() as update:
        update.update_column("f", DoubleType())
    done = merged(spark, table, with_deletes(group_of(table), {0: [doubles, floats]}))
    assert ids(done) == [1, 5]


def test_when_every_row_is_deleted_nothing_is_left(
    spark: SparkSession, pair: Table, tmp_path: Path
) -> None:
    """No output, and no empty file either."""
    group = group_of(pair)
    every = position_delete(
        tmp_path / "p.parquet",
        [(file.path, place) for file in group.files for place in range(file.rows)],
    )
    done = merged(spark, pair, with_deletes(group, {0: [every], 1: [every]}))
    assert (done.outputs, done.rows_deleted, done.rows_out) == ((), 7, 0)
    attempt = Path(pair.location_provider().new_data_location("compaction-attempt-1"))
    assert list(attempt.rglob("part-*.parquet")) == []
