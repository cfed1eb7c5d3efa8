"""What sorting planned merges is expected to save readers, by hand."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.sort_columns import parse_clustering
from arctic_orchestration.lake.sort_gain import SortedTask, SortGain, sort_gain

SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=False),
    NestedField(2, "word", StringType(), required=False),
)


def table_of(catalog: Catalog, *ranges: tuple[int | None, int | None]) -> Table:
    """One file for each pair of numbers, which are its rows."""
    table = ensure_table(catalog, "lake.some", SCHEMA)
    for low, high in ranges:
        words = ["a" if value is None else f"w{value:03}" for value in (low, high)]
        rows = pa.table({"n": pa.array([low, high], pa.int64()), "word": words})
        table.append(rows)
    return table.refresh()


def size_of(file: str) -> int:
    return Path(file.removeprefix("file://")).stat().st_size


def gain_of(table: Table, by: str, *outputs: int, merged: Sequence[str]) -> SortGain | None:
    """All files of ``merged`` in as many tasks as there are numbers of outputs."""
    clustering = parse_clustering(by)
    snapshot = table.current_snapshot()
    assert clustering is not None
    assert snapshot is not None
    tasks = [
        SortedTask(
            paths=frozenset(merged[number :: len(outputs)]),
            bytes=sum(size_of(file) for file in merged[number :: len(outputs)]),
            outputs=count,
        )
        for number, count in enumerate(outputs)
    ]
    return sort_gain(table, clustering, snapshot, tasks)


def files_of(table: Table) -> list[str]:
    """Oldest first."""
    paths = table.inspect.entries().to_pylist()
    paths.sort(key=lambda entry: entry["sequence_number"])
    return [entry["data_file"]["file_path"] for entry in paths]


def test_a_filter_reads_one_output_of_each_task(catalog: Catalog) -> None:
    """All values are in all files now."""
    table = table_of(catalog, *[(0, 9)] * 8)
    files = files_of(table)
    everything = sum(map(size_of, files))
    found = gain_of(table, "n", 4, merged=files)
    assert found == SortGain(
        column="n", cpu=1.9, reads_now=everything, reads_then=round(everything / 4)
    )
    two = gain_of(table, "n desc, word", 4, 2, merged=files)
    halves = [sum(map(size_of, files[number::2])) for number in (0, 1)]
    assert two is not None
    assert (two.cpu, two.reads_now) == (2.1, everything)
    assert two.reads_then == round(halves[0] / 4 + halves[1] / 2)
    # 16 cells of a curve over two columns are a square of four by four.
    curve = gain_of(table, "zorder(n, word)", 16, merged=files)
    assert curve == SortGain(
        column="n", cpu=2.2, reads_now=everything, reads_then=round(everything / 4)
    )


def test_files_that_are_not_merged_are_read_as_now(catalog: Catalog) -> None:
    """Lowest values 0, 0, 20 and 20; those of one file are unknown."""
    table = table_of(catalog, (0, 9), (0, 30), (20, 29), (20, 29), (None, None))
    files = files_of(table)
    sizes = list(map(size_of, files))
    found = gain_of(table, "n", 1, merged=files[2:4])
    assert found is not None
    kept = 0.5 * sizes[0] + sizes[1] + sizes[4]
    assert found.reads_now == round(kept + 0.5 * (sizes[2] + sizes[3]))
    assert found.reads_then == round(kept + sizes[2] + sizes[3])


def test_without_bounds_there_is_no_estimate(catalog: Catalog) -> None:
    table = table_of(catalog, (None, None), (None, None))
    assert gain_of(table, "n", 1, merged=files_of(table)) is None


@pytest.mark.parametrize(("by", "column"), [("word", "word"), ("word desc, n", "word")])
def test_texts_have_bounds(catalog: Catalog, by: str, column: str) -> None:
    table = table_of(catalog, (0, 9), (10, 19))
    files = files_of(table)
    found = gain_of(table, by, 2, merged=files)
    assert found is not None
    assert (found.column, found.reads_now) == (column, round(sum(map(size_of, files)) / 2))
