"""The ``arctic`` command."""

import inspect
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from arctic_orchestration.cli import (
    audit,
    compaction,
    consumers,
    database,
    doctor,
    events,
    feed,
    jobs,
    locations,
    partitions,
    queues,
    runs,
    schedules,
    schema,
    simulate,
    tasks,
    worker,
)
from arctic_orchestration.cli.checked_command import CheckedCommand
from arctic_orchestration.cli.terminal import Console, escape
from arctic_orchestration.errors import ArcticError, MissingExtra

app = typer.Typer(
    name="arctic",
    help="Event-driven scheduling for data lakes on Dagster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(schedules.app, name="schedules")
app.add_typer(jobs.app, name="jobs")
app.add_typer(locations.app, name="locations")
app.add_typer(runs.app, name="runs")
app.add_typer(queues.app, name="queues")
app.add_typer(compaction.app, name="compaction")
app.add_typer(tasks.app, name="tasks")
app.add_typer(consumers.app, name="consumers")
app.command(name="worker")(worker.worker)
app.add_typer(events.app, name="events")
app.add_typer(partitions.app, name="partitions")
app.add_typer(database.app, name="db")
app.add_typer(feed.app, name="feed")
app.command(name="audit")(audit.audit)
app.command(name="simulate")(simulate.simulate)
app.command(name="schema")(schema.schema)
app.command(name="doctor")(doctor.doctor)


def _prepare(app: typer.Typer) -> None:
    """Has arguments checked, and joins the lines of each paragraph of help.

    Typer breaks the later paragraphs where the code does, too.
    """
    for command in app.registered_commands:
        command.cls = CheckedCommand
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _prepare(group.typer_instance)


_prepare(app)


def _print_version(wanted: bool) -> None:
    if wanted:
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
