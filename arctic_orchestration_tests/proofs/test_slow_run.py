"""Proof with real processes: a run that was only slow does not run beside the next attempt.

What run monitoring does to a run that needs too long, the test does: it reports the run failed.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance

from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.lake_of_slow_runs import FOLDER, STEPS, came, let
from arctic_orchestration_tests.proofs.test_crashes import Lake

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

OURS = "arctic_orchestration.run_launcher.ArcticRunLauncher"
_SECONDS = 500
#: the processes that come after the first; a busy machine may need more than one of them
LATER = range(2, 9)


class SlowLake(Lake):
    """A lake whose runs are processes that wait until they are let on."""

    folder: Path

    def begin(self) -> dg.DagsterRun:
        """A job has a run, whose process is about to begin it and waits."""
        self.announce_two()
        self.wait_for_process(1)
        pid = came(self.folder, 1).read_text()
        (run,) = [run for run in self.all_runs() if self._has_process(run, pid)]
        return run

    def _has_process(self, run: dg.DagsterRun, pid: str) -> bool:
        messages = [entry.message for entry in self.instance.all_logs(run.run_id)]
        return any(f"(pid: {pid})" in message for message in messages)

    def give_up(self, run: dg.DagsterRun) -> None:
        """The run is failed, since it needs too long to start."""
        self.instance.report_run_failed(run, "Run timed out due to taking longer than …")

    def wait_for_process(self, number: int) -> None:
        """Returns when the process of that run is about to begin it."""
        what = f"the process of run {number}\n{self.processes.logs()}"
        until(came(self.folder, number).exists, what, _SECONDS)

    def let(self, *numbers: int) -> None:
        """The processes of these runs go on."""
        for number in numbers:
            let(self.folder, number).touch()

    def wait_until_all_ended(self) -> None:
        """Returns when no run is under way."""
        until(lambda: all(run.is_finished for run in self.all_runs()), "all runs ended", _SECONDS)

    def status(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status

    def steps(self) -> list[str]:
        """The runs that have come to their step."""
        file = self.folder / STEPS
        return file.read_text().split() if file.exists() else []

    def wait_for_job(self) -> None:
        """Returns when the job has succeeded."""
        until(lambda: self.job_states() == {"succeeded": 1}, "the job succeeded", _SECONDS)


MakeLake = Callable[[str | None], SlowLake]


@pytest.fixture
def lake(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], DagsterInstance],
    tmp_path: Path,
) -> Iterator[MakeLake]:
    """Makes a lake with a launcher, Dagster's own or ours, on one kind of database."""
    made: list[SlowLake] = []
    folder = tmp_path / "slow_runs"
    folder.mkdir()

    def make(launcher: str | None) -> SlowLake:
        options: dict[str, Any] = {FOLDER: str(folder)}
        module = "arctic_orchestration_tests.proofs.lake_of_slow_runs"
        here = SlowLake(
            dagster_instance(backend), database_url, module=module, launcher=launcher, **options
        )
        here.folder = folder
        made.append(here)
        here.start()
        return here

    yield make
    for one in made:
        one.processes.end()
        one.database.close()


def test_a_slow_run_ends_before_its_first_step(lake: MakeLake) -> None:
    """It was given up, the next attempt began, and then it is up after all."""
    here = lake(OURS)
    here.let(*LATER)
    slow = here.begin()
    here.give_up(slow)
    here.wait_for_job()
    here.let(1)
    canceled = dg.DagsterRunStatus.CANCELED
    until(lambda: here.status(slow) is canceled, "the slow run is canceled", _SECONDS)
    assert len(here.steps()) == 1
    assert slow.run_id not in here.steps()
    assert here.job_states() == {"succeeded": 1}


def test_a_slow_run_that_begins_first_is_the_one_that_counts(lake: MakeLake) -> None:
    """The run of the next attempt ends before its first step, and the job goes on with this one."""
    here = lake(OURS)
    slow = here.begin()
    here.give_up(slow)
    here.wait_for_process(2)
    here.let(1)
    here.wait_for_job()
    here.let(*LATER)
    here.wait_until_all_ended()
    assert here.steps() == [slow.run_id]
    assert here.status(slow) is dg.DagsterRunStatus.SUCCESS
    assert here.job_states() == {"succeeded": 1}


def test_with_dagsters_launcher_a_slow_run_runs_beside_the_next_attempt(lake: MakeLake) -> None:
    """The control: both come to their step."""
    here = lake(None)
    here.let(*LATER)
    slow = here.begin()
    here.give_up(slow)
    here.wait_for_job()
    here.let(1)
    until(lambda: len(here.steps()) == 2, "both runs have their step", _SECONDS)


def test_a_run_that_is_enqueued_after_it_was_given_up_is_the_only_one(lake: MakeLake) -> None:
    """Its daemon was slow between creating and enqueuing it: no other attempt is requested."""
    here = lake(OURS)
    here.let(1, *LATER)
    paused = here.pause("ENQUEUING").pid or 0
    run = here.all_runs()[0]
    assert run.status is dg.DagsterRunStatus.NOT_STARTED
    here.give_up(run)
    os.kill(paused, signal.SIGCONT)
    until(lambda: here.job_states() == {"succeeded": 1}, "the job succeeded", _SECONDS)
    assert here.status(run) is dg.DagsterRunStatus.SUCCESS
    assert len(here.steps()) == 1
