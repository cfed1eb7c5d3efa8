"""What sorted merges cost, and what readers save by them: ``make bench-clustering``.

The same files, 16 of about 4 MB, are merged into as many: unsorted by the engine that a merge
chooses, unsorted by Spark's rows, sorted by a column, and along a curve over two. They take turns.
CPU seconds are those of Python, the JVM and its Python workers; bytes are those of the files that
pyiceberg plans to read for a filter that keeps one value in a hundred.
"""

import argparse
import math
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
from pyiceberg.table import Table
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
from benchmarks.compaction import cpu_seconds, family
from benchmarks.compaction_files import SCHEMA, write_files

FILES, ROWS = 16, 175_000
#: name: the property, and the engine
WAYS = {
    "unsorted (Arrow in Spark)": (None, None),
    "unsorted (Spark rows)": (None, Engine.SPARK),
    "origin": ("origin", None),
    "zorder(origin, dep_delay)": ("zorder(origin, dep_delay)", None),
}
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
    console = Console()
    with tempfile.TemporaryDirectory(prefix="arctic-clustering-") as folder:
        settings = Settings.from_environment({"ARCTIC_LAKE": folder})
        spark = spark_session(settings)
        catalog = open_catalog(settings)
        files = write_files(Path(folder) / "files", FILES, ROWS)
        runs: dict[str, list[Run]] = {way: [] for way in WAYS}
        for turn in track(range(repeat + 1), "merging", console=console):
            for number, (way, (rule, engine)) in enumerate(WAYS.items()):
                table = ensure_table(
                    catalog,
                    f"lake.t{turn}_{number}",
                    SCHEMA,
                    properties={} if rule is None else {PROPERTY: rule},
                )
                for file in files:
                    table.append(pq.read_table(file).cast(table.schema().as_arrow()))
                run = _merged(spark, table, engine)
                # The first turn warms up.
                if turn:
                    runs[way].append(run)
        spark.stop()
    shown = Rows("merged files", "CPU s", "wall s", *FILTERS)
    for way, measured in runs.items():
        shown.add_row(
            way,
            f"{statistics.median(one.cpu for one in measured):.1f}",
            f"{statistics.median(one.wall for one in measured):.1f}",
            *(
                f"{statistics.median(one.shares[place] for one in measured):.0%}"
                for place in range(len(FILTERS))
            ),
        )
    console.print(
        f"{FILES} files of {ROWS} rows, median of {repeat}; PySpark {pyspark.__version__}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    console.print(shown)


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
    replace_files(table, [Replacement(id="one", group=group, outputs=outputs, rows_deleted=0)])
    whole = sum(one.size for one in done.outputs)
    shares = []
    for condition in FILTERS:
        plan = table.refresh().scan(row_filter=condition).plan_files()
        shares.append(sum(one.file.file_size_in_bytes for one in plan) / whole)
    return Run(wall, sum(after.values()) - sum(before.values()), tuple(shares))


if __name__ == "__main__":
    main()
