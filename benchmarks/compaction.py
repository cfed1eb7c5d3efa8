"""What merging small files costs, beside Iceberg, delta-rs and others; planning and committing.

``make bench-compaction`` merges 200 files of 1 MB and 64 of 16 MB to files of 128 MB. All get equal
files and write zstd of one level; they take turns. What each wrote is read by DuckDB and compared
with the inputs, every time. Seconds are medians of wall time; CPU seconds count every process that
took part: for ours Python, the JVM and its Python workers; for Iceberg's ``rewrite_data_files`` the
Python and the JVM of its session. They are warm, as a worker keeps them.
Decoding is measured twice: by the engine that a merge chooses for these files, on which the goal is
judged, and by Spark's own rows.
"""

import argparse
import datetime as dt
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psutil
import pyarrow as pa
import pyspark
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration.compaction.planning.planner import plan
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState
from arctic_orchestration.lake import ensure_table, open_catalog, spark_session
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined
from benchmarks.commits import FILES, GOAL, SNAPSHOTS, Cost, committed
from benchmarks.compaction_files import SCHEMA, checksum, write_files
from benchmarks.compaction_ways import Work, arrow, delta, duck, ours
from benchmarks.iceberg_rewrite import DRIVER_MEMORY, IcebergPeer, IcebergUnavailable

#: name: how many files, and rows in each
LAKES = {"200 x 1 MB": (200, 35_600), "64 x 16 MB": (64, 701_500)}
PLANNED = 50_000
_APPEND, _DELTA = "ours, appending", "delta-rs"
#: What a merge chooses for these files, and what it takes where workers cannot run Arrow.
_DECODE, _BY_SPARK = "ours, decoding (Arrow in Spark)", "ours, decoding (Spark rows)"
_ICEBERG = "Iceberg rewrite_data_files"
#: So often all is done before it is measured: the JVM compiles what runs often.
_WARM_UPS = 6

APPEND_GOAL = 5.0
DECODE_GOAL = 0.5
PLAN_GOAL = 10.0


@dataclass(frozen=True)
class Run:
    """One merge of all files: wall and CPU seconds, bytes written and files made."""

    wall: float
    cpu: float
    size: int
    files: int


@dataclass(frozen=True)
class Result:
    """The runs of one way over one lake; ``size`` is that of the inputs in bytes."""

    size: int
    runs: Sequence[Run]

    @property
    def speed(self) -> float:
        """MB of input a second."""
        return self.size / 1e6 / statistics.median(run.wall for run in self.runs)

    @property
    def thrift(self) -> float:
        """MB of input a CPU second."""
        return self.size / 1e6 / statistics.median(run.cpu for run in self.runs)


def family(peer: IcebergPeer | None) -> list[psutil.Process]:
    """This process and those that it started, except the peer's.

    Spark's Python workers stay, as warm ones do; of one that ended nothing would be counted.
    """
    own = psutil.Process()
    others = set(peer.processes) if peer else set()
    return [own, *(child for child in own.children(recursive=True) if child not in others)]


def cpu_seconds(processes: Sequence[psutil.Process]) -> dict[int, float]:
    """By process id."""
    return {process.pid: sum(process.cpu_times()[:2]) for process in processes}


def measured(
    work: Work, expected: tuple[int, int], processes: Callable[[], list[psutil.Process]]
) -> Run:
    """Does the work once, and refuses what has other rows than the inputs."""
    before, wall = cpu_seconds(processes()), time.perf_counter()
    paths = work()
    wall, after = time.perf_counter() - wall, cpu_seconds(processes())
    assert before.keys() <= after.keys(), "a process ended, and its CPU seconds are not known"
    cpu = sum(after.values()) - sum(before.values())
    found = checksum(paths)
    assert found == expected, (found, expected)
    return Run(wall, cpu, sum(Path(path).stat().st_size for path in paths), len(paths))


def merged(
    spark: SparkSession,
    catalog: Catalog,
    peer: IcebergPeer | None,
    paths: Sequence[Path],
    times: int,
    scratch: Path,
    advance: Callable[[str], None],
) -> dict[str, Result]:
    """All ways over the same files in turn."""
    expected = checksum(paths)
    size = sum(path.stat().st_size for path in paths)
    runs: dict[str, list[Run]] = {}
    for _ in range(times):
        made: dict[str, Callable[[Path], Work]] = {
            _APPEND: lambda _: ours(spark, catalog, Way.APPEND, paths),
            _DECODE: lambda _: ours(spark, catalog, Way.DECODE, paths),
            _BY_SPARK: lambda _: ours(spark, catalog, Way.DECODE, paths, Engine.SPARK),
            _DELTA: lambda at: delta(at, paths),
            "pyarrow": lambda at: arrow(at, paths),
            "DuckDB COPY": lambda at: duck(at, paths),
        }
        if peer:
            made[_ICEBERG] = lambda at: peer.rewriting(at, paths)
        for name, make in made.items():
            advance(name)
            work = make(scratch / "out")
            run = measured(work, expected, partial(_processes, name, peer))
            runs.setdefault(name, []).append(run)
            shutil.rmtree(scratch / "out", ignore_errors=True)
    return {name: Result(size, of) for name, of in runs.items()}


def _processes(name: str, peer: IcebergPeer | None) -> list[psutil.Process]:
    if peer and name == _ICEBERG:
        return peer.processes
    return family(peer) if name.startswith("ours") else [psutil.Process()]


def planned(catalog: Catalog, files: int, times: int) -> tuple[float, float, int]:
    """Median seconds to list a table's files and to plan them, and how many tasks that gave."""
    spec = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "origin"))
    table = ensure_table(catalog, "lake.planned", SCHEMA, partition_spec=spec)
    columns = range(1, len(SCHEMA.fields) + 1)
    statistics_of: dict[str, Any] = {
        "column_sizes": dict.fromkeys(columns, 100_000),
        "value_counts": dict.fromkeys(columns, 35_600),
        "null_value_counts": dict.fromkeys(columns, 0),
        "lower_bounds": dict.fromkeys(columns, b"\0" * 8),
        "upper_bounds": dict.fromkeys(columns, b"\x7f" * 8),
    }
    for first in range(0, files, 5000):
        commit_files(
            table,
            [
                imagined(
                    f"{table.location()}/data/{number:06}.parquet",
                    [f"X{number % 100:02}"],
                    size=1_000_000 + number,
                    rows=35_600,
                    **statistics_of,
                )
                for number in range(first, min(files, first + 5000))
            ],
        )
    table = catalog.load_table("lake.planned")
    listing, planning, tasks = [], [], 0
    for _ in range(times):
        start = time.perf_counter()
        live = live_files(table)
        listing.append(time.perf_counter() - start)
        assert len(live.files) == files, len(live.files)
        start = time.perf_counter()
        made = plan(live, Policy(), PlanState(), dt.datetime.now(dt.UTC))
        planning.append(time.perf_counter() - start)
        tasks = len(made.tasks)
    return statistics.median(listing), statistics.median(planning), tasks


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-compaction", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lakes", nargs="+", choices=LAKES, default=list(LAKES))
    parser.add_argument("--files", type=int, help="merge only so many of each")
    parser.add_argument("--planned", type=int, default=PLANNED, help="files of the planned table")
    parser.add_argument("--warm-ups", type=int, default=_WARM_UPS)
    parser.add_argument("--only-merging", action="store_true", help="no planning, no committing")
    given = parser.parse_args()
    console = Console(width=120)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    console.print(
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"PySpark {pyspark.__version__}, delta-rs {deltalake.__version__}, pyarrow "
        f"{pa.__version__}, DuckDB {duckdb.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    results: dict[str, dict[str, Result]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as folder:
        home = Path(folder)
        environment = {"ARCTIC_LAKE": str(home / "lake"), "ARCTIC_SPARK_MASTER": "local[2]"}
        settings = Settings.from_environment(environment)
        catalog = open_catalog(settings)
        with (
            Progress(console=console, transient=True) as progress,
            spark_session(
                settings, {"spark.driver.memory": DRIVER_MEMORY, "spark.log.level": "ERROR"}
            ) as s,
            ExitStack() as stack,
        ):
            peer = _iceberg(home, stack, console)
            ways = 7 if peer else 6
            todo = progress.add_task("", total=len(given.lakes) * ways * given.runs + 3)
            if not given.only_merging:
                progress.update(todo, description=f"planning {given.planned:,} files")
                seconds = planned(catalog, given.planned, given.runs)
                progress.advance(todo)
                progress.update(todo, description=f"committing to {SNAPSHOTS:,} snapshots")
                commits = committed(FILES, SNAPSHOTS)
                progress.advance(todo)
            progress.update(todo, description="warming up")
            warm = write_files(home / "warm", 40, 35_600)
            for _ in range(given.warm_ups):
                ours(s, catalog, Way.APPEND, warm)()
                for engine in (None, Engine.SPARK):
                    ours(s, catalog, Way.DECODE, warm, engine)()
                if peer:
                    peer.rewriting(home / "out", warm)()
                    shutil.rmtree(home / "out")
            progress.advance(todo)
            for lake in given.lakes:
                files, rows = LAKES[lake]
                progress.update(todo, description=f"writing {lake}")
                paths = write_files(home / lake, given.files or files, rows)

                def advance(name: str, lake: str = lake) -> None:
                    progress.update(todo, description=f"{lake}: {name}", advance=1)

                results[lake] = merged(s, catalog, peer, paths, given.runs, home, advance)
                shutil.rmtree(home / lake)
                console.print(_ways_table(lake, results[lake]))
    console.print(
        f"Medians of {given.runs} runs that take turns; CPU seconds of Python and, for ours and "
        "Iceberg's, of the JVM and its Python workers. 'of Iceberg' is per CPU second. Rows and a "
        "checksum over all columns were equal to the inputs' each time. "
        f"Load {os.getloadavg()[0]:.1f}."
    )
    if not given.only_merging:
        console.print(_goals_table(results, given.planned, seconds, commits))


def _iceberg(home: Path, stack: ExitStack, console: Console) -> IcebergPeer | None:
    try:
        peer = stack.enter_context(IcebergPeer(home / "iceberg"))
    except IcebergUnavailable as error:
        console.print(f"{_ICEBERG} is not measured: {error}")
        return None
    console.print(f"{_ICEBERG}: {peer.version}")
    return peer


def _ways_table(lake: str, results: Mapping[str, Result]) -> Table:
    size = next(iter(results.values())).size
    table = Table(title=f"{lake}, {size / 1e6:,.0f} MB, to 128 MB", title_justify="left")
    table.add_column("way")
    for name in ("s", "CPU s", "MB/s", "MB/CPU s", "of delta-rs", "per CPU s", "of Iceberg"):
        table.add_column(name, justify="right")
    for name in ("files", "MB"):
        table.add_column(name, justify="right")
    base, iceberg = results[_DELTA], results.get(_ICEBERG)
    for name, result in results.items():
        table.add_row(
            name,
            f"{statistics.median(run.wall for run in result.runs):.1f}",
            f"{statistics.median(run.cpu for run in result.runs):.1f}",
            f"{result.speed:,.0f}",
            f"{result.thrift:,.1f}",
            f"{result.speed / base.speed:.2f}",
            f"{result.thrift / base.thrift:.2f}",
            f"{result.thrift / iceberg.thrift:.2f}" if iceberg else "–",
            f"{result.runs[-1].files}",
            f"{result.runs[-1].size / 1e6:,.0f}",
        )
    return table


def _goals_table(
    results: Mapping[str, Mapping[str, Result]],
    files: int,
    seconds: tuple[float, float, int],
    commits: tuple[Cost, Cost],
) -> Table:
    table = Table(title="Goals", title_justify="left")
    for name in ("goal", "measured", ""):
        table.add_column(name)

    def add(goal: str, measured: str, met: bool) -> None:
        table.add_row(goal, measured, "met" if met else "missed")

    for lake, of in results.items():
        ratio = of[_APPEND].speed / of[_DELTA].speed
        add(
            f"{lake}: appending at least {APPEND_GOAL:g} x delta-rs",
            f"{ratio:.1f} x",
            ratio >= APPEND_GOAL,
        )
        ratio = of[_DECODE].thrift / of[_DELTA].thrift
        add(
            f"{lake}: decoding at least {DECODE_GOAL:g} x delta-rs per CPU second",
            f"{ratio:.2f} x",
            ratio >= DECODE_GOAL,
        )
    listing, planning, tasks = seconds
    add(
        f"planning {files:,} files under {PLAN_GOAL:g} s",
        f"{listing:.1f} s to list, {planning:.1f} s to plan {tasks} tasks",
        listing + planning < PLAN_GOAL,
    )
    ours_at, stock = commits
    add(
        f"committing {FILES:,} removed files, {SNAPSHOTS:,} snapshots, under {GOAL:g} CPU s",
        f"{ours_at.cpu:.1f} CPU s; pyiceberg's overwrite {stock.cpu:.1f} CPU s",
        ours_at.cpu < GOAL,
    )
    return table


if __name__ == "__main__":
    main()
