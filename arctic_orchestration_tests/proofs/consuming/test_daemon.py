"""The sensor of a consumer under the real daemon, which is killed now and then.

Each partition has one run that succeeds, after one for each attempt that fails. A run whose launch
died with the daemon is given up by Dagster's run monitoring, and so is an attempt that failed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRunStatus

from arctic_orchestration.consumers import store
from arctic_orchestration.consumers.progress import Progress, counted
from arctic_orchestration.errors import NotFound
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.event_log.writers import entry
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.consuming.flaky_launcher import fails
from arctic_orchestration_tests.proofs.consuming.sizes import FULL
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    DagsterProcesses,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

PARTITIONS = 120 if FULL else 6
KILLS = 10 if FULL else 1
_HERE = "arctic_orchestration_tests.proofs.consuming"


@pytest.fixture
def instance(backend: str, dagster_instance: Callable[[str], DagsterInstance]) -> DagsterInstance:
    """A Dagster instance; once on each backend at full size."""
    return dagster_instance(backend)


@pytest.fixture
def processes(instance: DagsterInstance, database_url: str) -> Iterator[DagsterProcesses]:
    """Its processes, none of which is left."""
    made = DagsterProcesses(
        Path(instance.root_directory),
        database_url,
        module=f"{_HERE}.lake_of_consumers",
        launcher=f"{_HERE}.flaky_launcher.FlakyRunLauncher",
        monitored=True,
    )
    yield made
    made.end()


@pytest.mark.parametrize("backend", ["sqlite", "postgres"] if FULL else ["sqlite"])
def test_each_partition_has_one_run_that_succeeds(
    instance: DagsterInstance, processes: DagsterProcesses, database_url: str
) -> None:
    """Whenever the daemon dies."""
    database = Database(database_url)
    database.upgrade()
    keys = [f"p{number:05}" for number in range(PARTITIONS)]

    def progress() -> Progress | None:
        with database.read() as tx:
            try:
                one = store.by_name(tx, "default", "proof")
            except NotFound:
                return None
            return counted(tx, one.id, database_time(tx))

    def acknowledged() -> int:
        found = progress()
        return found.acknowledged if found else 0

    processes.start(CODE_SERVER)
    daemon = processes.start(DAEMON)
    storage: Any = instance.event_log_storage
    for kill in range(1, KILLS + 1):
        share = PARTITIONS // (KILLS + 1)
        storage.store_event_batch([entry(key) for key in keys[share * (kill - 1) : share * kill]])

        def some_are_done(enough: int = share * (kill - 1) + 1) -> bool:
            return acknowledged() >= enough

        until(some_are_done, "some of what arrived is done")
        daemon.kill()
        daemon.join()
        daemon = processes.start(DAEMON)
    storage.store_event_batch([entry(key) for key in keys[share * KILLS :]])
    until(lambda: acknowledged() == PARTITIONS, "all are acknowledged", PATIENCE_SECONDS * 5)
    runs: dict[str, dict[int, DagsterRunStatus]] = {key: {} for key in keys}
    for run in instance.get_runs():
        attempts, attempt = runs[run.tags["arctic/partition"]], int(run.tags["arctic/attempt"])
        assert attempt not in attempts, "two runs of one attempt"
        attempts[attempt] = run.status
    for key, attempts in runs.items():
        last = max(attempts)
        assert sorted(attempts) == list(range(1, last + 1))
        for attempt, status in attempts.items():
            assert (status is DagsterRunStatus.SUCCESS) == (attempt == last), (key, attempts)
        assert not fails(key, last)
    database.close()
