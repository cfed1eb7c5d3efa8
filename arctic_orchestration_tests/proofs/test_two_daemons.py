"""Proof with real processes: two daemons of one instance make one run of each job.

They work side by side, or one replaces the other as in a rolling restart. ``ARCTIC_PROOF=full``
has 1,000 partitions on each database, some 550 where daemons are killed; by default some dozens.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from dagster import DagsterEventType, DagsterInstance

from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs import crash_points, instant_launcher
from arctic_orchestration_tests.proofs.dagster_processes import DAEMON
from arctic_orchestration_tests.proofs.test_crashes import Lake

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
#: that arrive: each is a job of its own, and some are counted together in another one
PARTITIONS = 1000 if FULL else 16
#: in one replacement of a daemon
OF_A_ROUND = 50 if FULL else 8
#: at which a daemon is killed beside its successor, again and again in this order; on Postgres it
#: begins in the middle, so that each comes in the small size, too
KILLED_AT = ("RUN_CREATED", "RUN_IDS_RESERVED", "RUN_LAUNCHED", "REPLIED")
ROUNDS = PARTITIONS // OF_A_ROUND
_SECONDS = 1800 if FULL else PATIENCE_SECONDS
#: Of daemons that are killed or ended: their successors wait for its end, and for nothing else. It
#: is longer than a daemon that is alive needs from one run to the next.
_LEASE_SECONDS = "" if FULL else "20"


class TwoDaemons(Lake):
    """A code server, and daemons that overlap."""

    def announce(self, partitions: int) -> None:
        """So many partitions arrive."""
        for _ in range(partitions // 2):
            self.announce_two()

    def add_daemon(self) -> None:
        """Starts another daemon, and waits until its sensors are at work."""
        before = self._sensor_daemon()
        self.daemon = self.processes.start(DAEMON)
        until(lambda: self._sensor_daemon() != before, "the other daemon works", _SECONDS)

    def wait_for_runs(self, less: int = 0) -> None:
        """Returns when the jobs of all partitions have succeeded, or of all but some."""
        wanted = len(self.announced) - less
        try:
            until(lambda: self.succeeded() >= wanted, f"{wanted} jobs succeeded", _SECONDS)
        except AssertionError:
            print(self.job_states(), self.processes.logs())
            raise

    def has_runs_of_the_last(self) -> bool:
        """Whether the two partitions that arrived last have runs."""
        return set(self.announced[-2:]) <= set(self.partitions_of_runs())

    def succeeded(self) -> int:
        """How many jobs of one partition have succeeded."""
        done = (jobs.c.state == "succeeded") & jobs.c.partition_start.is_not(None)
        with self.database.read() as tx:
            return int(tx.execute(sa.select(sa.func.count()).where(done)).scalar_one())

    def end_daemons(self) -> None:
        """What they are in the middle of is finished before runs are counted."""
        for process in self.processes.daemons:
            if process.exitcode is None:
                os.kill(process.pid or 0, signal.SIGTERM)
                process.join(_SECONDS)

    def partitions_of_runs(self) -> list[str]:
        """The partitions of the runs that were requested one by one."""
        tags = [run.tags for run in self.all_runs()]
        return sorted(t["dagster/partition"] for t in tags if "dagster/partition" in t)

    def assert_one_run_each(self) -> None:
        """A run for each partition, no run key with two runs, and nothing left undone."""
        self.wait_for_runs()
        self.end_daemons()
        assert self.runs_of_keys() == {}
        assert self.begun_twice() == {}
        assert self.partitions_of_runs() == sorted(self.announced)

    def begun_twice(self) -> Counter[str]:
        """How often runs of a job began, for each job of which more than one did, or one twice."""
        begun: Counter[str] = Counter()
        for run in self.all_runs():
            starts = self.instance.all_logs(run.run_id, of_type=DagsterEventType.RUN_START)
            begun[run.tags["arctic/job"]] += len(starts)
        return Counter({job: starts for job, starts in begun.items() if starts > 1})

    def runs_of_keys(self) -> Counter[str]:
        """How many runs each run key has that has more than one."""
        keys = Counter(run.tags["dagster/run_key"] for run in self.all_runs())
        return Counter({key: runs for key, runs in keys.items() if runs > 1})

    def _sensor_daemon(self) -> str | None:
        beat = self.instance.get_daemon_heartbeats().get("SENSOR")
        return beat.daemon_id if beat else None


MakeLake = Callable[..., TwoDaemons]


@pytest.fixture
def lake(
    backend: str, database_url: str, dagster_instance: Callable[[str], DagsterInstance]
) -> Iterator[MakeLake]:
    """Makes a lake whose Dagster and whose state are on one kind of database."""
    made: list[TwoDaemons] = []

    def make(**options: Any) -> TwoDaemons:
        # As long as otherwise: a daemon that is slow is not one that is gone.
        options.setdefault(crash_points.LEASE_SECONDS, "")
        options.setdefault("launcher", f"{instant_launcher.__name__}.ClaimingRunLauncher")
        made.append(TwoDaemons(dagster_instance(backend), database_url, **options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.processes.end()
        one.database.close()


def report(here: TwoDaemons, backend: str, what: str, began: float) -> None:
    runs = len(here.all_runs())
    seconds = time.monotonic() - began
    print(f"{backend}, {what}: {runs} runs, more than one for {len(here.runs_of_keys())} keys, "
          f"{seconds:.0f} s")  # fmt: skip


def test_two_daemons_make_one_run_of_each_job(lake: MakeLake, backend: str) -> None:
    """Both evaluate the dispatcher and launch runs, for as long as there is work."""
    here = lake()
    here.add_daemon()
    began = time.monotonic()
    for _ in range(ROUNDS):
        here.announce(OF_A_ROUND)
        here.wait_for_runs(less=OF_A_ROUND // 2)
    here.wait_for_runs()
    report(here, backend, "two daemons", began)
    here.assert_one_run_each()


def test_without_the_lease_two_daemons_make_double_runs(lake: MakeLake, backend: str) -> None:
    """The control: requests are handed to every tick until their run is seen.

    Both have got the same requests when one is paused, as by a busy machine, between two runs.
    """
    here = lake(**{crash_points.WITHOUT_LEASE: "1"})
    began = time.monotonic()
    first = here.pause("TICK_LEFT")
    here.add_daemon()
    second = here.pause("TICK_LEFT")
    here.announce(OF_A_ROUND)
    for daemon in (first, second):
        here.resume(daemon, at="REPLIED", how=signal.SIGSTOP)
    here.resume(first, at="RUN_CREATED", how=signal.SIGSTOP)
    here.resume(second)
    here.wait_for_runs()
    here.resume(first)
    report(here, backend, "two daemons without the lease", began)
    assert here.runs_of_keys()


def test_without_the_claim_two_daemons_begin_runs_twice(lake: MakeLake) -> None:
    """The control: both daemons launch the same queued run, and each launch executes it."""
    here = lake(launcher=f"{instant_launcher.__name__}.InstantRunLauncher")
    here.add_daemon()
    for _ in range(30):
        here.announce(OF_A_ROUND)
        here.wait_for_runs()
        if here.begun_twice():
            break
    print(f"without the claim: begun more than once {dict(here.begun_twice())}")
    assert here.begun_twice()


def test_a_daemon_that_is_killed_beside_its_successor_makes_no_second_run(
    lake: MakeLake, backend: str
) -> None:
    """A rolling restart that ends the old daemon by SIGKILL, in the middle of a tick."""
    here = lake(**{crash_points.LEASE_SECONDS: _LEASE_SECONDS})
    began = time.monotonic()
    first = 0 if backend == "sqlite" else len(KILLED_AT) // 2
    for round in range(first, first + ROUNDS):
        old, point = here.daemon, KILLED_AT[round % len(KILLED_AT)]
        here.add_daemon()
        here.processes.arm(point, of=old.pid)
        while old.exitcode is None:
            here.announce(2)
            until(
                lambda old=old: old.exitcode is not None or here.has_runs_of_the_last(),  # type: ignore[misc]
                f"the old daemon is killed at {point}, or the other one was first",
                _SECONDS,
            )
        here.announce(OF_A_ROUND // 2)
    here.wait_for_runs()
    report(here, backend, f"{ROUNDS} daemons killed beside their successors", began)
    here.assert_one_run_each()


def test_a_daemon_that_ends_beside_its_successor_makes_no_second_run(
    lake: MakeLake, backend: str
) -> None:
    """A rolling restart that ends the old daemon by SIGTERM, while both have work."""
    here = lake(**{crash_points.LEASE_SECONDS: _LEASE_SECONDS})
    began = time.monotonic()
    for _ in range(ROUNDS):
        old = here.daemon
        here.add_daemon()
        runs = len(here.all_runs())
        here.announce(OF_A_ROUND)
        until(lambda runs=runs: len(here.all_runs()) > runs, "a run", _SECONDS)  # type: ignore[misc]
        os.kill(old.pid or 0, signal.SIGTERM)
        old.join(_SECONDS)
        assert old.exitcode is not None
    here.wait_for_runs()
    report(here, backend, f"{ROUNDS} daemons ended beside their successors", began)
    here.assert_one_run_each()
