"""The ``arctic`` command."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from arctic_orchestration.console.lazy_command import LazyCommand
from arctic_orchestration.console.terminal import Console, escape, escape_unencodable
from arctic_orchestration.errors import ArcticError, MissingExtra

#: Each command in the order of the help: its module and object, and its help line.
_COMMANDS = {
    "audit": (
        "cli.audit:audit",
        "List changes made by people, with their authors.",
    ),
    "serve": ("service.cli.serve:serve", "Serve the REST API and its pages."),
    "webserver": (
        "service.cli.webserver:webserver",
        "Serve Dagster's UI, and the pages at /arctic.",
    ),
    "tokens": ("service.cli.tokens:app", "Manage tokens of the REST API."),
    "mcp": ("service.cli.mcp:mcp", "Answer questions of agents over stdin and stdout."),
    "simulate": (
        "schedules.cli.simulate:simulate",
        "Simulate schedules; print each decision as JSON.",
    ),
    "schema": (
        "schedules.cli.schema:schema",
        "Write the JSON Schema of files of schedules.",
    ),
    "doctor": (
        "cli.doctor.command:doctor",
        "Check the environment; exit code 1 if anything fails.",
    ),
    "waiting": (
        "waiting.cli.waiting:waiting",
        "List what waits, for what, since when and until when.",
    ),
    "schedules": ("schedules.cli.schedules:app", "Manage schedules."),
    "adopt": (
        "schedules.cli.adopt:adopt",
        "Take over Dagster's schedules and sensors.",
    ),
    "jobs": ("schedules.cli.jobs:app", "Manage jobs: firings of schedules."),
    "locations": ("schedules.cli.locations:app", "Manage code locations in the state database."),
    "runs": ("run_queue.cli.runs:app", "Manage runs that wait in Dagster's queue."),
    "queues": ("run_queue.cli.queues:app", "Manage queues and groups of runs."),
    "compaction": (
        "compaction.cli:app",
        "Merge small files of lake tables into larger ones.",
    ),
    "tasks": (
        "freshness.cli:app",
        "Manage tasks with freshness dependencies.",
    ),
    "consumers": (
        "consumers.cli.consumers:app",
        "Manage partition consumers.",
    ),
    "events": ("schedules.cli.events:app", "Show events that schedules took."),
    "partitions": ("schedules.cli.partitions:app", "Announce partitions of assets."),
    "db": ("cli.database:app", "Manage the state database."),
    "feed": ("schedules.cli.feed:app", "Manage the reading of Dagster's event log."),
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
        # Takes longer to import than the rest of this file.
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
    """Runs the command; invalid input leads to one message and exit code 2."""
    _replace_closed_streams()
    escape_unencodable()
    try:
        app()
    except ArcticError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        missing = MissingExtra.of(error)
        if missing is None:
            raise
        _fail(missing)
    except OSError as error:
        if not _is_of_output(error):
            raise
        # Python would try again at the end, and print a traceback of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"standard output: {error.strerror}; what was changed before stays changed", code=1)


def _replace_closed_streams() -> None:
    """Makes a stream that the caller closed (``>&-``) one to nowhere; Python has none for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  (until the end)


def _is_of_output(error: OSError) -> bool:
    """Returns whether standard output still refuses what it refused with the error."""
    try:
        print(flush=True)
    except OSError as again:
        return again.errno == error.errno
    return False


def _fail(error: object, *, code: int = 2) -> NoReturn:
    text = escape(str(error), lines=True)
    Console(stderr=True).print(f"[red]error:[/] {text}", highlight=False)
    sys.exit(code)
