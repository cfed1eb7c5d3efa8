"""What a call of the ``arctic`` command costs.

``make bench-cli`` calls commands in processes of their own, on a state database in SQLite with 20
schedules and as many jobs. Times are CPU seconds (user and system) of the whole process, since
wall time follows whatever else the machine does; each is the median of 9 calls.
"""

import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World
from benchmarks.loading import measured

ROUNDS = 9
SCHEDULES = 20
#: What ``arctic --help`` may take.
GOAL = 0.4
_STORIES = Path(__file__).parents[1] / "arctic_orchestration_tests" / "acceptance" / "stories"
_STORY = _STORIES / "feed_on_arrival"
#: The simulated timeline has three arrivals in three days.
CALLS = {
    "arctic --help": ["--help"],
    "arctic schedules list": ["schedules", "list"],
    "arctic jobs list": ["jobs", "list"],
    "arctic simulate FILE": ["simulate", f"{_STORY}.yaml", f"{_STORY}.jsonl"],
}


def code_of(arguments: list[str]) -> str:
    """What the entry point does with the arguments."""
    return (
        f"import sys; sys.argv = ['arctic', *{arguments!r}]\n"
        "from arctic_orchestration.cli.main import main; main()"
    )


def prepare(folder: Path) -> None:
    """Makes the state database that the calls find by their environment."""
    url = f"sqlite:///{folder / 'state.db'}"
    os.environ["ARCTIC_DATABASE_URL"] = url
    os.environ.pop("DAGSTER_HOME", None)
    trigger = on.partitions("raw/feed", count=2) | on.cron("0 4 * * *")
    database = Database(url)
    database.upgrade()
    names = [f"schedule_{number}" for number in range(SCHEDULES)]
    world = World(
        database,
        [Schedule(name=name, target=name, trigger=trigger, enabled=True) for name in names],
    )
    world.tick(0)
    world.feed.arrive("raw/feed", "monday")
    world.tick(1)
    database.close()


def main() -> None:
    """Measures all calls in turn, and prints the table."""
    console = Console()
    codes = {"python -c pass": "pass", "import typer": "import typer"}
    codes |= {name: code_of(arguments) for name, arguments in CALLS.items()}
    with TemporaryDirectory() as folder:
        prepare(Path(folder))
        seconds = measured(codes, ROUNDS, console)
    table = Table("process", title="Calling the arctic command, CPU s a process")
    for column in ("median", "least", "most"):
        table.add_column(column, justify="right")
    for name, taken in seconds.items():
        numbers = (statistics.median(taken), min(taken), max(taken))
        table.add_row(name, *(f"{number:.2f}" for number in numbers))
    console.print(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}\n"
    )
    console.print(table)
    if (median := statistics.median(seconds["arctic --help"])) > GOAL:
        raise SystemExit(f"arctic --help took {median:.2f} CPU s, more than {GOAL}")


if __name__ == "__main__":
    main()
