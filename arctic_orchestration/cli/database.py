"""``arctic db``: the schema of the state database."""

import typer

from arctic_orchestration.console.display import print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import SCHEMA_REVISION, Database

app = typer.Typer(no_args_is_help=True)


@app.command()
def upgrade(as_json: JsonOption = False) -> None:
    """Upgrade the schema of the state database."""
    database = Database(Settings.from_environment().database_url)
    shown = database.shown
    before = database.revision()
    database.upgrade()
    database.close()
    if as_json:
        print_json({"database": shown, "before": before, "revision": SCHEMA_REVISION})
    elif before == SCHEMA_REVISION:
        Console().print(f"{escape(shown)} is at revision {SCHEMA_REVISION} already")
    else:
        Console().print(f"{escape(shown)}: {before or 'empty'} → {SCHEMA_REVISION}")
