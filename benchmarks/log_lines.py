"""How much an idle location writes into the daemon's log.

``python -m benchmarks.log_lines`` starts a real ``dagster-daemon`` with Dagster's own classes in
``dagster.yaml``, and one with ``ArcticRunCoordinator``. The location has the dispatcher, a task,
compaction and a consumer's sensor, and nothing to do. Lines are counted from the first tick on.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.table import Table

from arctic_orchestration import (
    Arctic,
    Compaction,
    Freshness,
    PartitionConsumer,
    Schedule,
    consumer_sensor,
    fresh_parents,
    on,
)

_OURS = {
    "Dagster's own classes": "",
    "ArcticRunCoordinator": "run_coordinator:\n"
    "  module: arctic_orchestration.coordinator\n  class: ArcticRunCoordinator\n",
}


@dg.asset
def flights() -> None: ...


@dg.asset
def rollup() -> None: ...


@fresh_parents({"flights": 24})
@dg.asset
def report() -> None: ...


@dg.op
def nothing() -> None: ...


@dg.job
def handle() -> None:
    nothing()


def location() -> dg.Definitions:
    """A code location with one sensor of each kind."""
    schedule = Schedule(
        name="rollup", target={"assets": ["rollup"]}, trigger=on.partitions("flights"), enabled=True
    )
    consumer = PartitionConsumer("flights", name="handle")
    return dg.Definitions.merge(
        dg.Definitions(
            assets=[flights, rollup],
            jobs=[handle],
            sensors=[consumer_sensor(consumer, target=handle, name="handle_flights")],
        ),
        Arctic(schedules=[schedule]).definitions(),
        Freshness(tasks=[report]).definitions(),
        Compaction(tables=["*"]).definitions(),
    )


def counted(configuration: str, seconds: float) -> Counter[str]:
    """The lines of the daemon's log in so many seconds: of sensors, and of all else."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "dagster.yaml").write_text(f"{configuration}telemetry: {{enabled: false}}\n")
        log = Path(home) / "daemon.log"
        environment = {**os.environ, "DAGSTER_HOME": home, "PYTHONWARNINGS": "ignore"}
        environment |= {
            "ARCTIC_DATABASE_URL": f"sqlite:///{home}/arctic.db",
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{home}/catalog.db",
            "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"file://{home}/lake",
        }
        command = [sys.executable, "-m", "dagster._daemon", "run"]
        command += ["-m", "benchmarks.log_lines", "-a", "location"]
        with log.open("wb") as out:
            daemon = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            while b"arctic_dispatcher" not in log.read_bytes():
                if daemon.poll() is not None:
                    sys.exit(log.read_text())
                time.sleep(0.5)
            begin = log.stat().st_size
            time.sleep(seconds)
            text = log.read_bytes()[begin:].decode()
        finally:
            daemon.terminate()
            daemon.wait()
    lines = [line for line in text.splitlines() if " - dagster" in line]
    return Counter("sensors" if "SensorDaemon" in line else "others" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log_lines", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    table = Table(title=f"Lines of the daemon's log in {given.seconds:g} s", title_justify="left")
    for column in ("dagster.yaml", "of sensors", "others"):
        table.add_column(column, justify="left" if column == "dagster.yaml" else "right")
    for name, configuration in _OURS.items():
        lines = counted(configuration, given.seconds)
        table.add_row(name, str(lines["sensors"]), str(lines["others"]))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
