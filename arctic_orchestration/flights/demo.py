"""``make demo``: a week of real flights, from landing files to compacted Iceberg tables, checked.

It lands the files, and does nothing else but watch: the runs are started by the real daemon,
because files have arrived, because runs have succeeded, and because small files have come together.
Killed at any point and started again it goes on where it was, and ends with the same rows.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import islice
from pathlib import Path

import dagster as dg
from pyiceberg.catalog import Catalog
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from arctic_orchestration.flights.demo_compaction import compacted, progress
from arctic_orchestration.flights.demo_end import (
    Rest,
    failed_jobs,
    last_tick,
    runs_of_schedules,
    seconds_at_work,
)
from arctic_orchestration.flights.demo_instance import LAUNCHERS, LOCATION, DemoInstance
from arctic_orchestration.flights.feeding import DagsterAnnouncements, feed_days
from arctic_orchestration.flights.feeds import asset_of, files_of, first_days
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.flights.totals import TABLES, Difference, Totals, compare, totals_of
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.views.overview import Overview, overview
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

_POLL_SECONDS = 0.5
#: A third of a day: eight hours of weather, and the flights from one airport.
_FILES_AT_ONCE = 9
#: After this long without a change the screen shows how long it has been.
_QUIET_SECONDS = 30
#: A failed worker is restarted; after this many failures the demo gives up.
_FAILED_WORKERS = 3


class Demo:
    """One demo in one folder."""

    def __init__(self, place: DemoInstance, days: Sequence[date], console: Console) -> None:
        self._place = place
        self._days = days
        self._console = console
        self._files = len(files_of(days))
        self._landed = 0
        self._began = time.monotonic()

    def run(self) -> bool:
        """Runs all of it; returns whether the tables match the totals and compaction has ended."""
        finished = self._place.home / "finished"
        if finished.exists():
            shutil.rmtree(self._place.home)
        elif self._place.home.exists():
            ended = self._place.end_leftovers()
            self._console.print(
                f"going on with the demo in {self._place.home} ({ended} old processes ended)"
            )
        self._place.prepare()
        environment = self._place.environment
        os.environ.clear()
        os.environ.update(environment)
        with self._console.status("adding up the CSV with DuckDB, for later"):
            totals = totals_of(self._days)
        with dg.DagsterInstance.get() as instance:
            self._place.fail_lost_runs(instance)
            with self._daemon() as daemon:
                differences = self._watch(instance, daemon, totals)
                restless = "" if differences else self._compact(instance, daemon)
            # Compaction since then has not changed the rows.
            differences = differences or compare(
                open_catalog(Settings.from_environment()), totals, TABLES
            )
            self._summary(instance, totals, differences, restless)
        if not differences and not restless:
            finished.touch()
        return not differences and not restless

    @contextmanager
    def _daemon(self) -> "Iterator[subprocess.Popen[bytes]]":
        daemon = self._place.start_daemon()
        try:
            yield daemon
        finally:
            with self._console.status("stopping the daemon"):
                self._place.stop(daemon)

    def _watch(
        self, instance: dg.DagsterInstance, daemon: "subprocess.Popen[bytes]", totals: Totals
    ) -> list[Difference]:
        settings = Settings.from_environment()
        database = Database.open(settings.database_url)
        bar = Progress(
            TextColumn("landing files"), BarColumn(), MofNCompleteColumn(), console=self._console
        )
        task = bar.add_task("files", total=self._files)
        feeding = feed_days(
            FlightsSource.installed(),
            Landing.of(settings),
            DagsterAnnouncements(instance),
            self._days,
        )
        known, moved_at = "", time.monotonic()
        failed_before: int | None = None
        seen = Overview(following=False, events=0, schedules=())
        rest = Rest(lambda: last_tick(instance), lambda: runs_of_schedules(instance, seen))
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            while True:
                with database.read() as tx:
                    seen = overview(tx, settings.cluster, LOCATION)
                if seen.following:
                    # Files that land before the dispatcher follows the log are ignored.
                    deque(islice(feeding, _FILES_AT_ONCE), maxlen=0)
                    self._landed = self._count(settings)
                    bar.update(task, completed=self._landed)
                if failed_before is None:
                    failed_before = failed_jobs(seen)
                state = repr((seen, self._landed))
                if state != known:
                    known, moved_at = state, time.monotonic()
                live.update(self._screen(bar, seen, time.monotonic() - moved_at))
                complete = self._landed >= self._files and next(feeding, None) is None
                failed = daemon.poll() is not None or failed_jobs(seen) > failed_before
                if failed or (complete and rest.reached(seen)):
                    database.close()
                    return compare(open_catalog(settings), totals, TABLES)
                if complete or not seen.following:
                    time.sleep(_POLL_SECONDS)

    def _compact(self, instance: dg.DagsterInstance, daemon: "subprocess.Popen[bytes]") -> str:
        """Waits until nothing is left to merge; returns why it gave up, or nothing."""
        settings = Settings.from_environment()
        database = Database.open(settings.database_url)
        catalog = open_catalog(settings)
        names = [f"nyc.{name}" for name in TABLES]
        failed_before: int | None = None
        try:
            with self._console.status("waiting for compaction") as status:
                while True:
                    with database.read() as tx:
                        seen = progress(tx, catalog, instance, names)
                    if not seen.restless:
                        return ""
                    status.update(f"waiting for compaction: {seen.restless}")
                    if daemon.poll() is not None:
                        return f"the daemon has ended; {seen.restless}"
                    failed_before = seen.failed_runs if failed_before is None else failed_before
                    if seen.failed_runs - failed_before >= _FAILED_WORKERS:
                        return f"{_FAILED_WORKERS} runs of the worker failed; {seen.restless}"
                    time.sleep(_POLL_SECONDS)
        finally:
            database.close()

    def _count(self, settings: Settings) -> int:
        return Landing.of(settings).count()

    def _screen(self, bar: Progress, seen: Overview, quiet: float) -> Table:
        grid = Table.grid()
        grid.add_row(bar)
        if not seen.following:
            grid.add_row(Text("waiting for the dispatcher's first tick", style="dim"))
            return grid
        jobs = Table("schedule", "events", "waiting", "active", "succeeded", "failed", box=None)
        for schedule in seen.schedules:
            jobs.add_row(
                schedule.name,
                *map(
                    str,
                    (
                        schedule.events,
                        schedule.waiting,
                        schedule.active,
                        schedule.jobs.get(JobState.SUCCEEDED, 0),
                        schedule.jobs.get(JobState.FAILED, 0),
                    ),
                ),
            )
        grid.add_row(jobs)
        clock = f"{time.monotonic() - self._began:.0f} s"
        if quiet > _QUIET_SECONDS:
            clock += f", no change for {quiet:.0f} s; Ctrl-C stops, and the next start goes on"
        grid.add_row(Text(clock, style="dim"))
        return grid

    def _summary(
        self,
        instance: dg.DagsterInstance,
        totals: Totals,
        differences: Sequence[Difference],
        restless: str,
    ) -> None:
        settings = Settings.from_environment()
        database = Database.open(settings.database_url)
        with database.read() as tx:
            seen = overview(tx, settings.cluster, LOCATION)
        database.close()
        table = Table(title="What happened", title_justify="left")
        for column in ("schedule", "events", "jobs", "runs that succeeded"):
            table.add_column(column, justify="left" if column == "schedule" else "right")
        for schedule in seen.schedules:
            table.add_row(
                schedule.name,
                str(schedule.events),
                str(sum(schedule.jobs.values())),
                str(schedule.jobs.get(JobState.SUCCEEDED, 0)),
            )
        self._console.print(table)
        held = Table(title="What the lake holds", title_justify="left")
        for column in ("table", "rows", "by DuckDB from the CSV", ""):
            held.add_column(column, justify="right" if "rows" in column else "left")
        catalog = open_catalog(settings)
        for name in TABLES:
            identifier = f"nyc.{name}"
            rows = (
                catalog.load_table(identifier).scan().count()
                if catalog.table_exists(identifier)
                else 0
            )
            expected = totals.rows(name)
            wrong = sum(difference.table == name for difference in differences)
            verdict = "[red]differs[/]" if wrong else "[green]agrees[/]"
            held.add_row(identifier, f"{rows:,}", f"{expected:,}", verdict)
        self._console.print(held)
        self._console.print(self._compaction(catalog))
        runs = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS]))
        self._console.print(
            f"{self._landed} files landed, {seen.events} events taken, {runs} runs succeeded, "
            f"{time.monotonic() - self._began:.0f} s, of which runs worked "
            f"{seconds_at_work(instance):.0f} s.",
            highlight=False,
        )
        for difference in differences[:20]:
            self._console.print(f"[red]{difference}[/]", highlight=False)
        if restless:
            self._console.print(f"[red]compaction has not ended: {restless}[/]", highlight=False)
        if differences or restless:
            self._console.print(f"The daemon's log: {self._place.log}", highlight=False)
            return
        self._console.print(
            "\nLook at it in Dagster's UI, then open http://127.0.0.1:3000\n"
            f"  DAGSTER_HOME={self._place.home} {Path(sys.executable).with_name('dagster')} dev "
            f"-w {self._place.workspace} -h 127.0.0.1\n"
            "See what waits and why, then open http://127.0.0.1:3001\n"
            f"  DAGSTER_HOME={self._place.home} {Path(sys.executable).with_name('arctic')} serve\n"
            "Announce a file yourself:\n"
            f"  DAGSTER_HOME={self._place.home} {Path(sys.executable).with_name('arctic')} "
            f"partitions add {asset_of('flights')} '2013-01-08|EWR'",
            highlight=False,
            soft_wrap=True,
        )

    def _compaction(self, catalog: Catalog) -> Table:
        """Returns the tables' files as they were written, and as compaction left them."""
        table = Table(title="What compaction made of it", title_justify="left")
        table.add_column("table")
        for column in ("commits", "files written", "files now", "scan before", "scan now"):
            table.add_column(column, justify="right")
        for name in TABLES:
            if not catalog.table_exists(f"nyc.{name}"):
                continue
            found = compacted(catalog.load_table(f"nyc.{name}"))
            if found is None:
                table.add_row(f"nyc.{name}", "", "rows were written twice: no comparison")
                continue
            table.add_row(
                f"nyc.{name}",
                str(found.commits),
                str(found.before.files),
                str(found.after.files),
                f"{found.before.seconds * 1000:.0f} ms",
                f"{found.after.seconds * 1000:.0f} ms",
            )
        return table


def main() -> None:
    """Runs the command; exit code 0 only when everything agrees."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".demo"), help="folder of the demo")
    parser.add_argument("--days", type=int, default=7, help="days of 2013 to land")
    parser.add_argument(
        "--launcher", choices=sorted(LAUNCHERS), default="warm", help="how runs begin"
    )
    given = parser.parse_args()
    place = DemoInstance(given.home.resolve(), given.launcher)
    demo = Demo(place, first_days(given.days), Console())
    sys.exit(0 if demo.run() else 1)


if __name__ == "__main__":
    main()
