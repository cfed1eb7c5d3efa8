"""Proof with real processes: whoever is killed, each trigger has one run that counts.

Daemon, code server, run hosts, their children and the JVMs that they lend are killed and stopped
at random, on Postgres the server's backends, too, while partitions arrive. ``ARCTIC_PROOF=full``
does so 1,000 times on each database, in ten rounds.
"""

import faulthandler
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import dagster as dg
import psutil
import pytest
import sqlalchemy as sa
import yaml

from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, locations
from arctic_orchestration_tests import open_files
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs import forked_runs
from arctic_orchestration_tests.proofs.dagster_processes import CODE_SERVER, DAEMON
from arctic_orchestration_tests.proofs.lake_of_warm_runs import JVMS, NOTES
from arctic_orchestration_tests.proofs.processes import end_with_the_parent, free_port
from arctic_orchestration_tests.run_launcher import forked_hosts

pytestmark = [pytest.mark.proof, pytest.mark.timeout(10_800)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
ROUNDS = 10 if FULL else 1
#: of a round; in its small size, each victim once, but for the JVM: on each database another way
KILLS = 100 if FULL else 0
#: in its small size, before the test's own timeout ends the process without a word
_SECONDS = 600 if FULL else PATIENCE_SECONDS
#: how long a process to kill is looked for
_LOOK_SECONDS = 5
#: for a JVM, which may have to start
_JVM_SECONDS = 120
_MODULE = "arctic_orchestration_tests.proofs.lake_of_warm_runs"
#: what the daemon does before it begins: give each job a second run, as one that was given up
_TWICE = """
from dagster._core.launcher import LaunchRunContext
from dagster._core.storage.dagster_run import DagsterRunStatus
from dagster._core.utils import make_new_run_id
from arctic_orchestration.run_launcher import launcher
once = launcher.ArcticRunLauncher.launch_run
def twice(self, context):
    once(self, context)
    other = context.dagster_run._replace(
        run_id=make_new_run_id(), status=DagsterRunStatus.STARTING
    )
    self._instance.add_run(other)
    once(self, LaunchRunContext(other, context.workspace))
launcher.ArcticRunLauncher.launch_run = twice
"""
_UNCLAIMED = """
from arctic_orchestration.run_launcher import launcher
launcher.claims_its_job = lambda run: False
"""


class WarmLake:
    """An instance whose daemon and code server are real, and killed."""

    def __init__(self, instance: dg.DagsterInstance, database_url: str, patches: str = "") -> None:
        self.instance = instance
        self.home = Path(instance.root_directory)
        self.database = Database(database_url)
        self.database.upgrade()
        self.notes = self.home / "notes"
        self.notes.mkdir()
        self.lent = self.home / "jvms"
        self.lent.mkdir()
        self._patches = patches
        self._port = free_port()
        # The path of a socket is short; that of a test's folder is not.
        self.sockets = Path(tempfile.mkdtemp(prefix="hosts-"))
        self.environment = {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "ARCTIC_DATABASE_URL": database_url,
            "ARCTIC_RUN_HOSTS": str(self.sockets),
            NOTES: str(self.notes),
            JVMS: str(self.lent),
        }
        file = self.home / "dagster.yaml"
        config = yaml.safe_load(file.read_text())
        config |= {
            "run_launcher": {
                "module": "arctic_orchestration.run_launcher",
                "class": "ArcticRunLauncher",
            },
            "run_coordinator": {
                "module": "arctic_orchestration.coordinator",
                "class": "ArcticRunCoordinator",
                "config": {"dequeue_interval_seconds": 1},
            },
            "run_monitoring": {
                "enabled": True,
                "poll_interval_seconds": 1,
                "start_timeout_seconds": 30,
            },
        }
        file.write_text(yaml.safe_dump(config))
        server = {"host": "127.0.0.1", "port": self._port, "location_name": "warm"}
        workspace = {"load_from": [{"grpc_server": server}]}
        (self.home / "workspace.yaml").write_text(yaml.safe_dump(workspace))
        self.announced: list[str] = []
        self.server = self._start(CODE_SERVER)
        self.daemon = self._start(DAEMON)
        until(self._has_ticked, "the first tick", _SECONDS)

    def _start(self, role: str) -> BaseProcess:
        process = forkserver().Process(
            target=_be, args=(role, self._port, self.environment, str(self.home), self._patches)
        )
        process.start()
        return process

    def _has_ticked(self) -> bool:
        with self.database.read() as tx:
            return bool(tx.execute(sa.select(locations.c.position)).scalar())

    def announce(self, asset: str = "a") -> None:
        key = f"p{len(self.announced) + 1:05}"
        self.announced.append(key)
        self.instance.add_dynamic_partitions("feed", [key])
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(["raw", asset], partition=key)
        )

    def hosts(self) -> list[psutil.Process]:
        """The hosts of this lake, which may outlive its daemon."""
        return [process for process in self._of_this_lake() if not self._is_run(process)]

    def runs(self) -> list[psutil.Process]:
        """The processes of runs; those that hold a JVM only lend it."""
        return [process for process in self._of_this_lake() if self._is_run(process)
                and not self._has_jvm(process)]  # fmt: skip

    def jvms(self) -> list[psutil.Process]:
        """Those of runs that use them now."""
        found = []
        for file in self.lent.iterdir():
            with suppress(psutil.Error, OSError, ValueError):
                run = psutil.Process(int(file.name))
                if run in self._of_this_lake():
                    found.append(psutil.Process(int(file.read_text())))
        return found

    def _has_jvm(self, process: psutil.Process) -> bool:
        try:
            return any(child.name() == "java" for child in process.children())
        except psutil.Error:
            return True

    def _is_run(self, process: psutil.Process) -> bool:
        try:
            parent = process.parent()
            return parent is not None and parent.name() == forked_hosts.NAME
        except psutil.Error:
            return True

    def _of_this_lake(self) -> list[psutil.Process]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, psutil.Error):
                is_here = os.readlink(process / "cwd") == str(self.home)
                if is_here and (process / "comm").read_text().strip() == forked_hosts.NAME:
                    found.append(psutil.Process(int(process.name)))
        return found

    def kill(self, what: str, how: int) -> bool:
        """Kills or stops one process; a daemon and a code server are started again."""
        if what in ("daemon", "server"):
            role = DAEMON if what == "daemon" else CODE_SERVER
            process = self.daemon if what == "daemon" else self.server
            assert process.pid is not None
            os.kill(process.pid, how)
            process.join(_SECONDS / 2)
            if process.exitcode is None:
                status = Path(f"/proc/{process.pid}/status").read_text()
                signals = [line for line in status.splitlines() if line.startswith(("Sig", "Shd"))]
                log = self.home / f"{role}.log"
                before = log.read_text(errors="replace")[-4000:]
                os.kill(process.pid, signal.SIGUSR1)
                time.sleep(1)
                stacks = log.read_text(errors="replace")[-8000:]
                raise AssertionError(f"the {role} does not end: {signals}\n{before}\n{stacks}")
            if what == "daemon":
                self.daemon = self._start(DAEMON)
            else:
                self.server = self._start(CODE_SERVER)
            return True
        if what == "backend":
            with self.database.begin() as tx:
                tx.execute(
                    sa.text(
                        "select pg_terminate_backend(pid) from pg_stat_activity where datname = "
                        "current_database() and pid <> pg_backend_pid() order by random() limit 1"
                    )
                )
            return True
        look = {"host": self.hosts, "run": self.runs, "jvm": self.jvms}[what]
        found = found_soon(look, _JVM_SECONDS if what == "jvm" else _LOOK_SECONDS)
        if not found:
            # Its run was quicker than the look: the next arrival makes another one.
            return False
        victim = random.choice(found)
        if what == "run":
            # Found at its fork: anywhere between that and its end.
            time.sleep(random.uniform(0, 0.5))
        try:
            if how == signal.SIGSTOP:
                victim.suspend()
                time.sleep(0.2)
                victim.resume()
            else:
                victim.send_signal(how)
        except psutil.NoSuchProcess:
            return False
        return True

    def states(self) -> Counter[str]:
        with self.database.read() as tx:
            return Counter(tx.execute(sa.select(jobs.c.state)).scalars())

    def succeeded(self) -> set[str]:
        with self.database.read() as tx:
            ended = sa.select(jobs.c.id).where(jobs.c.state == "succeeded")
            return set(tx.execute(ended).scalars())

    def wait_for_all(self) -> None:
        """Until each partition has a job that has ended."""

        def ended() -> bool:
            states = self.states()
            return states["succeeded"] + states["failed"] >= len(self.announced)

        try:
            until(ended, "all jobs have ended", _SECONDS)
        except AssertionError as error:
            error.add_note(self._stuck())
            raise

    def _stuck(self) -> str:
        """What a job that does not end can be understood by."""
        lines = [f"{dict(self.states())}"]
        for run in self.instance.get_runs():
            if not run.is_finished:
                lines += [f"run {run.run_id} is {run.status.value}: {run.tags}"]
                entries = self.instance.all_logs(run.run_id)
                lines += [f"  {entry.timestamp} {entry.message}" for entry in entries[-5:]]
        for role in (DAEMON, CODE_SERVER):
            log = (self.home / f"{role}.log").read_text(errors="replace").splitlines()
            lines += [f"{role}: {line}" for line in log[-60:]]
        return "\n".join(lines)

    def begun(self) -> Counter[str]:
        """How many runs of each job came to their step."""
        return Counter(note.name.split(".")[0] for note in self.notes.iterdir())

    def end(self) -> None:
        for process in (self.daemon, self.server):
            process.kill()
            process.join()
        for left in self._of_this_lake():
            with suppress(psutil.Error):
                left.kill()
        self.database.close()
        shutil.rmtree(self.sockets, ignore_errors=True)


def _be(role: str, port: int, environment: dict[str, str], home: str, patches: str) -> None:
    end_with_the_parent()
    with open(f"{home}/{role}.log", "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(home)
    faulthandler.register(signal.SIGUSR1, file=2)
    # Forks its hosts, or the processes of runs that no host executes.
    forked_runs.put_in_place()
    open_files.put_in_place()
    if role == DAEMON:
        from dagster._daemon.cli import cli

        forked_hosts.hosts_are_forked(lambda server: environment).start()
        exec(patches, {})
        cli(["run", "-w", "workspace.yaml"])
    else:
        from dagster._cli.api import api_cli

        api_cli(["grpc", "-m", _MODULE, "--host", "127.0.0.1", "--port", str(port),
                 "--location-name", "warm"])  # fmt: skip


def found_soon(look: Callable[[], list[psutil.Process]], seconds: float) -> list[psutil.Process]:
    """What is there, as soon as something is; nothing after this time."""
    until_at = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < until_at:
        time.sleep(0.02)
    return found


MakeLake = Callable[..., WarmLake]


@pytest.fixture
def lake(
    backend: str, database_url: str, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> Iterator[MakeLake]:
    made: list[WarmLake] = []

    def make(patches: str = "") -> WarmLake:
        made.append(WarmLake(dagster_instance(backend), database_url, patches))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_each_trigger_has_one_run_that_counts(lake: MakeLake, backend: str, number: int) -> None:
    here = lake()
    chances = random.Random(number)
    victims = [
        ("daemon", signal.SIGKILL), ("daemon", signal.SIGTERM), ("server", signal.SIGKILL),
        ("host", signal.SIGKILL), ("host", signal.SIGTERM), ("host", signal.SIGSTOP),
        ("run", signal.SIGKILL), ("run", signal.SIGKILL), ("run", signal.SIGSTOP),
        ("jvm", signal.SIGKILL), ("jvm", signal.SIGSTOP),
    ]  # fmt: skip
    if not FULL:
        # Starting a JVM costs more than all the rest, and none knows of the database.
        victims.remove(("jvm", signal.SIGSTOP if backend == "sqlite" else signal.SIGKILL))
    if backend == "postgres":
        victims += [("backend", signal.SIGTERM)] * 2
    kills = KILLS or len(victims)
    killed: Counter[str] = Counter()
    began = time.monotonic()
    while killed.total() < kills:
        # An arrival's run may be quicker than the look for it, but not each time.
        assert len(here.announced) < 6 * kills, killed
        # Each once, then at random.
        first = killed.total() < len(victims)
        what, how = victims[killed.total()] if first else chances.choice(victims)
        here.announce()
        here.announce("s" if what == "jvm" else "a")
        killed[f"{what} {signal.Signals(how).name}"] += here.kill(what, how)
        if len(here.announced) % 30 == 0:
            # A backlog would only say that the machine is slow.
            here.wait_for_all()
            print(f"{backend}: {killed.total()} kills, {dict(here.states())}", flush=True)
    here.wait_for_all()
    begun = here.begun()
    assert here.states().total() == len(here.announced)
    assert set(begun.values()) == {1}, [job for job, count in begun.items() if count > 1]
    # A job fails whose run was killed in the middle, and no other one.
    assert here.succeeded() <= begun.keys()
    assert here.states()["failed"] <= sum(
        count for name, count in killed.items() if "STOP" not in name
    )
    assert all(run.is_finished for run in here.instance.get_runs())
    print(f"{backend}, round {number}: {dict(killed)}, {len(begun)} jobs, {dict(here.states())}, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip


def test_of_two_runs_of_a_job_one_begins(lake: MakeLake) -> None:
    here = lake(_TWICE)
    for _ in range(3):
        here.announce()
    here.wait_for_all()
    until(
        lambda: [run.is_finished for run in here.instance.get_runs()] == [True] * 6,
        "all runs have ended",
        _SECONDS,
    )
    assert list(here.begun().values()) == [1] * 3


def test_without_the_claim_both_begin(lake: MakeLake) -> None:
    """The control: this harness sees a double."""
    here = lake(_TWICE + _UNCLAIMED)
    for _ in range(3):
        here.announce()
    until(lambda: 2 in here.begun().values(), "a double run", _SECONDS)
