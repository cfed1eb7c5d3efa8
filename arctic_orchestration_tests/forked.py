"""What processes that are forked from the server of ``forking`` begin with."""

import signal

import dagster_postgres  # noqa: F401 - whose storages reuse connections from here on

from arctic_orchestration import migration_scripts, postgres_connections
from arctic_orchestration_tests import compiled_once, dagster_once, iceberg_once, without_fsync

without_fsync.put_in_place()
migration_scripts.remember()
compiled_once.put_in_place()
dagster_once.put_in_place()
iceberg_once.put_in_place()
# Otherwise most of the time of a proof on Postgres is that of opening connections.
postgres_connections.reuse_in_process()
# Commands that a shell runs in the background ignore it, and what they start. Dagster's daemon then
# also ignores SIGTERM, until its own handler is in place.
signal.signal(signal.SIGINT, signal.default_int_handler)
