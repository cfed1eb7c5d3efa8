"""The demo ends with the tables it should, also when it was killed and started again.

``ARCTIC_PROOF=full`` kills the demo of seven days ten times, and compares it with the others, of
which one has its tables in an object store, with Iceberg's REST catalog. By default it is that of
one day, killed once, and compared with that of Dagster's launcher.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.flights.demo_instance import LAUNCHERS, LOCATION, DemoInstance
from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.totals import TABLES, compare, totals_of
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.schedules.views.overview import ScheduleView, overview
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.served_catalog import served_catalog

FULL = os.environ.get("ARCTIC_PROOF") == "full"
DAYS = 7 if FULL else 1
KILLS = 10 if FULL else 1
#: warm runs with Iceberg's REST catalog and an object store; ``test_stores.py`` in a small size
SERVED = "rest-s3"
COMPARED = (*LAUNCHERS, SERVED) if FULL else ("warm", "dagster")

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]


def _settings(home: Path) -> Settings:
    return Settings.from_environment({"DAGSTER_HOME": str(home)})


def _schedule(home: Path, name: str) -> ScheduleView | None:
    if not (home / "arctic.db").exists():
        return None
    database = Database(_settings(home).database_url)
    try:
        if database.revision() is None:
            return None
        with database.read() as tx:
            views = overview(tx, "default", LOCATION).schedules
    finally:
        database.close()
    return next((view for view in views if view.name == name), None)


def _landed(home: Path) -> int:
    return len(list((home / "lake" / "landing").glob("flights/*/*.csv")))


def _some_landed(home: Path) -> bool:
    return _landed(home) >= 2


def _run_active(home: Path) -> bool:
    view = _schedule(home, "flights")
    return view is not None and view.active > 0


def _spark_writes(home: Path) -> bool:
    return any((home / "lake").glob("**/append-*"))


def _rolls_up(home: Path) -> bool:
    view = _schedule(home, "delays_by_route")
    return view is not None and view.active > 0


POINTS: list[Callable[[Path], bool]] = [_spark_writes, _rolls_up, _some_landed, _run_active]


def _start(home: Path, launcher: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "arctic_orchestration.flights.demo"]
    # A pipe that nobody reads would be full some time, and stop it.
    with _output(home).open("wb") as output:
        return subprocess.Popen(
            [*command, "--home", str(home), "--days", str(DAYS), "--launcher", launcher],
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _output(home: Path) -> Path:
    """What the last demo has printed."""
    return home.with_suffix(".log")


def _kill_and_start_again(home: Path, launcher: str) -> "subprocess.Popen[bytes]":
    """SIGKILL while files land, while Spark writes, while the rollup runs; then it goes on."""
    kills = 0
    for number in range(KILLS):
        point = POINTS[number % len(POINTS)]
        demo = _start(home, launcher)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while demo.poll() is None and not point(home) and time.monotonic() < deadline:
            time.sleep(0.05)
        if demo.poll() is None:
            assert point(home), f"{point.__name__} never came"
            demo.send_signal(signal.SIGKILL)
            kills += 1
        demo.wait()
    assert kills, "no demo was killed"
    return _start(home, launcher)


@contextmanager
def _catalog(compared: str, tmp_path: Path) -> Iterator[None]:
    """The lake's catalog, for this process and those that it starts."""
    if compared != SERVED:
        yield
        return
    with served_catalog(tmp_path) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def _rows(home: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table of the lake, sorted."""
    catalog = open_catalog(_settings(home))
    tables = {name: catalog.load_table(f"nyc.{name}") for name in TABLES}
    return {
        name: sorted(table.scan().to_arrow().to_pylist(), key=repr)
        for name, table in tables.items()
    }


def test_the_tables_are_the_same_however_runs_begin(tmp_path: Path) -> None:
    """On warm JVMs and killed again and again, in run hosts alone, with Dagster's launcher."""
    totals = totals_of(first_days(DAYS))
    rows = {}
    for compared in COMPARED:
        home = tmp_path / compared
        start = _kill_and_start_again if compared == "warm" else _start
        with _catalog(compared, tmp_path):
            try:
                demo = start(home, compared if compared in LAUNCHERS else "warm")
                assert demo.wait(900 if FULL else 400) == 0, _output(home).read_text()[-4000:]
            finally:
                DemoInstance(home.resolve()).end_leftovers()
            assert compare(open_catalog(_settings(home)), totals) == []
            rows[compared] = _rows(home)
    first = rows.pop("dagster")
    assert all(first.values())
    assert all(other == first for other in rows.values())
