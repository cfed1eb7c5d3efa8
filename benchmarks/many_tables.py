"""What a tick of the planner costs in a lake of 50,000 tables, of which one in a hundred changed.

``python -m benchmarks.many_tables`` makes the tables in a directory of its own: each has metadata
of its own, and shares the manifests of one of two snapshots. A new planner first checks all of
them. Then one table in a hundred gets a new snapshot, whose files are worth merging, and a tick is
measured: of a planner that asks the catalog which tables have changed, and of one that visits all,
as all did before, and as it must with catalogs that do not tell. CPU seconds are of this process.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import sqlalchemy as sa
from pyiceberg.catalog.sql import IcebergTables
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Printed

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.planning import unchanged_tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from benchmarks.commits import Cost

TABLES, SHARE = 50_000, 0.01
#: between ticks: longer than the interval of checks
_PAUSE = timedelta(seconds=61)
_LONG = timedelta(hours=2)


class ManyTables:
    """Copies of one table's metadata, under names of their own."""

    def __init__(self, directory: Path, count: int) -> None:
        self.lake = Lake.at(directory / "lake")
        self._directory = directory / "metadata"
        self._directory.mkdir()
        # Nothing of it becomes due by the clock alone.
        template = self.lake.table(
            "lake.template", files=1, minor__interval="never", major__interval="never"
        )
        self._quiet = self._metadata(), str(template.metadata.table_uuid)
        self.lake.append("lake.template", 12)
        self._busy = self._metadata(), self._quiet[1]
        self.lake.catalog.drop_table("lake.template")
        self.names = [f"t{number:05}" for number in range(count)]
        self._ids = {name: str(uuid4()) for name in self.names}

    def _metadata(self) -> str:
        location = self.lake.catalog.load_table("lake.template").metadata_location
        return Path(location.removeprefix("file://")).read_text()

    def write(self) -> None:
        """All tables, each with one small file."""
        rows = [
            {
                "catalog_name": self.lake.catalog.name,
                "table_namespace": "lake",
                "table_name": name,
                "metadata_location": self._written(name, *self._quiet, version=1),
                "iceberg_type": "TABLE",
            }
            for name in self.names
        ]
        with self._catalog().begin() as tx:
            tx.execute(sa.insert(IcebergTables), rows)

    def touch(self, names: list[str]) -> None:
        """Each of these tables gets twelve files more."""
        stored = IcebergTables.__table__.c
        with self._catalog().begin() as tx:
            for name in names:
                location = self._written(name, *self._busy, version=2)
                change = sa.update(IcebergTables).where(stored.table_name == name)
                tx.execute(change.values(metadata_location=location))

    def _written(self, name: str, text: str, id: str, version: int) -> str:
        path = self._directory / f"{name}-{version}.metadata.json"
        path.write_text(text.replace(id, self._ids[name]))
        return str(path)

    def _catalog(self) -> sa.Engine:
        return self.lake.catalog.engine


@contextmanager
def _visiting() -> Iterator[None]:
    with patch.object(unchanged_tables, "metadata_locations", lambda _: None):
        yield


def ticked(planner: Planner, now: datetime) -> tuple[Cost, PlanningCounts]:
    """One tick, as long as it takes."""
    planner.discover()
    wall, cpu = time.perf_counter(), time.process_time()
    counts = planner.tick(now, at_most=_LONG)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu), counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-compaction", description=__doc__)
    parser.add_argument("--tables", type=int, default=TABLES)
    given = parser.parse_args()
    console = Console(width=100)
    printed = Printed(title=f"{given.tables:,} tables, {SHARE:.0%} of them changed")
    for name in ("tick", "s", "CPU s", "checked", "planned", "tasks"):
        printed.add_column(name, justify="left" if name == "tick" else "right")
    with (
        tempfile.TemporaryDirectory(prefix="bench-many-tables-") as folder,
        Progress(console=console, transient=True) as progress,
    ):
        todo = progress.add_task("writing the tables", total=4)
        many = ManyTables(Path(folder), given.tables)
        many.write()
        progress.advance(todo)
        database = Database(f"sqlite:///{folder}/arctic.db")
        with closing(database):
            database.upgrade()
            with database.begin() as tx:
                queues.update_queue(tx, "default", capacity=10 * given.tables)
            planner, now = Planner(database, many.lake.catalog), utc_now() + _PAUSE

            def tick(what: str, touched: list[str]) -> None:
                nonlocal now
                progress.update(todo, description=what)
                many.touch(touched)
                now += _PAUSE
                cost, counts = ticked(planner, now)
                assert counts.postponed == counts.troubled == 0, counts
                printed.add_row(
                    what,
                    f"{cost.wall:,.1f}",
                    f"{cost.cpu:,.1f}",
                    f"{counts.looked:,}",
                    f"{counts.planned:,}",
                    f"{counts.offered:,}",
                )
                progress.advance(todo)

            step, half = round(1 / SHARE), round(0.5 / SHARE)
            tick("the first one of a new planner", [])
            tick("1 % changed, and the catalog tells which", many.names[::step])
            with _visiting():
                tick("1 % changed, all visited, as before", many.names[half::step])
            tick("nothing changed, and the catalog tells so", [])
    console.print(printed)


if __name__ == "__main__":
    main()
