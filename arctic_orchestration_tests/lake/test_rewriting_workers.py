"""The workers of Spark in which Arrow decodes: what runs there, what cannot, and what fails."""

import os
import sys
import types
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration_tests.lake.merged_files import (
    fill,
    group_of,
    merged,
    rows_of,
)
from arctic_orchestration_tests.lake.worker_files import FullFileIO, LockedFileIO, PidFileIO

ID = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))


def test_it_runs_in_a_worker_of_spark(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """In a process that is not this one."""
    table = ensure_table(catalog, "lake.telling", ID)
    fill(table, [{"id": 1}], [{"id": 2}])
    table.io = PidFileIO({"pid_file": str(tmp_path / "pid")})
    done = merged(spark, table, group_of(table))
    assert "decoded by Arrow in a worker of Spark" in done.because
    assert int((tmp_path / "pid").read_text()) != os.getpid()
    assert [row["id"] for row in rows_of(done)] == [1, 2]


def test_what_workers_cannot_do_is_left_to_spark(
    spark: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are read by what cannot be sent, or is not installed there."""
    table = ensure_table(catalog, "lake.unable", ID)
    fill(table, [{"id": 1}], [{"id": 2}])
    table.io = LockedFileIO()
    done = merged(spark, table, group_of(table))
    assert "decoded by Spark: the table's LockedFileIO cannot be sent to a worker" in done.because
    assert {row["id"] for row in rows_of(done)} == {1, 2}
    lonely = types.ModuleType("only_in_the_driver")
    lonely.OwnFileIO = type("OwnFileIO", (PyArrowFileIO,), {"__module__": lonely.__name__})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, lonely.__name__, lonely)
    table.io = lonely.OwnFileIO({})
    for _ in range(2):
        done = merged(spark, table, group_of(table))
        assert "decoded by Spark: Spark's workers cannot run it" in done.because
        assert "No module named 'only_in_the_driver'" in done.because
        assert {row["id"] for row in rows_of(done)} == {1, 2}
    with pytest.raises(LakeError, match="Arrow cannot decode 2 files: Spark's workers cannot"):
        merged(spark, table, group_of(table), engine=Engine.ARROW)


def left_below(table: Table) -> list[Path]:
    attempt = Path(table.location_provider().new_data_location("compaction-attempt-1"))
    return [path for path in attempt.rglob("*") if path.is_file()]


def test_a_broken_page_and_a_full_disk_leave_nothing(spark: SparkSession, catalog: Catalog) -> None:
    """The error has the first line of the cause, and no output is there."""
    table = ensure_table(catalog, "lake.broken", ID)
    some = [{"id": n, "text": f"{n * 7919:050}"} for n in range(1000)]
    fill(table, some, some)
    group = group_of(table)
    table.io = FullFileIO({"room": "5000"})
    with pytest.raises(
        LakeError, match=r"lake.broken: merging 2 files failed: OSError: .*No space"
    ):
        merged(spark, table, group)
    assert left_below(table) == []
    table.io = PyArrowFileIO()
    path = Path(group.files[1].path)
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(LakeError, match="lake.broken: merging 2 files failed: OSError: "):
        merged(spark, table, group)
    assert left_below(table) == []
