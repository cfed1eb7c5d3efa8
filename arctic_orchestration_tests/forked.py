"""What processes that are forked from the server of ``forking`` begin with."""

from arctic_orchestration import migration_scripts
from arctic_orchestration_tests import compiled_once, dagster_once, without_fsync

without_fsync.put_in_place()
migration_scripts.remember()
compiled_once.put_in_place()
dagster_once.put_in_place()
