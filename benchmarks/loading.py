"""What this library adds to each process that loads a code location.

``make bench-loading`` starts processes that do what a run worker does first: import what Dagster's
own command needs, then load a code location. Times are medians of CPU seconds (user and system) of
the whole process, since wall time follows whatever else the machine does.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROUNDS = 7

_DAGSTER = "import dagster as dg, dagster._cli.api, dagster._core.storage.event_log.sqlite\n"
_ASSETS = """
@dg.asset
def rollup(): ...
parts = [dg.Definitions(assets=[dg.AssetSpec("raw"), rollup])]
"""
_SCHEDULES = """
from arctic_orchestration import Arctic, Schedule, on, only
parts.append(Arctic(schedules=[Schedule(
    name="rollup", target=dg.AssetSelection.assets("rollup"),
    trigger=on.partitions("raw", count=3) | on.cron("0 4 * * *"), constraints=[only.concurrency(1)],
)]).definitions())
"""
_COMPACTION = """
from arctic_orchestration import Compaction
parts.append(Compaction(tables=["*"]).definitions())
"""
_LOAD = "dg.Definitions.merge(*parts).get_repository_def().load_all_definitions()\n"

LOCATIONS = {
    "an asset": _DAGSTER + _ASSETS + _LOAD,
    "with a schedule of ours": _DAGSTER + _ASSETS + _SCHEDULES + _LOAD,
    "and with compaction": _DAGSTER + _ASSETS + _SCHEDULES + _COMPACTION + _LOAD,
    "the same asset, pyspark and pandas imported": (
        _DAGSTER + "import pyspark.sql, pandas\n" + _ASSETS + _LOAD
    ),
    "the flights lake": _DAGSTER + "import arctic_orchestration.definitions as flights\n"
    "flights.defs.get_repository_def().load_all_definitions()\n",
}


def cpu_seconds(code: str) -> float:
    """The CPU seconds of a process that runs the code; what it prints is dropped."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"a process failed: exit status {status}")
    return used.ru_utime + used.ru_stime


def measured(codes: Mapping[str, str], rounds: int, console: Console) -> dict[str, list[float]]:
    """The CPU seconds of a process for each code, in turn, so that all see the same load."""
    for code in codes.values():
        cpu_seconds(code)  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for _ in track(range(rounds), "measuring", console=console, transient=True):
        for name, code in codes.items():
            seconds[name].append(cpu_seconds(code))
    return seconds


def main() -> None:
    """Measures all locations in turn, and prints the table."""
    console = Console()
    seconds = measured(LOCATIONS, ROUNDS, console)
    base = statistics.median(seconds["an asset"])
    table = Table("code location", title="Loading a code location, CPU s a process")
    for column in ("median", "least", "most", "more than an asset"):
        table.add_column(column, justify="right")
    for name, taken in seconds.items():
        middle = statistics.median(taken)
        extra = f"{middle - base:.2f}"
        table.add_row(name, f"{middle:.2f}", f"{min(taken):.2f}", f"{max(taken):.2f}", extra)
    console.print(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, Dagster {version('dagster')}, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    console.print(table)


if __name__ == "__main__":
    main()
