"""``arctic tasks``: tasks with freshness dependencies."""

import typer

from arctic_orchestration.freshness.cli.explain import explain
from arctic_orchestration.freshness.cli.forget import forget
from arctic_orchestration.freshness.cli.graph import graph
from arctic_orchestration.freshness.cli.listing import list_, show
from arctic_orchestration.freshness.cli.schema import schema
from arctic_orchestration.freshness.cli.skip import skip, unskip
from arctic_orchestration.freshness.cli.submit import submit

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
