"""Each way to merge files, as one call: ours, and those that it is compared with.

All write zstd of one level, merge two bins at a time, and are given the same bins; delta-rs makes
its own. Nothing is committed by ours, pyarrow and DuckDB; delta-rs commits to its log.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, convert_to_deltalake
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.merging.merge import Engine, merge
from arctic_orchestration.lake.merging.strategy import Way
from benchmarks.compaction_files import SCHEMA, ZSTD_LEVEL

TARGET = 128 * 1_000_000
AT_ONCE = 2
_ARROW_ROW_GROUP = 1_000_000

#: Does the work that is measured; returns the files that it made.
Work = Callable[[], list[str]]


def bins(paths: Sequence[Path]) -> list[list[Path]]:
    """The files in their order, each bin as full as the target allows."""
    found: list[list[Path]] = [[]]
    left = TARGET
    for path in paths:
        size = path.stat().st_size
        if size > left and found[-1]:
            found.append([])
            left = TARGET
        found[-1].append(path)
        left -= size
    return found


def ours(
    spark: SparkSession,
    catalog: Catalog,
    way: Way,
    paths: Sequence[Path],
    engine: Engine | None = None,
) -> Work:
    """``merge`` of each bin, in a warm session; which engine decodes, it finds by itself."""
    table = ensure_table(catalog, "lake.flights", SCHEMA)
    rows = {path: pq.read_metadata(path).num_rows for path in paths}
    groups = [
        FileGroup(
            snapshot_id=1,
            sequence_number=1,
            spec_id=0,
            files=tuple(
                LiveFile(
                    path=str(path),
                    size=path.stat().st_size,
                    rows=rows[path],
                    sequence_number=1,
                    spec_id=0,
                )
                for path in bin_
            ),
        )
        for bin_ in bins(paths)
    ]
    root = tempfile.mkdtemp(prefix="merged-", dir=Path(table.location()).parent)

    def one(numbered: tuple[int, FileGroup]) -> list[str]:
        number, group = numbered
        merged = merge(
            spark,
            table,
            group,
            f"{root}/{number}",
            target_bytes=TARGET,
            way=way,
            engine=engine,
        )
        return [output.path for output in merged.outputs]

    return lambda: _two_at_a_time(one, list(enumerate(groups)))


def delta(directory: Path, paths: Sequence[Path]) -> Work:
    """``optimize.compact`` of a Delta table of the same files."""
    directory.mkdir(parents=True)
    for path in paths:
        os.link(path, directory / path.name)
    convert_to_deltalake(str(directory))
    table = DeltaTable(str(directory))

    def work() -> list[str]:
        table.optimize.compact(
            target_size=TARGET,
            max_concurrent_tasks=AT_ONCE,
            writer_properties=WriterProperties(compression="ZSTD", compression_level=ZSTD_LEVEL),
        )
        return [unquote(urlsplit(uri).path) for uri in table.file_uris()]

    return work


def arrow(directory: Path, paths: Sequence[Path]) -> Work:
    """Files read one after the other, and written in row groups of a million rows."""
    directory.mkdir(parents=True)

    def one(numbered: tuple[int, list[Path]]) -> list[str]:
        number, bin_ = numbered
        output = directory / f"{number}.parquet"
        schema = pq.read_schema(bin_[0])
        with pq.ParquetWriter(
            output, schema, compression="zstd", compression_level=ZSTD_LEVEL
        ) as writer:
            waiting: list[pa.Table] = []
            for path in bin_:
                waiting.append(pq.read_table(path, use_threads=False))
                if sum(map(len, waiting)) >= _ARROW_ROW_GROUP:
                    writer.write_table(pa.concat_tables(waiting), _ARROW_ROW_GROUP)
                    waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting), _ARROW_ROW_GROUP)
        return [str(output)]

    return lambda: _two_at_a_time(one, list(enumerate(bins(paths))))


def duck(directory: Path, paths: Sequence[Path]) -> Work:
    """``COPY`` of each bin, on a connection with one thread."""
    directory.mkdir(parents=True)

    def one(numbered: tuple[int, list[Path]]) -> list[str]:
        number, bin_ = numbered
        output = directory / f"{number}.parquet"
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute(
                f"copy (select * from read_parquet({[str(path) for path in bin_]!r})) to "
                f"'{output}' (format parquet, compression zstd, compression_level {ZSTD_LEVEL})"
            )
        return [str(output)]

    return lambda: _two_at_a_time(one, list(enumerate(bins(paths))))


def _two_at_a_time(one: Callable[[Any], list[str]], given: list[Any]) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [path for paths in pool.map(one, given) for path in paths]
