"""Opens the state database for a command."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
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


def state_database(
    settings: Settings, *, made_by: str, busy_seconds: float = dialect.BUSY_SECONDS
) -> Database:
    """Opens the state database, which another program must have made.

    ``busy_seconds`` is as for :meth:`.Database.open`.

    Errors:
        ConfigurationError: there is none yet, its file cannot be reached, or its schema is another.
    """
    # A read must not create a database.
    file = sqlite_file(settings.database_url)
    if file is not None and not _is_there(file):
        raise ConfigurationError(
            f"There is no state database {file}. Set DAGSTER_HOME or ARCTIC_DATABASE_URL "
            f"to where {made_by} has it, or start that, which makes it (see: arctic doctor)"
        )
    return Database.open(settings.database_url, busy_seconds=busy_seconds)


@contextmanager
def opened_state(*, made_by: str = "the dispatcher") -> Iterator[tuple[Settings, Database]]:
    """Opens the state database of the environment's settings, as :func:`state_database` does."""
    settings = Settings.from_environment()
    with closing(state_database(settings, made_by=made_by)) as database:
        yield settings, database


def sqlite_file(url: str) -> Path | None:
    """Returns the file of a SQLite database, or None for another kind of URL."""
    try:
        parsed = address.parse(url)
    except InvalidInput:
        # Opening it reports the error.
        return None
    return Path(str(parsed.database)) if dialect.is_file(parsed) else None


def readable_database(settings: Settings) -> Database | None:
    """Opens the state database; None: it is missing or has another schema. Prints the reason."""
    file = sqlite_file(settings.database_url)
    if file is not None and not _is_there(file):
        return None
    database = Database(settings.database_url)
    if database.revision() == SCHEMA_REVISION:
        return database
    database.close()
    return None


@contextmanager
def read_state() -> Iterator[tuple[sa.Connection, str] | None]:
    """Reads the state database of the environment's settings, for its cluster.

    Yields None if :func:`readable_database` does: a check must neither make nor migrate one.
    """
    settings = Settings.from_environment()
    database = readable_database(settings)
    if database is None:
        yield None
        return
    with closing(database), database.read() as tx:
        yield tx, settings.cluster


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError as error:
        raise ConfigurationError(
            f"The state database {file} cannot be reached: {error.strerror}. Set DAGSTER_HOME or "
            "ARCTIC_DATABASE_URL to a folder that this user may read"
        ) from None
