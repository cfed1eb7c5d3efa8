"""Alembic's entry point; the caller owns the transaction."""

from alembic import context

from arctic_orchestration.state.migrations import VERSION_TABLE, tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables(),
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, _: kind != "table" or str(name).startswith("arctic_"),
    render_as_batch=True,
)
context.run_migrations()
