"""Prepares a code server for the instances of Dagster that it creates: each tick has its own."""

from arctic_orchestration import migration_scripts, postgres_connections


def prepare(storage: str) -> None:
    """Lets the instances of ticks share what can be shared; a second call does nothing.

    Args:
        storage: the configuration of Dagster's event log, which names its module. For others than
            Postgres, Postgres's modules are not imported.
    """
    migration_scripts.remember()
    if "dagster_postgres" in storage:
        postgres_connections.reuse_from_now_on()
