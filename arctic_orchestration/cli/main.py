"""The ``arctic`` command."""

import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from arctic_orchestration.cli.lazy_command import LazyCommand
from arctic_orchestration.cli.terminal import Console, escape
from arctic_orchestration.errors import ArcticError, MissingExtra

#: Each command in the order of the help: where it stands in ``cli``, and its help line.
_COMMANDS = {
    "worker": ("worker:worker", "Merges files for compaction queues, until SIGTERM or Ctrl-C."),
    "audit": (
        "audit:audit",
        "List what people changed with commands, newest first, and who it was.",
    ),
    "simulate": ("simulate:simulate", "Prints each decision of the scheduler as a line of JSON."),
    "schema": ("schema:schema", "Writes the JSON Schema of a file of schedules (YAML or JSON)."),
    "doctor": (
        "doctor:doctor",
        "Checks the surroundings; exit code 1 when something has to be mended.",
    ),
    "schedules": ("schedules:app", "Schedules: what fires, and when."),
    "jobs": ("jobs:app", "Jobs: firings of schedules, and why they wait."),
    "locations": ("locations:app", "Code locations in the state database."),
    "runs": ("runs:app", "Runs that wait in Dagster's queue, and why."),
    "queues": ("queues:app", "Queues and groups of runs: shares, limits, pauses."),
    "compaction": (
        "compaction:app",
        "Small files of lake tables that are merged into larger ones.",
    ),
    "tasks": (
        "tasks:app",
        "Tasks with freshness dependencies: assets and jobs that run when their parents are "
        "fresh enough, once for all clusters.",
    ),
    "consumers": (
        "consumers:app",
        "Partition consumers: everything new since one last looked.",
    ),
    "events": ("events:app", "Events that schedules took."),
    "partitions": ("partitions:app", "Partitions of assets."),
    "db": ("database:app", "The state database."),
    "feed": ("feed:app", "Reading Dagster's event log."),
}


class _Group(TyperGroup):
    """The group of all commands; each is imported when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (home, line) in _COMMANDS.items():
            self.add_command(LazyCommand(name, f"arctic_orchestration.cli.{home}", help=line))


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
