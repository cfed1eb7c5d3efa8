"""``arctic db``: the schema of the state database."""

from contextlib import closing
from typing import Annotated

import typer

from arctic_orchestration.console.display import Rows, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration.state.migrations import missing

app = typer.Typer(no_args_is_help=True)


@app.command()
def upgrade(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the migrations that would run.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Upgrade the schema of the state database.

    All migrations run in one transaction: after an error or a crash, the schema is as it was.
    """
    url = Settings.from_environment().database_url
    with closing(Database(url)) as database:
        shown = escape(database.shown)
        # To connect to a SQLite file that is not there would make it.
        before = None if Database.is_missing(url) else database.revision()
        database.refuse_newer(before)
        migrations = missing(before)
        if not dry_run:
            database.upgrade()
    if as_json:
        rows = [{"revision": revision, "does": does} for revision, does in migrations]
        document = {"database": database.shown, "before": before, "revision": SCHEMA_REVISION}
        print_json({**document, "dry_run": dry_run, "migrations": rows})
    elif before == SCHEMA_REVISION:
        Console().print(f"{shown} is at revision {SCHEMA_REVISION} already")
    elif not dry_run:
        Console().print(f"{shown}: {before or 'empty'} → {SCHEMA_REVISION}")
    else:
        title = f"{shown}: {before or 'empty'} → {SCHEMA_REVISION} would run"
        table = Rows(title, "revision", "", text="")
        for revision, does in migrations:
            table.add(revision, does)
        table.print()
