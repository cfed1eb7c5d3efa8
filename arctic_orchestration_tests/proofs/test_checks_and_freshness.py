"""With a real daemon: schedules that wait for asset checks and for Dagster's freshness policies."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, locations, schedules
from arctic_orchestration_tests.code_location.odd_events import arrive
from arctic_orchestration_tests.event_log.test_check_rows import report
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    DagsterProcesses,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

_MODULE = "arctic_orchestration_tests.proofs.lake_of_checks"


class Lake:
    """The code location, a daemon, and the state that it keeps."""

    def __init__(self, instance: DagsterInstance, database_url: str) -> None:
        self.instance = instance
        self.database = Database(database_url)
        self.database.upgrade()
        self.processes = DagsterProcesses(
            Path(instance.root_directory),
            database_url,
            module=_MODULE,
            FRESHNESS_DAEMON_INTERVAL_SECONDS="1",
        )
        self.processes.start(CODE_SERVER)
        self.processes.start(DAEMON)
        self.wait(self._has_ticked, "the first tick")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.processes.logs()}") from None

    def job(self, schedule: str) -> tuple[str, str] | None:
        """State and reason of the only job of a schedule; none: there is none."""
        query = (
            sa.select(jobs.c.state, jobs.c.reason)
            .join(schedules, schedules.c.id == jobs.c.schedule_id)
            .where(schedules.c.name == schedule)
        )
        with self.database.read() as tx:
            row = tx.execute(query).one_or_none()
        return None if row is None else (row.state, row.reason)

    def has_state(self, schedule: str, state: str) -> bool:
        job = self.job(schedule)
        return job is not None and job[0] == state

    def close(self) -> None:
        self.processes.end()
        self.database.close()

    def _has_ticked(self) -> bool:
        with self.database.read() as tx:
            return bool(tx.execute(sa.select(locations.c.position)).scalar())


@pytest.fixture
def lake(
    backend: str, dagster_instance: Callable[[str], DagsterInstance], database_url: str
) -> Iterator[Lake]:
    made = Lake(dagster_instance(backend), database_url)
    yield made
    made.close()


def test_a_check_and_a_freshness_policy_start_and_hold_runs(lake: Lake) -> None:
    """Orders of two hours ago arrive, with a policy of one hour, and a check fails.

    The daemon's freshness evaluation changes the state to FAIL, which starts one run; the failed
    check starts another, and holds the third until the check passes.
    """
    report(lake.instance, passed=False)
    lake.wait(lambda: lake.has_state("failed", "succeeded"), "a run for the failed check")
    arrive(lake.instance, asset=("raw", "orders"), partition=None, timestamp=time.time() - 7200)
    lake.wait(lambda: lake.has_state("stale", "succeeded"), "a run for the failed policy")
    lake.wait(lambda: lake.has_state("gated", "waiting_constraints"), "a job that is held")
    _, reason = lake.job("gated") or ("", "")
    assert reason.startswith("check no_nulls of raw/orders failed at ")
    report(lake.instance, passed=True)
    lake.wait(lambda: lake.has_state("gated", "succeeded"), "a run after the check has passed")
    assert lake.has_state("failed", "succeeded")
    (change,) = [
        record.event_log_entry
        for record in lake.instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(
                dg.DagsterEventType.FRESHNESS_STATE_CHANGE,
                asset_key=dg.AssetKey(["raw", "orders"]),
            )
        )
        if "FAIL" in str(record.event_log_entry.dagster_event.event_specific_data)  # type: ignore[union-attr]
    ]
    assert change.run_id == ""
