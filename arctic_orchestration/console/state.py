"""Opens the state database for a command."""

from pathlib import Path
from typing import Annotated

import typer

from arctic_orchestration.errors import ConfigurationError, InvalidInput
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import address, dialect
from arctic_orchestration.state.database import SCHEMA_REVISION, Database

LocationOption = Annotated[
    str | None,
    typer.Option(
        "--location", "-l", help="The code location; not needed where only one of them ticks."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")]


def state_database(settings: Settings, *, made_by: str) -> Database:
    """The state database, which something else must have made.

    Errors:
        ConfigurationError: there is none yet, or its schema is another.
    """
    # Looking must not make a database where there is none.
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        raise ConfigurationError(
            f"There is no state database {file}. Set DAGSTER_HOME or ARCTIC_DATABASE_URL "
            f"to where {made_by} has it, or start that, which makes it (see: arctic doctor)"
        )
    return Database.open(settings.database_url)


def sqlite_file(url: str) -> Path | None:
    """The file of a database in SQLite; none: it is another kind of URL."""
    try:
        parsed = address.parse(url)
    except InvalidInput:
        # Opening it says what is wrong.
        return None
    return Path(str(parsed.database)) if dialect.is_file(parsed) else None


def readable_database(settings: Settings) -> Database | None:
    """The state database; none: it is not there, or has another schema, which is said above."""
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        return None
    database = Database(settings.database_url)
    if database.revision() == SCHEMA_REVISION:
        return database
    database.close()
    return None
