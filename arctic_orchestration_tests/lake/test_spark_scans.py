"""Scans of Spark's event logs: their filters, what they read, and the order that suits them."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import FileInfo, FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.spark_scans import (
    SparkScan,
    bytes_by_column,
    spark_scans,
    suggested_sort,
)
from arctic_orchestration_tests.lake.event_logs import measured, planned, replanned
from arctic_orchestration_tests.object_store import BUCKET, ObjectStore, object_store

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "origin", StringType()),
    NestedField(3, "delay", IntegerType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "s", StructType(NestedField(6, "a", LongType()))),
    NestedField(7, "a", LongType()),
    NestedField(8, "odd (name)", LongType()),
    NestedField(9, "all", ListType(10, LongType())),
    NestedField(11, "region", StringType()),
)
BY_REGION = PartitionSpec(
    PartitionField(11, 1000, IdentityTransform(), "region"),
    PartitionField(4, 1001, DayTransform(), "day_day"),
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_table(catalog, "lake.flights", SCHEMA, BY_REGION)


def logged(path: Path, *lines: str, compressed: bool = False) -> str:
    """A log of these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file:
        content = "".join(f"{line}\n" for line in lines).encode()
        if compressed:
            with pa.CompressedOutputStream(file, "zstd") as stream:
                stream.write(content)
        else:
            file.write(content)
    return str(path)


def of(
    columns: str, size: int = 1, files: int | None = None, skipped: int | None = None
) -> SparkScan:
    return SparkScan(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        filter="",
        columns=frozenset(columns.split()),
        snapshot_id=None,
        files=files,
        skipped=skipped,
        bytes=size,
    )


def test_a_scan_has_its_filter_and_what_it_read(table: Table, tmp_path: Path) -> None:
    path = logged(
        tmp_path / "local-1",
        '{"Event":"SparkListenerLogStart","Spark Version":"4.1.4"}',
        planned(3, "origin IS NOT NULL, origin = 'JFK', delay > 3", at=60),
        measured(3, 2, 8, 4096),
    )
    found = spark_scans(table, path)
    assert (found.logs, found.unread) == (1, [])
    assert found.scans == [
        SparkScan(
            at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
            filter="origin = 'JFK', delay > 3",
            columns=frozenset({"origin", "delay"}),
            snapshot_id=7,
            files=2,
            skipped=8,
            bytes=4096,
        )
    ]


def test_iceberg_1_10_prints_them_in_another_form(table: Table, tmp_path: Path) -> None:
    form = "{table} (branch=null) [filters={filters}, groupedBy=region]"
    path = logged(tmp_path / "local-1", planned(1, "id IN (1, 2)", form=form))
    (scan,) = spark_scans(table, path).scans
    assert scan.filter == "id IN (1, 2)"
    assert scan.columns == {"id"}
    assert (scan.snapshot_id, scan.files, scan.bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("filters", "columns"),
    [
        ("", ""),
        ("origin IS NOT NULL", ""),
        ("origin IS NULL", "origin"),
        ("origin LIKE 'J%'", "origin"),
        ("id >= 1, id <= 5", "id"),
        ("((delay >= 1 AND delay <= 7) OR id IN (1, 2, 3))", "delay id"),
        ("origin IS NOT NULL, NOT (origin = 'x'), id < 3", "id"),
        ("NOT ((origin = 'x' OR delay = 1)), id < 3", "id"),
        ("NOT ((origin = 'x' OR (a = 3 AND delay IN (1, 2)))), id < 3", "id"),
        ("origin != 'x', id NOT IN (1, 2), origin NOT LIKE 'x%'", ""),
        # Texts are printed as they are, with quotes, columns and operators in them.
        ("origin = 'L'GA', delay > 3", "origin delay"),
        ("origin = 'delay > 3, id = 4'", "origin"),
        ("origin IN ('id = 1', 'b')", "origin"),
        ("origin = 'a\nb', id = 3", "origin id"),
        ("origin = 'x groupedBy=y', id = 3", "origin id"),
        ("s.a = 2", "s.a"),
        ("a = 2", "a"),
        ("odd (name) = 2", "odd (name)"),
        ("other = 2, bid = 3", ""),
    ],
)
def test_columns_are_those_that_a_filter_compares(
    table: Table, tmp_path: Path, filters: str, columns: str
) -> None:
    (scan,) = spark_scans(table, logged(tmp_path / "local-1", planned(1, filters))).scans
    expected = {columns} if columns == "odd (name)" else set(columns.split())
    assert scan.columns == expected


def test_other_tables_have_no_part_in_it(table: Table, tmp_path: Path) -> None:
    """Also not one whose name ends alike; the catalog's name is Spark's own affair."""
    path = logged(
        tmp_path / "local-1",
        *(
            planned(number, f"id = {number}", table=name, at=number)
            for number, name in enumerate(
                [
                    *("lake.lake.other", "lake.flights", "my_catalog.lake.flights"),
                    *("a.datalake.flights", "a.other.lake.flights"),
                ]
            )
        ),
    )
    assert [scan.filter for scan in spark_scans(table, path).scans] == ["id = 1", "id = 2"]


def test_adaptive_plans_measure_the_same_scan(table: Table, tmp_path: Path) -> None:
    """They come again, with metrics of other numbers; one of another execution does not."""
    line = planned(1, "id = 1")
    path = logged(
        tmp_path / "local-1", line, replanned(line, 50), measured(1, 1, 2, 3, add=50),
        replanned(planned(2, "id = 2"), 0), measured(3, 4, 4, 4),
    )  # fmt: skip
    (scan,) = spark_scans(table, path).scans
    assert (scan.files, scan.skipped, scan.bytes) == (1, 2, 3)


def test_a_scan_that_a_plan_has_twice_read_both(table: Table, tmp_path: Path) -> None:
    """As in a join with itself. A cached plan has the metrics of the execution that read it."""
    line = json.loads(planned(1, "id = 1"))
    (node,) = line["sparkPlanInfo"]["children"]
    again = json.loads(json.dumps(node))
    for metric in again["metrics"]:
        metric["accumulatorId"] += 10
    line["sparkPlanInfo"]["children"].append(again)
    cached = json.loads(planned(2, "id = 1", at=5))
    cached["sparkPlanInfo"]["children"] = [node]
    path = logged(
        tmp_path / "local-1", json.dumps(line), measured(1, 1, 2, 3), json.dumps(cached),
        measured(1, 4, 5, 6, add=10),
    )  # fmt: skip
    first, second = spark_scans(table, path).scans
    assert (first.files, first.skipped, first.bytes) == (5, 7, 9)
    assert (second.files, second.bytes) == (None, None)


def test_runtime_filters_may_change_with_the_plan(table: Table, tmp_path: Path) -> None:
    line = planned(1, "id = 1")
    changed = replanned(line.replace("RuntimeFilters: []", "RuntimeFilters: [true]"), 50)
    path = logged(tmp_path / "local-1", line, changed, measured(1, 1, 2, 3, add=50))
    (scan,) = spark_scans(table, path).scans
    assert scan.bytes == 3


def test_logs_in_parts_and_of_several_applications(table: Table, tmp_path: Path) -> None:
    """An execution may begin in one part, and be measured in the next; numbers begin anew."""
    directory = tmp_path / "events"
    rolled = directory / "eventlog_v2_app-1"
    logged(rolled / "appstatus_app-1.inprogress")
    for number in range(1, 11):
        lines = [planned(number, f"id = {number}", at=number)]
        if number > 1:
            lines.append(measured(number - 1, 1, 0, number - 1))
        logged(rolled / f"events_{number}_app-1.zstd", *lines, compressed=True)
    logged(directory / "app-2", planned(1, "delay = 1", at=30), measured(1, 5, 6, 700))
    logged(directory / ".app-2.crc", "not a log")
    found = spark_scans(table, str(directory))
    assert (found.logs, found.unread) == (11, [])
    assert [scan.bytes for scan in found.scans] == [*range(1, 10), None, 700]
    assert found.scans[-1].columns == {"delay"}


def test_what_cannot_be_read_is_named_and_stops_nothing(table: Table, tmp_path: Path) -> None:
    """A log that is cut off, as one that is still written; codecs of Spark's own; odd lines."""
    cut = tmp_path / "app-1.zstd.inprogress"
    # Random texts, which cannot be compressed to less than is left.
    lines = [planned(number, f"id = {number}", at=number) for number in range(3_000)]
    logged(cut, *lines, compressed=True)
    cut.write_bytes(cut.read_bytes()[:-20])
    logged(tmp_path / "app-2.lz4", "LZ4Block")
    good = planned(1, "delay = 1", at=9_000)
    odd = ['{"sparkPlanInfo" lake.flights', '{"sparkPlanInfo": null, "x": "lake.flights"}', good]
    (tmp_path / "app-3").write_bytes("\n".join(odd).encode() + b"\n" + b'\xff"sparkPlanInfo"')
    found = spark_scans(table, str(tmp_path))
    assert found.scans[-1].filter == "delay = 1"
    assert len(found.scans) > 1
    lost, unknown = found.unread
    assert lost.startswith(f"{cut}: ")
    assert unknown.endswith("app-2.lz4: compressed by lz4; spark.eventLog.compression.codec=zstd"
                            " can be read")  # fmt: skip


def test_odd_lines_are_passed_over(table: Table, tmp_path: Path) -> None:
    """Too deep, at no time, without a name, measured by a word; and one without its end."""
    deep = '{"nodeName":"Union","simpleString":"","metadata":{},"metrics":[],"children":['
    good = planned(1, "id = 1")
    lines = [
        f'{{"executionId": 9, "time": 0, "x": "lake.flights", "sparkPlanInfo": {deep * 9_000}',
        f'{{"x": "lake.flights", "sparkPlanInfo": {deep * 3_000}{"]}" * 3_000}}}',
        planned(3, "id = 3").replace('"time": 1767225600000', '"time": 1e30'),
        planned(4, "id = 4").replace('"BatchScan lake.lake.flights"', "null"),
        good,
        measured(1, 1, 2, 3),
        measured(1, 1, 2, 3).replace("3]]", '"three"]]'),
    ]
    path = Path(logged(tmp_path / "app-1", *lines))
    path.write_bytes(path.read_bytes() + planned(2, "id = 2", at=1).encode())
    found = spark_scans(table, str(path))
    assert found.unread == []
    assert [scan.filter for scan in found.scans] == ["id = 1", "id = 2"]
    assert found.scans[0].bytes == 3


def test_a_log_that_is_written_is_read_as_far_as_it_is(table: Table, tmp_path: Path) -> None:
    """Five pieces, and part of a sixth."""
    path = tmp_path / "app-1.zstd.inprogress"
    content = b""
    for number in range(6):
        part = Path(
            logged(tmp_path / "part", planned(number, f"id = {number}", at=number), compressed=True)
        )
        content += part.read_bytes()
    path.write_bytes(content[:-10])
    found = spark_scans(table, str(path))
    filters = [scan.filter for scan in found.scans]
    assert filters[:4] == [f"id = {number}" for number in range(4)]
    assert len(found.unread) == 1


def test_older_scans_and_logs_are_left_out(table: Table, tmp_path: Path) -> None:
    """A log is as old as what was written to it last, and may begin earlier."""
    lines = [planned(number, f"id = {number}", at=number * 60) for number in range(1, 4)]
    logged(tmp_path / "events" / "app-1", *lines)
    old = Path(logged(tmp_path / "events" / "app-2", planned(1, "delay = 1", at=10_000)))
    since = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
    os.utime(old, times=(0, since.timestamp() - 1))
    tracked: list[str] = []

    def track(logs: Sequence[tuple[FileSystem, FileInfo]]) -> Iterable[tuple[FileSystem, FileInfo]]:
        tracked.extend(info.base_name for _, info in logs)
        return logs

    found = spark_scans(table, str(tmp_path / "events"), since, track)
    assert (found.logs, tracked) == (1, ["app-1"])
    assert [scan.filter for scan in found.scans] == ["id = 2", "id = 3"]


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_place_without_logs_is_refused(table: Table, tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeError, match="has no event log of Spark: spark.eventLog.enabled"):
        spark_scans(table, str(tmp_path / "empty" / name))


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as server:
        yield server


def test_logs_on_s3_are_read_with_the_tables_properties(table: Table, store: ObjectStore) -> None:
    path = f"s3://{BUCKET}/events/app-1"
    io = load_file_io(store.properties, path)
    with io.new_output(path).create() as stream:
        stream.write(planned(1, "id = 1").encode() + b"\n" + b"{}\n" * 100_000)
    table.io.properties.update(store.properties)
    store.requests.clear()
    (scan,) = spark_scans(table, f"s3://{BUCKET}/events").scans
    assert scan.columns == {"id"}
    # Some to find the log, and one for it.
    assert len(store.requests) < 10
    table.io.properties["s3.secret-access-key"] = ""
    table.io.properties["s3.access-key-id"] = "unknown"
    with pytest.raises(LakeError, match=f"s3://{BUCKET}/events cannot be listed"):
        spark_scans(table, f"s3://{BUCKET}/events")


def test_bytes_are_counted_by_column() -> None:
    assert bytes_by_column([of("id", 3), of("id delay", 4), of("")]) == {"id": 7, "delay": 4}


@pytest.mark.parametrize(
    ("scans", "expected"),
    [
        ([], None),
        ([of("", 100)], None),
        # Nothing was read, or the log has no numbers.
        ([of("id", 0)], None),
        ([of("id", 5)], "id"),
        # Compared together with the first one only: rows are sorted by both.
        ([of("id delay", 5), of("id", 5)], "id, delay"),
        # Alone, too.
        ([of("id", 5), of("delay", 3)], "zorder(id, delay)"),
        # Less than a quarter of the first.
        ([of("id", 100), of("delay", 24)], "id"),
        # It is the partition's own value; a day of a date is not.
        ([of("region", 100), of("day", 5)], "day"),
        # A list has no order.
        ([of("all", 100), of("s.a", 5)], "s.a"),
        # The property cannot name it.
        ([of("id", 5), SparkScan(**{**vars(of("", 9)), "columns": {"odd (name)"}})], "id"),
        # What the present order excludes would be read without it.
        ([*[of("id", 1, 1, 99)] * 100, *[of("delay", 100, 100, 0)] * 5], "id"),
        ([*[of("id", 0, 0, 100)] * 100, *[of("delay", 100, 100, 0)] * 5], "id"),
        ([of("id", 0, 0, 100)], "id"),
        # But not what partitions exclude.
        ([*[of("region delay", 1, 1, 99)] * 100, *[of("id", 100, 100, 0)] * 20], "id"),
        # Of five columns with equal bytes, the first four; those of one scan by name.
        ([of("id"), of("s.a delay"), of("a"), of("day")], "zorder(id, delay, s.a, a)"),
    ],
)
def test_a_sort_order_suits_the_scans_that_read_most(
    table: Table, scans: list[SparkScan], expected: str | None
) -> None:
    assert suggested_sort(table, scans) == expected
