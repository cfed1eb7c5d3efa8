"""With a real daemon and code server: a request for any job becomes a run, or fails alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from arctic_orchestration import Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.tables import jobs, locations, schedules
from arctic_orchestration.scheduling import control
from arctic_orchestration.scheduling import location as located
from arctic_orchestration.scheduling.store import ScheduleStore
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    HERE,
    DagsterProcesses,
    until,
)
from arctic_orchestration_tests.proofs.lake_of_targets import DECLARED_ONLY

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

_SECONDS = 90
_MODULE = "arctic_orchestration_tests.proofs.lake_of_targets"


class Lake:
    """A code location with a schedule in the code, and one made by hand of another job."""

    def __init__(self, instance: dg.DagsterInstance, database_url: str, *files: str) -> None:
        self.instance = instance
        self.home = Path(instance.root_directory)
        self.database = Database(database_url)
        self.database.upgrade()
        self.processes = DagsterProcesses(self.home, database_url, module=_MODULE)
        for name in files:
            (self.home / name).touch()
        self.server = self.processes.start(CODE_SERVER)
        self.daemon = self.processes.start(DAEMON)
        until(self._has_ticked, _SECONDS, "the first tick")
        by_hand = Schedule(
            name="by_hand", target="spare", trigger=on.partitions("raw/a"), enabled=True
        )
        with self.database.begin() as tx:
            here = located.locked(tx, "default", HERE)
            control.apply(tx, ScheduleStore(), here, [by_hand], utc_now())

    def announce(self, partition: str) -> None:
        """A partition arrives, for which each of the two schedules asks for a run."""
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

    def make(*files: str) -> Lake:
        made.append(Lake(dagster_instance(backend), database_url, *files))
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
        until(lambda name=schedule: here.succeeded(name) == 1, _SECONDS, here.processes.logs())  # type: ignore[misc]
    assert here.failed_ticks() == []


def test_without_a_target_for_every_job_the_ticks_fail(lake: MakeLake) -> None:
    """The control: what Dagster's daemon does with a request for a job that is no target."""
    here = lake(DECLARED_ONLY)
    here.announce("1")
    until(lambda: len(here.failed_ticks()) > 0, _SECONDS, "a failed tick")
    assert "spare" in str(here.failed_ticks()[0].error)
    assert here.succeeded("by_hand") == 0
