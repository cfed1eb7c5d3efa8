"""The ``arctic`` command."""

import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from arctic_orchestration.console.lazy_command import LazyCommand
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import ArcticError, MissingExtra

#: Each command in the order of the help: its module and object, and its help line.
_COMMANDS = {
    "worker": (
        "compaction.cli.worker:worker",
        "Merges files for compaction queues, until SIGTERM or Ctrl-C.",
    ),
    "audit": (
        "cli.audit:audit",
        "List what people changed with commands, newest first, and who it was.",
    ),
    "simulate": (
        "schedules.cli.simulate:simulate",
        "Prints each decision of the scheduler as a line of JSON.",
    ),
    "schema": (
        "schedules.cli.schema:schema",
        "Writes the JSON Schema of a file of schedules (YAML or JSON).",
    ),
    "doctor": (
        "cli.doctor.command:doctor",
        "Checks the surroundings; exit code 1 when something has to be mended.",
    ),
    "schedules": ("schedules.cli.schedules:app", "Schedules: what fires, and when."),
    "jobs": ("schedules.cli.jobs:app", "Jobs: firings of schedules, and why they wait."),
    "locations": ("schedules.cli.locations:app", "Code locations in the state database."),
    "runs": ("run_queue.cli.runs:app", "Runs that wait in Dagster's queue, and why."),
    "queues": ("run_queue.cli.queues:app", "Queues and groups of runs: shares, limits, pauses."),
    "compaction": (
        "compaction.cli:app",
        "Small files of lake tables that are merged into larger ones.",
    ),
    "tasks": (
        "freshness.cli:app",
        "Tasks with freshness dependencies: assets and jobs that run when their parents are "
        "fresh enough, once for all clusters.",
    ),
    "consumers": (
        "consumers.cli.consumers:app",
        "Partition consumers: everything new since one last looked.",
    ),
    "events": ("schedules.cli.events:app", "Events that schedules took."),
    "partitions": ("schedules.cli.partitions:app", "Partitions of assets."),
    "db": ("cli.database:app", "The state database."),
    "feed": ("schedules.cli.feed:app", "Reading Dagster's event log."),
}


class _Group(TyperGroup):
    """The group of all commands; each is imported when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (home, line) in _COMMANDS.items():
            self.add_command(LazyCommand(name, f"arctic_orchestration.{home}", help=line))


app = typer.Typer(
    name="arctic",
    cls=_Group,
    help="Event-driven scheduling for data lakes on Dagster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        # Takes longer to import than all else of this file.
        from importlib.metadata import version

        typer.echo(f"arctic-orchestration {version('arctic-orchestration')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Event-driven scheduling for data lakes on Dagster."""


def main() -> None:
    """Runs the command; what is wrong with the input is one message, and exit code 2."""
    try:
        app()
    except ArcticError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        missing = MissingExtra.of(error)
        if missing is None:
            raise
        _fail(missing)


def _fail(error: ArcticError) -> NoReturn:
    text = escape(str(error), lines=True)
    Console(stderr=True).print(f"[red]error:[/] {text}", highlight=False)
    sys.exit(2)
