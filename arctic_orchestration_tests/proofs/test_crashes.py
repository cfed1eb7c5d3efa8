"""Proof with real processes: whatever step of a tick is the last, each trigger has one run.

Dagster's own daemon and code server are killed with SIGKILL at every step of a tick, and started
again. ``ARCTIC_PROOF=full`` kills 51 times on each database, by default a rotation of six.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, job_events, jobs, locations, schedules
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs import crash_points
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    DagsterProcesses,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
POINTS = [
    *((CODE_SERVER, point) for point in crash_points.CODE_SERVER),
    *((DAEMON, point) for point in crash_points.DAEMON),
]
#: (who dies, where, how many runs later than the first)
KILLS = [
    (role, point, later if point in crash_points.FOR_EACH_RUN else 0)
    for later in range(3)
    for role, point in POINTS
]
#: where a daemon may live on beside its successor, and what Dagster has of its requests then
PAUSES = ("REPLIED", "RUN_IDS_RESERVED", "RUN_CREATED", "RUN_LAUNCHED")
#: Killed where Dagster has no requests of it yet, a daemon leaves a tick that nobody may take up
#: before its lease is over. There is no second daemon here that only needs longer.
_LEASE_SECONDS = "3"
_TOO_OLD_TO_RESUME = 25 * 60 * 60


class Lake:
    """An instance, its processes, and what was announced to it so far."""

    def __init__(self, instance: DagsterInstance, database_url: str, **options: Any) -> None:
        self.instance = instance
        self.database = Database(database_url)
        self.database.upgrade()
        home = Path(instance.root_directory)
        options.setdefault(crash_points.LEASE_SECONDS, _LEASE_SECONDS)
        self.processes = DagsterProcesses(home, database_url, **options)
        self.announced: list[str] = []

    def start(self) -> None:
        """Starts both processes, and waits for the first tick: what comes after it counts."""
        self.server = self.processes.start(CODE_SERVER)
        self.daemon = self.processes.start(DAEMON)
        until(self._has_ticked, "the first tick")

    def announce_two(self) -> None:
        """Two partitions arrive: a run for each of them, and one for the pair."""
        for _ in range(2):
            key = f"p{len(self.announced) + 1:03}"
            self.announced.append(key)
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(["raw", "a"], partition=key)
            )

    def kill_at(self, role: str, point: str, later: int) -> None:
        """One of the processes dies at the point, and is started again."""
        victim = self.server if role == CODE_SERVER else self.daemon
        self.processes.arm(point, skip=later)
        self.announce_two()
        victim.join(PATIENCE_SECONDS)
        assert victim.exitcode == -signal.SIGKILL, f"{role} did not reach {point}"
        assert self.processes.was_reached(point)
        if role == CODE_SERVER:
            self.server = self.processes.start(CODE_SERVER)
        else:
            self.daemon = self.processes.start(DAEMON)

    def kill_for_good_at(self, point: str) -> None:
        """The daemon dies, and for so long that Dagster does not take up its tick again."""
        self.processes.arm(point)
        self.announce_two()
        self.daemon.join(PATIENCE_SECONDS)
        assert self.processes.was_reached(point)
        state = self.instance.all_instigator_state()[0]
        for tick in self.instance.get_ticks(state.instigator_origin_id, state.selector_id):
            before = tick.timestamp - _TOO_OLD_TO_RESUME
            self.instance.update_tick(
                tick._replace(tick_data=tick.tick_data._replace(timestamp=before))
            )
        self.daemon = self.processes.start(DAEMON)

    def pause_at(self, point: str) -> None:
        """A daemon is paused at the point, taken for dead, replaced, and goes on after all."""
        paused = self.pause(point)
        self.daemon = self.processes.start(DAEMON)
        self.wait_for_all()
        self.resume(paused, how=signal.SIGKILL)
        paused.join(PATIENCE_SECONDS)
        assert paused.exitcode == -signal.SIGKILL, "the paused daemon did not end its tick"

    def pause(self, point: str) -> BaseProcess:
        """Two partitions arrive, and the daemon is stopped at the point."""
        self.processes.arm(point, how=signal.SIGSTOP)
        self.announce_two()
        until(lambda: self.processes.was_reached(point), f"a pause at {point}")
        return self.daemon

    def resume(self, paused: BaseProcess, at: str = "TICK_LEFT", how: int = signal.SIGCONT) -> None:
        """The daemon goes on; returns when it has come to the point, with a signal to it."""
        assert paused.pid is not None
        self.processes.arm(at, how=how, of=paused.pid)
        os.kill(paused.pid, signal.SIGCONT)
        until(lambda: self.processes.was_reached(at), f"it comes to {at}")

    def wait_for_all(self) -> None:
        """Returns when as many jobs have succeeded as there have to be."""
        wanted = len(self.announced) * 3 // 2
        until(
            lambda: self.job_states()["succeeded"] >= wanted,
            f"{wanted} jobs succeeded",
        )

    def job_states(self) -> Counter[str]:
        with self.database.read() as tx:
            return Counter(tx.execute(sa.select(jobs.c.state)).scalars())

    def runs(self) -> list[tuple[str, str, str]]:
        """(schedule, partition, status) of every run in Dagster's storage."""
        return sorted(
            (
                run.tags["arctic/schedule"],
                run.tags.get("dagster/partition", ""),
                run.status.value,
            )
            for run in self.all_runs()
        )

    def all_runs(self) -> Sequence[dg.DagsterRun]:
        return self.instance.get_runs()

    def expected_runs(self) -> list[tuple[str, str, str]]:
        """One run a partition, one run for every two."""
        each = [("each", key, "SUCCESS") for key in self.announced]
        return each + [("pair", "", "SUCCESS")] * (len(self.announced) // 2)

    def doubles(self) -> Counter[tuple[str, str]]:
        """(schedule, partition) of the runs that are too many."""
        wanted = Counter(run[:2] for run in self.expected_runs())
        return Counter(run[:2] for run in self.runs()) - wanted

    def deliveries(self) -> Counter[tuple[str, str]]:
        """How often each schedule took each partition."""
        query = (
            sa.select(schedules.c.name, events.c.partition)
            .select_from(job_events)
            .join(jobs, jobs.c.id == job_events.c.job_id)
            .join(schedules, schedules.c.id == jobs.c.schedule_id)
            .join(
                events,
                (events.c.location_id == job_events.c.location_id)
                & (events.c.number == job_events.c.number),
            )
            # A job that was split keeps its events beside those of its parts.
            .where(jobs.c.state == "succeeded")
        )
        with self.database.read() as tx:
            return Counter((row.name, row.partition) for row in tx.execute(query))

    def _has_ticked(self) -> bool:
        with self.database.read() as tx:
            return bool(tx.execute(sa.select(locations.c.position)).scalar())


MakeLake = Callable[..., Lake]


@pytest.fixture
def lake(
    backend: str, database_url: str, dagster_instance: Callable[[str], DagsterInstance]
) -> Iterator[MakeLake]:
    """Makes a lake whose Dagster and whose state are on one kind of database."""
    made: list[Lake] = []

    def make(**options: Any) -> Lake:
        made.append(Lake(dagster_instance(backend), database_url, **options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.processes.end()
        one.database.close()


def chosen_kills(backend: str) -> list[tuple[str, str, int]]:
    """All in the full size; else every third moment of a tick, on each database others."""
    return KILLS if FULL else KILLS[("sqlite", "postgres").index(backend) : len(POINTS) : 3]


def test_a_run_that_was_never_started_is_requested_again(lake: MakeLake) -> None:
    """The daemon dies while it starts a run: Dagster gives the run up, and its job gets another."""
    here = lake(monitored=True)
    here.kill_at(DAEMON, "STARTING", 1)
    here.wait_for_all()
    attempts = Counter(
        (run.tags["dagster/run_key"][-1], run.status.value) for run in here.all_runs()
    )
    assert attempts == {("1", "SUCCESS"): 2, ("1", "FAILURE"): 1, ("2", "SUCCESS"): 1}
    assert [run for run in here.runs() if run[2] == "SUCCESS"] == here.expected_runs()
    assert here.job_states() == {"succeeded": 3}


def test_a_tick_that_is_not_resumed_loses_no_run(lake: MakeLake) -> None:
    """After a day Dagster gives a tick up: its requests are handed out again, its runs begun."""
    here = lake()
    for point in ("RUN_IDS_RESERVED", "RUN_CREATED"):
        here.kill_for_good_at(point)
        until(lambda: here.runs() == here.expected_runs(), f"a run each, after {point}")


def test_a_daemon_that_was_only_paused_makes_no_second_run(lake: MakeLake) -> None:
    """A daemon thought dead goes on beside its successor, at each step between reply and end."""
    here = lake()
    for point in PAUSES:
        here.pause_at(point)
        assert here.runs() == here.expected_runs(), point


def test_without_the_run_key_there_is_a_double_run(lake: MakeLake) -> None:
    """The control: requests that lack the key are not known again, and handed out once more."""
    here = lake(without_run_key="requests")
    here.kill_at(DAEMON, "RUN_CREATED", 0)
    until(lambda: bool(here.doubles()), "a double run")
    print(f"requests without run keys: double {dict(here.doubles())}")


def test_without_a_look_at_the_run_key_there_is_a_double_run(lake: MakeLake) -> None:
    """The control of the pause: a Dagster that ignores the key makes each run twice.

    A killed daemon alone does not show it: its tick is resumed under the run ids that were
    reserved. A daemon that lives on does.
    """
    here = lake(without_run_key="dagster")
    here.kill_at(DAEMON, "RUN_CREATED", 0)
    here.wait_for_all()
    assert here.runs() == here.expected_runs()
    here.pause_at("REPLIED")
    assert here.doubles()
    print(f"run keys ignored: double {dict(here.doubles())}")


def test_each_trigger_has_one_run_whatever_step_was_the_last(lake: MakeLake, backend: str) -> None:
    """Daemon and code server die at each step of a tick: no run is missing, none is double."""
    here = lake()
    kills = chosen_kills(backend)
    began = time.monotonic()
    for role, point, later in kills:
        here.kill_at(role, point, later)
        here.wait_for_all()
        print(f"{time.monotonic() - began:6.1f} s {role} {point} {later}")
    assert here.runs() == here.expected_runs()
    assert here.job_states() == {"succeeded": len(here.announced) * 3 // 2}
    assert here.deliveries() == {
        (schedule, key): 1 for schedule in ("each", "pair") for key in here.announced
    }
    print(
        f"{backend}: {len(kills)} kills, {len(here.announced)} events, {len(here.runs())} runs, "
        f"none missing, none double, {time.monotonic() - began:.0f} s"
    )
