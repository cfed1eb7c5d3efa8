"""The schema's history. How to write a migration: CONTRIBUTING.md."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

#: Ours alone: Dagster keeps Alembic's usual table when both live in one database.
VERSION_TABLE = "arctic_alembic_version"


def configuration(connection: sa.Connection) -> Config:
    """Alembic's configuration for work on an open transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: sa.Connection) -> None:
    """Runs the migrations that are missing, inside the caller's transaction."""
    command.upgrade(configuration(connection), "head")
