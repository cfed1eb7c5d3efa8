"""With a real daemon and code server: a request for any job becomes a run, or fails alone."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from arctic_orchestration import Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules import location as located
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, locations, schedules
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.crash_points import LEASE_SECONDS
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    HERE,
    DagsterProcesses,
)
from arctic_orchestration_tests.proofs.lake_of_targets import (
    DECLARED_ONLY,
    EXECUTED,
    WITHOUT_SPARE,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

#: how many seconds a failed tick keeps the requests that it was given
_LEASE = "3"
_MODULE = "arctic_orchestration_tests.proofs.lake_of_targets"


class Lake:
    """A code location with a schedule in the code, and a manually created one of another job."""

    def __init__(
        self, instance: dg.DagsterInstance, database_url: str, *files: str, **options: Any
    ) -> None:
        self.instance = instance
        self.home = Path(instance.root_directory)
        self.database = Database(database_url)
        self.database.upgrade()
        self.processes = DagsterProcesses(
            self.home, database_url, module=_MODULE, **{LEASE_SECONDS: _LEASE, **options}
        )
        for name in files:
            (self.home / name).touch()
        self.server = self.processes.start(CODE_SERVER)
        self.daemon = self.processes.start(DAEMON)
        until(self._has_ticked, "the first tick")
        by_hand = Schedule(
            name="by_hand", target="spare", trigger=on.partitions("raw/a"), enabled=True
        )
        with self.database.begin() as tx:
            here = located.locked(tx, "default", HERE)
            control.apply(tx, ScheduleStore(), here, [by_hand], utc_now())

    def announce(self, partition: str) -> None:
        """A partition arrives, for which each of the two schedules requests a run."""
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(["raw", "a"], partition=partition)
        )

    def states(self, schedule: str) -> list[tuple[str, str]]:
        """State and reason of each job of a schedule, the oldest first."""
        query = (
            sa.select(jobs.c.state, jobs.c.reason)
            .join(schedules, schedules.c.id == jobs.c.schedule_id)
            .where(schedules.c.name == schedule)
            .order_by(jobs.c.created_at)
        )
        with self.database.read() as tx:
            return [(row.state, row.reason) for row in tx.execute(query)]

    def succeeded(self, schedule: str) -> int:
        return sum(state == "succeeded" for state, _ in self.states(schedule))

    def cancel_all(self) -> None:
        """Cancels every job, as ``arctic jobs cancel`` does."""
        with self.database.begin() as tx:
            here = located.locked(tx, "default", HERE)
            for id in tx.execute(sa.select(jobs.c.id)).scalars().all():
                job_control.cancel_job(tx, here, id, utc_now())

    def finished_runs(self) -> int:
        return sum(run.is_finished for run in self.instance.get_runs())

    def ended(self, schedule: str) -> int:
        return sum(state in ("succeeded", "failed") for state, _ in self.states(schedule))

    def has_failed(self) -> bool:
        return len(self.failed_ticks()) > 0

    def summary(self) -> str:
        """How the jobs stand, and what the processes have written, for a failure's message."""
        states = {name: self.states(name) for name in ("declared", "by_hand")}
        return f"{states}\n{self.processes.logs()}"

    def failed_ticks(self) -> list[InstigatorTick]:
        (state,) = self.instance.all_instigator_state()
        ticks = self.instance.get_ticks(state.instigator_origin_id, state.selector_id)
        return [tick for tick in ticks if tick.status is TickStatus.FAILURE]

    def _has_ticked(self) -> bool:
        with self.database.read() as tx:
            return bool(tx.execute(sa.select(locations.c.position)).scalar())


MakeLake = Callable[..., Lake]


@pytest.fixture
def lake(
    backend: str, database_url: str, dagster_instance: Callable[[str], Any]
) -> Iterator[MakeLake]:
    """Makes a lake whose Dagster and whose state are on one kind of database."""
    made: list[Lake] = []

    def make(*files: str, **options: Any) -> Lake:
        made.append(Lake(dagster_instance(backend), database_url, *files, **options))
        return made[-1]

    yield make
    for one in made:
        one.processes.end()
        one.database.close()


def test_a_job_that_no_schedule_in_the_code_names_has_its_run(lake: MakeLake) -> None:
    """The daemon accepts the request; no tick fails."""
    here = lake()
    here.announce("1")
    for schedule in ("declared", "by_hand"):
        until(lambda name=schedule: here.succeeded(name) == 1, here.processes.logs())  # type: ignore[misc]
    assert here.failed_ticks() == []


def test_a_request_at_which_the_daemon_fails_stops_no_other(lake: MakeLake) -> None:
    """The daemon knows only the job that the code names: it fails the tick of the other's request.

    This is also the control of the test above.
    """
    here = lake(DECLARED_ONLY)
    here.announce("1")
    until(lambda: here.states("by_hand")[-1:] != [] and here.has_failed(), here.summary())
    assert "spare" in str(here.failed_ticks()[0].error)
    here.announce("2")
    until(lambda: here.succeeded("declared") == 2, here.summary())
    until(lambda: here.states("by_hand")[0][0] == "failed", here.summary())
    # The lease is so short that the tick may not have failed yet when it is over.
    reason = r"Dagster failed at \d requests for its run, the last time with: KeyError: 'spare'"
    assert re.fullmatch(reason, here.states("by_hand")[0][1])


def test_a_target_that_a_deployment_drops_after_the_tick_fails_alone(lake: MakeLake) -> None:
    """The requests are stored when the daemon dies; the code it finds then lacks a job."""
    here = lake()
    here.processes.arm("RUN_IDS_RESERVED")
    here.announce("1")
    here.daemon.join(PATIENCE_SECONDS)
    assert here.processes.was_reached("RUN_IDS_RESERVED")
    here.server.kill()
    here.server.join()
    (here.home / WITHOUT_SPARE).touch()
    here.processes.start(CODE_SERVER)
    here.processes.start(DAEMON)
    here.announce("2")
    until(lambda: here.succeeded("declared") == 2, here.summary())
    until(lambda: here.ended("by_hand") == 2, here.summary())
    assert here.states("by_hand") == [("failed", "job spare is not in this code location")] * 2


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("canceled", [True, False], ids=["canceled", "control"])
def test_a_canceled_job_executes_nothing(lake: MakeLake, canceled: bool) -> None:
    """The job is canceled between the sensor's answer and the run, which is made all the same.

    A run that is terminated while its process starts is one that Dagster calls failed.
    """
    here = lake(launcher="arctic_orchestration.run_launcher.ArcticRunLauncher")
    here.processes.arm("RUN_IDS_RESERVED")
    here.announce("1")
    here.daemon.join(PATIENCE_SECONDS)
    assert here.processes.was_reached("RUN_IDS_RESERVED")
    if canceled:
        here.cancel_all()
    here.processes.start(DAEMON)
    until(lambda: here.finished_runs() == 2, "two runs have ended")
    executed = len(list(here.home.glob(f"{EXECUTED}*")))
    assert executed == (0 if canceled else 2)
    if canceled:
        found = {state for name in ("declared", "by_hand") for state, _ in here.states(name)}
        assert found == {"canceled"}
