"""``arctic tasks``: what must be fresh for what, and what is done about it."""

import typer

from arctic_orchestration.cli.tasks.drawing import graph
from arctic_orchestration.cli.tasks.explained import explain
from arctic_orchestration.cli.tasks.forgetting import forget
from arctic_orchestration.cli.tasks.listing import list_, show
from arctic_orchestration.cli.tasks.schema import schema
from arctic_orchestration.cli.tasks.skipping import skip, unskip
from arctic_orchestration.cli.tasks.submitting import submit

app = typer.Typer(no_args_is_help=True)
app.command(name="list")(list_)
app.command(name="show")(show)
app.command(name="explain")(explain)
app.command(name="submit")(submit)
app.command(name="skip")(skip)
app.command(name="unskip")(unskip)
app.command(name="forget")(forget)
app.command(name="graph")(graph)
app.command(name="schema")(schema)
