"""Alembic's entry point; the caller owns the transaction."""

from alembic import context

# A table that is not imported would look like one to remove.
from arctic_orchestration.state import (  # noqa: F401
    adoption_tables,
    compaction_tables,
    consumer_tables,
    freshness_tables,
    partition_tables,
    run_queue_tables,
    service_tables,
)
from arctic_orchestration.state.migrations import VERSION_TABLE
from arctic_orchestration.state.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, _: kind != "table" or str(name).startswith("arctic_"),
    render_as_batch=True,
)
context.run_migrations()
