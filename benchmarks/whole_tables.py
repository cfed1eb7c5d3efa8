"""From planning to commit: a table of many small files, beside Iceberg's own procedure.

``python -m benchmarks.whole_tables`` compacts 5,000 files of 1 MB: as ``arctic compaction run``
does, with the engine that it chooses and with one that decodes, and by ``rewrite_data_files``, on
tables of the same files in one catalog. ``--place s3`` has a smaller one on Versity's S3 server.
Each has a warm session, two cores and as much memory. CPU seconds are of Python, the JVM and its
Python workers, and not of the server. Rows and sums of columns are compared with the inputs'.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pyspark
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Rows

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.run_once import compact_now
from arctic_orchestration.lake import open_catalog, spark_session
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Merged, merge
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.iceberg_spark import PACKAGES
from arctic_orchestration_tests.lake.imagined_files import commit_files
from arctic_orchestration_tests.object_store import BUCKET
from arctic_orchestration_tests.versity import ABSENT, is_absent, versity
from benchmarks.compaction import cpu_seconds, family
from benchmarks.compaction_files import SCHEMA, ZSTD_LEVEL, write_files
from benchmarks.iceberg_rewrite import DRIVER_MEMORY, IcebergPeer

_ROWS = 35_600
_FILES = {"local": 5_000, "s3": 400}
_WARM = 40
_AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
_ICEBERG = "Iceberg rewrite_data_files"
_SERVER = "versitygw"


@contextmanager
def _place(kind: str, home: Path) -> Iterator[tuple[Catalog, str, dict[str, str]]]:
    """Yields the catalog, where its tables are, and Iceberg's properties for it."""
    if kind == "local":
        settings = Settings.from_environment({"ARCTIC_LAKE": str(home / "lake")})
        yield open_catalog(settings), str(home / "lake" / "tables"), {}
        return
    (home / "s3").mkdir()
    (home / "lake").mkdir()
    with versity(home / "s3") as store:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/lake/catalog.db", **store)
        options = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": store["s3.region"],
            "s3.path-style-access": "true",
            **{key: value for key, value in store.items() if key != "s3.region"},
        }
        yield (
            catalog,
            f"s3://{BUCKET}/tables",
            {
                **{f"spark.sql.catalog.lake.{key}": value for key, value in options.items()},
                "spark.jars.packages": ",".join((*PACKAGES, _AWS)),
            },
        )


def _table(catalog: Catalog, root: str, name: str, paths: Sequence[Path]) -> Table:
    """A table of these files, which are linked or uploaded."""
    location = f"{root}/{name}"
    properties = {
        "write.parquet.compression-codec": "zstd",
        "write.parquet.compression-level": str(ZSTD_LEVEL),
        "arctic.compaction.target-size": "128MB",
    }
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(f"db.{name}", SCHEMA, location=location, properties=properties)
    files = []
    for path in paths:
        target = f"{location}/data/{path.name}"
        if root.startswith("s3:"):
            with table.io.new_output(target).create() as stream:
                stream.write(path.read_bytes())
        else:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
        files.append(describe(table, target, spec_id=0, partition=()))
    commit_files(table, files)
    return table.refresh()


def _content(table: Table) -> tuple[int, ...]:
    """The number of rows, and the sums of some columns."""
    found = [file.path for file in live_files(table.refresh()).files]
    scheme, netloc, _ = PyArrowFileIO.parse_location(found[0])
    store = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
    paths = [PyArrowFileIO.parse_location(path)[2] for path in found]
    rows = ds.dataset(paths, filesystem=store).to_table(columns=["id", "flight", "fuel"])
    sums = (rows[name].to_numpy().sum() for name in ("id", "flight"))
    return len(rows), *map(int, sums), round(float(rows["fuel"].to_numpy().sum()) / 1e6)


def _ours(spark: SparkSession, catalog: Catalog, home: Path, way: Way | None, table: Table) -> None:
    name = ".".join(table.name())

    def merging(table: Table, group: FileGroup, directory: str, *, target_bytes: int) -> Merged:
        return merge(spark, table, group, directory, target_bytes=target_bytes, way=way)

    database = Database(f"sqlite:///{home}/arctic.db")
    try:
        done = compact_now(database, catalog, merging, name, utc_now(), force=True)
    finally:
        database.close()
    assert done.trouble is None, done.trouble
    assert not done.left, done.left


def _processes(own: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    return [process for process in own() if process.name() != _SERVER]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_tables", description=__doc__)
    parser.add_argument("--place", choices=_FILES, default="local")
    parser.add_argument("--files", type=int)
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    if given.place == "s3" and is_absent():
        raise SystemExit(ABSENT)
    count = given.files or _FILES[given.place]
    console = Console(width=120)
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, PySpark "
        f"{pyspark.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    with (
        tempfile.TemporaryDirectory(prefix="bench-tables-") as folder,
        _place(given.place, Path(folder)) as (catalog, root, options),
        IcebergPeer(Path(folder) / "lake", options) as peer,
        _session(Path(folder)) as spark,
        Progress(console=console, transient=True) as progress,
    ):
        home = Path(folder)
        with closing(Database(f"sqlite:///{home}/arctic.db")) as database:
            database.upgrade()
        ways: Mapping[str, Callable[[Table], None]] = {
            "ours, as it chooses": partial(_ours, spark, catalog, home, None),
            "ours, decoding": partial(_ours, spark, catalog, home, Way.DECODE),
            _ICEBERG: lambda table: peer.rewrite(".".join(table.name())),
        }
        todo = progress.add_task("writing", total=(2 + given.runs) * len(ways))
        paths = write_files(home / "files", count, _ROWS)
        size = sum(path.stat().st_size for path in paths)
        expected: tuple[int, ...] | None = None
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(2 + given.runs):
            is_warm = turn >= 2
            # None is always the last one, when others have filled caches.
            first = turn % len(ways)
            order = [*ways][first:] + [*ways][:first]
            for number, name in enumerate(order):
                progress.update(todo, description=f"{name}: a table", advance=1)
                some = paths if is_warm else paths[:_WARM]
                table = _table(catalog, root, f"flights_{turn}_{number}", some)
                before = _content(table) if not is_warm or expected is None else expected
                progress.update(todo, description=name)
                own = (lambda: peer.processes) if name == _ICEBERG else partial(family, peer)
                os.sync()
                cpu, wall = cpu_seconds(_processes(own)), time.perf_counter()
                ways[name](table)
                wall, after = time.perf_counter() - wall, cpu_seconds(_processes(own))
                assert cpu.keys() <= after.keys(), "a process ended, with its CPU seconds"
                assert _content(table) == before, name
                files = len(live_files(table.refresh()).files)
                assert files < len(some) / 10, files
                if is_warm:
                    expected = before
                    costs[name].append((wall, sum(after.values()) - sum(cpu.values())))
                catalog.purge_table(table.name())
        console.print(_table_of(costs, f"{count:,} files, {size / 1e6:,.0f} MB, {given.place}"))


@contextmanager
def _session(home: Path) -> Iterator[SparkSession]:
    environment = {"ARCTIC_LAKE": str(home / "lake"), "ARCTIC_SPARK_MASTER": "local[2]"}
    options = {"spark.driver.memory": DRIVER_MEMORY, "spark.log.level": "ERROR"}
    with spark_session(Settings.from_environment(environment), options) as spark:
        yield spark


def _table_of(costs: Mapping[str, list[tuple[float, float]]], title: str) -> Rows:
    shown = Rows(title=title, title_justify="left")
    shown.add_column("from planning to commit")
    for name in ("s", "CPU s", "times as fast as Iceberg", "per CPU s"):
        shown.add_column(name, justify="right")
    walls = {name: statistics.median(wall for wall, _ in of) for name, of in costs.items()}
    cpus = {name: statistics.median(cpu for _, cpu in of) for name, of in costs.items()}
    for name in costs:
        shown.add_row(
            name,
            f"{walls[name]:.1f}",
            f"{cpus[name]:.1f}",
            f"{walls[_ICEBERG] / walls[name]:.2f}",
            f"{cpus[_ICEBERG] / cpus[name]:.2f}",
        )
    return shown


if __name__ == "__main__":
    main()
