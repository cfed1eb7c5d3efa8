"""The schema's history. How to write a migration: CONTRIBUTING.md."""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.config import Config

#: A table of our own: Dagster keeps Alembic's usual one when both share a database.
VERSION_TABLE = "arctic_alembic_version"


def configuration(connection: sa.Connection | None = None) -> "Config":
    """Returns Alembic's configuration, for an open transaction or for the scripts alone."""
    # Imported here: an up-to-date schema, the usual case, needs no Alembic.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: sa.Connection) -> None:
    """Runs the missing migrations, inside the caller's transaction."""
    from alembic import command

    command.upgrade(configuration(connection), "head")


def missing(revision: str | None) -> list[tuple[str, str]]:
    """Returns the migrations after a revision, oldest first: their revisions and what they do."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(configuration())
    found = scripts.iterate_revisions("head", revision or "base")
    return [(script.revision, script.doc) for script in found][::-1]
