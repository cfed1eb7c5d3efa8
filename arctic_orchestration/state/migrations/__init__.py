"""The schema's history. How to write a migration: CONTRIBUTING.md."""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import SchemaOutdated
from arctic_orchestration.state.metadata import create_tables

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
    """Creates the tables in an empty database, or runs the migrations that an older one lacks.

    Part of the caller's transaction.

    Errors:
        SchemaOutdated: it is from before the first migration; nothing was changed.
    """
    from alembic import command
    from alembic.runtime.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    revision = context.get_current_revision()
    config = configuration(connection)
    if revision is None:
        _create_all(connection)
        command.stamp(config, "head")
        return
    # Refuses a revision that has no way here.
    missing(revision)
    command.upgrade(config, "head")


def missing(revision: str | None) -> list[tuple[str, str]]:
    """Returns the migrations after a revision, oldest first: their revisions and what they do.

    An empty database needs one step, which creates the tables.

    Errors:
        SchemaOutdated: the revision is from before the first migration.
    """
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(configuration())
    if revision is None:
        return [(str(scripts.get_current_head()), "Create all tables.")]
    first = str(scripts.get_base())
    if revision < first:
        raise SchemaOutdated(
            f"The state database has revision {revision}, from before the first release; this "
            f"version can migrate revisions from {first} on. Use an empty database"
        )
    found = scripts.iterate_revisions("head", revision)
    return [(script.revision, script.doc) for script in found][::-1]


def _create_all(connection: sa.Connection) -> None:
    """Creates the tables, and the compaction queue of tables that name no other."""
    from arctic_orchestration.state.compaction_tables import compaction_queues

    tables()
    create_tables(connection)
    values = {"name": "default", "capacity": 1000, "level": 0, "share": 1, "max_workers": 1}
    connection.execute(sa.insert(compaction_queues).values(created_at=utc_now(), **values))


def tables() -> sa.MetaData:
    """Returns all tables of the present schema."""
    # A table that is not imported would look like one to remove.
    from arctic_orchestration.state import (  # noqa: F401
        adoption_tables,
        compaction_tables,
        consumer_tables,
        freshness_tables,
        partition_tables,
        run_queue_tables,
        service_tables,
        source_tables,
    )
    from arctic_orchestration.state.tables import metadata

    return metadata
