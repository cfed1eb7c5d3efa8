"""Row groups are not copied where that would write wrong files, even if it is requested."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField
from pyspark.sql import SparkSession

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    fill,
    group_of,
    merged,
    position_delete,
    with_deletes,
)

SCHEMA = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "other", LongType()))


@pytest.fixture
def spark(classic_spark: SparkSession) -> SparkSession:
    """Row groups are copied in the JVM of the driver, which a Connect session has not here."""
    return classic_spark


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Two files, of two rows and of one."""
    made = ensure_table(catalog, "lake.asked", SCHEMA)
    fill(made, [{"id": 1, "other": 1}, {"id": 2, "other": 2}], [{"id": 3, "other": 3}])
    return made


def positions(table: Table, tmp_path: Path) -> FileGroup:
    group = group_of(table)
    delete = position_delete(tmp_path / "d.parquet", [(group.files[0].path, 0)])
    return with_deletes(group, {0: [delete]})


def values(table: Table, tmp_path: Path) -> FileGroup:
    delete = equality_delete(tmp_path / "d.parquet", table, ["id"], [(1,)])
    return with_deletes(group_of(table), {0: [delete]})


def renamed(table: Table, tmp_path: Path) -> FileGroup:
    with table.update_schema() as schema:
        schema.rename_column("other", "number")
    return group_of(table)


def widened(table: Table, tmp_path: Path) -> FileGroup:
    with table.update_schema() as schema:
        schema.update_column("id", field_type=LongType())
    return group_of(table)


def dropped(table: Table, tmp_path: Path) -> FileGroup:
    with table.update_schema() as schema:
        schema.delete_column("other")
    return group_of(table)


def added_between(table: Table, tmp_path: Path) -> FileGroup:
    with table.update_schema() as schema:
        schema.add_column("third", LongType())
    fill(table, [{"id": 4, "other": 4, "third": 4}])
    return group_of(table)


def ordered(table: Table, tmp_path: Path) -> FileGroup:
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    return group_of(table)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (positions, "rows are deleted from 1 of 2 files"),
        (values, "rows are deleted from 1 of 2 files"),
        (renamed, "has not the table's schema: .*no fields .*number"),
        (widened, "has not the table's schema: column id is INT32"),
        (dropped, "has not the table's schema: .*other"),
        (added_between, "the 3 files have 2 physical schemas"),
        (ordered, "merged files are sorted"),
    ],
)
def test_what_must_be_decoded_is_not_copied(
    spark: SparkSession,
    table: Table,
    tmp_path: Path,
    made: Callable[[Table, Path], FileGroup],
    reason: str,
) -> None:
    """With the reason of the choice; nothing is written. Decoded, the rows are all there."""
    group = made(table, tmp_path)
    table.refresh()
    with pytest.raises(LakeError, match=f"lake.asked: row groups cannot be copied: .*{reason}"):
        merged(spark, table, group, way=Way.APPEND)
    attempt = Path(table.location_provider().new_data_location("compaction-attempt-1"))
    assert not attempt.exists()
    done = merged(spark, table, group, way=None)
    assert done.way == Way.DECODE
    assert done.rows_out == group.rows - done.rows_deleted


def test_a_file_alone_is_copied_if_that_is_requested(spark: SparkSession, table: Table) -> None:
    """It gains nothing, and loses nothing."""
    group = group_of(table)
    alone = FileGroup(
        snapshot_id=group.snapshot_id,
        sequence_number=group.sequence_number,
        spec_id=group.spec_id,
        files=group.files[:1],
    )
    done = merged(spark, table, alone, way=Way.APPEND)
    assert (done.way, done.rows_out) == (Way.APPEND, 2)
