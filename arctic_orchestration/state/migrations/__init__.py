"""The schema's history. How to write a migration: CONTRIBUTING.md."""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.config import Config

#: Ours alone: Dagster keeps Alembic's usual table when both live in one database.
VERSION_TABLE = "arctic_alembic_version"


def configuration(connection: sa.Connection) -> "Config":
    """Alembic's configuration for work on an open transaction."""
    # Here, since a schema that is up to date, as it nearly always is, needs no Alembic.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: sa.Connection) -> None:
    """Runs the migrations that are missing, inside the caller's transaction."""
    from alembic import command

    command.upgrade(configuration(connection), "head")
