"""What merges cost that do more than copy rows: ``make bench-merging``.

The same files, 16 of about 4 MB, are merged into as many: as they are, sorted by columns, along a
curve over two, without one row in a hundred, by position and by value, and with columns that were
renamed, widened and added since. They take turns, and each is merged by the engine that a merge
chooses and by Spark's rows. CPU seconds are those of Python, the JVM and its Python workers; bytes
are those of the files that pyiceberg plans to read for a filter that keeps one value in a hundred.
delta-rs, which sorts by its z-order alone, does the same to a Delta table of the files.
"""

import argparse
import math
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pyspark
from deltalake import DeltaTable, WriterProperties, convert_to_deltalake
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType
from rich.console import Console
from rich.progress import track
from rich.table import Table as Rows

from arctic_orchestration.clock import utc_now
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake import ensure_table, open_catalog, spark_session
from arctic_orchestration.lake.clustering import PROPERTY
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Engine, merge
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.delete_writer import (
    add_equality_deletes,
    add_position_deletes,
)
from benchmarks.compaction import cpu_seconds, family
from benchmarks.compaction_files import SCHEMA, ZSTD_LEVEL, write_files

FILES, ROWS = 16, 175_000


def _as_they_are(table: Table) -> None:
    pass


def _without_positions(table: Table) -> None:
    rows = range(0, ROWS, 100)
    add_position_deletes(table, {file.path: rows for file in live_files(table).files})


def _without_values(table: Table) -> None:
    ids = pa.array(range(0, FILES * ROWS, 100), pa.int64())
    add_equality_deletes(table, pa.table({"id": ids}), ["id"])


def _with_other_columns(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("note", "remark")
        update.update_column("flight", LongType())
        update.add_column("source", StringType())
        update.delete_column("fuel")


#: what is merged: the property, and what happens to the table before
CASES: dict[str, tuple[str | None, Callable[[Table], None]]] = {
    "as they are": (None, _as_they_are),
    "by origin": ("origin", _as_they_are),
    "by origin, dep_delay desc": ("origin, dep_delay desc", _as_they_are),
    "zorder(origin, dep_delay)": ("zorder(origin, dep_delay)", _as_they_are),
    "deleted by position": (None, _without_positions),
    "deleted by value": (None, _without_values),
    "other columns": (None, _with_other_columns),
}
ENGINES = {"Arrow": None, "Spark": Engine.SPARK}
#: the columns of delta-rs' z-order for the same case
CURVES = {"by origin": ["origin"], "zorder(origin, dep_delay)": ["origin", "dep_delay"]}
FILTERS = ("origin = 'X05'", "dep_delay = 7")


@dataclass(frozen=True)
class Run:
    """One merge: wall and CPU seconds, and the share of bytes that is read for each filter."""

    wall: float
    cpu: float
    shares: tuple[float, ...]


def main() -> None:
    """Merges in turns, and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="arctic-merging-") as folder:
        settings = Settings.from_environment({"ARCTIC_LAKE": folder})
        spark = spark_session(settings)
        catalog = open_catalog(settings)
        files = write_files(Path(folder) / "files", FILES, ROWS)
        runs: dict[tuple[str, str], list[Run]] = {
            (case, engine): [] for case in CASES for engine in ENGINES
        }
        curved: dict[str, list[float]] = {case: [] for case in CURVES}
        for turn in track(range(repeat + 1), "merging", console=console):
            for number, (case, (rule, prepare)) in enumerate(CASES.items()):
                for name, engine in ENGINES.items():
                    table = ensure_table(
                        catalog,
                        f"lake.t{turn}_{number}_{name}",
                        SCHEMA,
                        properties={} if rule is None else {PROPERTY: rule},
                    )
                    for file in files:
                        table.append(pq.read_table(file).cast(table.schema().as_arrow()))
                    prepare(table)
                    run = _merged(spark, table.refresh(), engine)
                    # The first turn warms up.
                    if turn:
                        runs[(case, name)].append(run)
                    catalog.purge_table(table.name())
                if case in CURVES:
                    curved[case].append(_by_delta(Path(folder) / "delta", files, CURVES[case]))
        spark.stop()
    shown = Rows(
        "merged files",
        "CPU s",
        "of plain",
        "wall s",
        "by Spark's rows, CPU s",
        "delta-rs",
        *FILTERS,
    )
    plain = _median(one.cpu for one in runs[("as they are", "Arrow")])
    for case in CASES:
        measured = runs[(case, "Arrow")]
        cpu = _median(one.cpu for one in measured)
        shown.add_row(
            case,
            f"{cpu:.1f}",
            f"{cpu / plain:.2f}",
            f"{_median(one.wall for one in measured):.1f}",
            f"{_median(one.cpu for one in runs[(case, 'Spark')]):.1f}",
            f"{_median(curved[case][1:]):.1f}" if case in curved else "",
            *(
                f"{_median(one.shares[place] for one in measured):.0%}"
                for place in range(len(FILTERS))
            ),
        )
    console.print(
        f"{FILES} files of {ROWS} rows, median of {repeat}; PySpark {pyspark.__version__}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    console.print(shown)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _by_delta(directory: Path, files: Sequence[Path], columns: list[str]) -> float:
    """The CPU seconds of ``optimize.z_order`` of the same files, to as many."""
    directory.mkdir()
    for file in files:
        os.link(file, directory / file.name)
    convert_to_deltalake(str(directory))
    table, process = DeltaTable(str(directory)), [psutil.Process()]
    before = cpu_seconds(process)
    table.optimize.z_order(
        columns,
        target_size=math.ceil(sum(file.stat().st_size for file in files) / FILES),
        max_concurrent_tasks=2,
        writer_properties=WriterProperties(compression="ZSTD", compression_level=ZSTD_LEVEL),
    )
    cpu = sum(cpu_seconds(process).values()) - sum(before.values())
    assert pads.dataset([urlsplit(uri).path for uri in table.file_uris()]).count_rows() == (
        FILES * ROWS
    )
    shutil.rmtree(directory)
    return cpu


def _merged(spark: pyspark.sql.SparkSession, table: Table, engine: Engine | None) -> Run:
    live = live_files(table.refresh())
    assert live.snapshot_id is not None
    group = FileGroup(
        snapshot_id=live.snapshot_id,
        sequence_number=live.sequence_number,
        spec_id=0,
        files=tuple(live.files),
    )
    directory = table.location_provider().new_data_location(f"merged-{new_id(utc_now())}")
    target = math.ceil(sum(file.size for file in group.files) / FILES)
    before, wall = cpu_seconds(family(None)), time.perf_counter()
    done = merge(spark, table, group, directory, target_bytes=target, way=Way.DECODE, engine=engine)
    wall, after = time.perf_counter() - wall, cpu_seconds(family(None))
    outputs = tuple(one.path for one in done.outputs)
    replacement = Replacement(
        id="one", group=group, outputs=outputs, rows_deleted=done.rows_deleted
    )
    replace_files(table, [replacement])
    whole = sum(one.size for one in done.outputs)
    shares = []
    for condition in FILTERS:
        plan = table.refresh().scan(row_filter=condition).plan_files()
        shares.append(sum(one.file.file_size_in_bytes for one in plan) / whole)
    return Run(wall, sum(after.values()) - sum(before.values()), tuple(shares))


if __name__ == "__main__":
    main()
