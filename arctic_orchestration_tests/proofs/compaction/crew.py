"""The planner, the committer and workers of a lake, each a process of its own.

::

    with Crew(home, lake, url) as crew:
        worker = crew.start(WORKER)
        crew.arm("OUTPUTS_WRITTEN")
        worker.was_killed()

They are forked from a server that has everything loaded but Spark, which each worker starts for
itself, unless it is given a JVM: its own ends when it does. What they say is in files, so that it
outlives them.
"""

import json
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit import cleaner
from arctic_orchestration.compaction.commit.committer import Committer, Round
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker, WorkerEvent
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.lake import open_catalog, spark_session
from arctic_orchestration.lake.merging.merge import Engine, merge
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.lake.sessions import FAST, RunningJvm
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs import crash_points
from arctic_orchestration_tests.proofs.compaction import steps
from arctic_orchestration_tests.proofs.compaction.sizes import GRACE, LIFE
from arctic_orchestration_tests.proofs.compaction.steps import Without
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

PLANNER, COMMITTER, WORKER = "planner", "committer", "worker"
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class How:
    """How a process works."""

    without: Without = Without.NOTHING
    life: timedelta = LIFE
    grace: timedelta = GRACE
    parallelism: int = 1
    #: none: the worker starts one
    jvm: RunningJvm | None = None
    #: of a Spark that it starts, beside what lets it start fast
    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)
    #: none: whichever is right for the files
    way: Way | None = None
    engine: Engine | None = None


class Member:
    """A process of the crew."""

    def __init__(self, process: BaseProcess, file: Path) -> None:
        self.process = process
        self._file = file

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()

    def events_of(self, what: str) -> list[dict[str, Any]]:
        """What it has said of a kind."""
        if not self._file.exists():
            return []
        lines = self._file.read_text().splitlines()
        # The last line of one that was killed may be half a line.
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [one for one in found if one["what"] == what]

    def reports(self, what: str, times: int = 1) -> None:
        """Waits until it has."""

        def has_reported() -> bool:
            assert self.is_alive, f"it ended with {self.process.exitcode}: {self.log()}"
            return len(self.events_of(what)) >= times

        until(has_reported, f"{what}, from {self._file.name}")

    def log(self) -> str:
        """The end of what it has written."""
        if not self._file.with_suffix(".log").exists():
            return "it did not even begin"
        return self._file.with_suffix(".log").read_text(errors="replace")[-3000:]

    def was_killed(self) -> None:
        """Waits until it has been."""
        self.process.join(PATIENCE_SECONDS)
        assert self.process.exitcode == -signal.SIGKILL, f"{self.process.exitcode}: {self.log()}"

    def is_stopped_at(self, crew: "Crew", step: str) -> None:
        """Waits until it has reached the step that was armed with SIGSTOP, and stands."""

        def stands() -> bool:
            assert self.is_alive, f"it ended with {self.process.exitcode}: {self.log()}"
            return crew.was_reached(step) and steps.stopped(self.pid)

        until(stands, f"{self._file.name} stands at {step}")

    def goes_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Crew:
    """The processes that compact a lake; killed at the end of the block."""

    def __init__(self, home: Path, lake: Path, url: str) -> None:
        self._home = home / "crew"
        self.lake, self._url = lake, url
        self._points = self._home / "points"
        self._points.mkdir(parents=True)
        self._started: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._started:
            member.process.kill()
            member.process.join()

    def start(self, role: str, how: How | None = None, *, bare: bool = False) -> Member:
        """Starts a process; returns at once.

        One that is ``bare`` has nothing in its memory that is loaded for other tests.
        """
        context = multiprocessing.get_context("spawn") if bare else forkserver()
        file = self._home / f"{role}-{len(self._started)}.said"
        place = {"lake": self.lake, "url": self._url, "points": self._points, "file": file}
        process = context.Process(target=_be, args=(role, place, how or How()))
        process.start()
        self._started.append(Member(process, file))
        return self._started[-1]

    def arm(self, step: str, *, of: Member | None = None, how: int = signal.SIGKILL) -> None:
        """Whoever reaches the step next gets the signal."""
        (self._points / f"{step}.reached").unlink(missing_ok=True)
        crash_points.arm(self._points, step, how=how, of=None if of is None else of.pid)

    def was_reached(self, step: str) -> bool:
        return crash_points.was_reached(self._points, step)


class _Process:
    """What all of them have."""

    def __init__(self, place: Mapping[str, Any], how: How) -> None:
        self.how = how
        # The lake may have a catalog in a file of pyiceberg's.
        os.environ["PYICEBERG_HOME"] = str(place["lake"])
        self.settings = Settings.from_environment(
            {"ARCTIC_LAKE": str(place["lake"]), "ARCTIC_SPARK_MASTER": how.master}
        )
        self.database = Database(place["url"])
        self.catalog: Catalog = open_catalog(self.settings)
        self._file = os.open(place["file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, what: str, **more: Any) -> None:
        # One call, one line, also from several threads and of one that is killed.
        os.write(self._file, (json.dumps({"what": what, **more}) + "\n").encode())


def _be(role: str, place: Mapping[str, Any], how: How) -> None:
    end_with_the_parent()
    log = os.open(place["file"].with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    os.environ[crash_points.DIRECTORY] = str(place["points"])
    # There is no Dagster here, and so no database of it that a stop would have to wait for.
    os.environ["DAGSTER_HOME"] = str(place["points"])
    steps.put_in(how.without)
    _ROLES[role](_Process(place, how))


def _plan(process: _Process) -> None:
    planner = Planner(process.database, process.catalog, discovery=timedelta(seconds=1))
    while True:
        try:
            planner.tick(utc_now())
        except DatabaseUnavailable as error:
            process.say("unavailable", why=str(error))
        threading.Event().wait(_PAUSE_SECONDS)


class _Telling(Committer):
    """A committer that says what came of each round."""

    process: _Process

    def commit(self, name: str) -> Round | None:
        done = super().commit(name)
        if done is None:
            self.process.say("refused", table=name)
        else:
            self.process.say("round", table=name, **vars(done.counts), trouble=done.trouble)
        return done


def _commit(process: _Process) -> None:
    committer = _Telling(process.database, process.catalog, life=process.how.life)
    committer.process = process
    # A store that fails is asked again soon, not after an hour.
    cleaner._RETRY_AFTER = timedelta(seconds=1)
    process.say("ready")
    while True:
        try:
            with process.database.begin() as tx:
                attempts.expire(tx)
            committer.tick()
            cleaner.clean(process.database, process.catalog, grace=process.how.grace)
        except DatabaseUnavailable as error:
            process.say("unavailable", why=str(error))
        threading.Event().wait(_PAUSE_SECONDS)


def _work(process: _Process) -> None:
    def write_event(event: WorkerEvent) -> None:
        process.say(event.what.value, task=event.claim.task.id, text=event.text)

    how = process.how
    if how.jvm is None:
        spark = spark_session(process.settings, {**FAST, **how.conf})
    else:
        spark = how.jvm.session()
    worker = Worker(
        DatabaseSource(process.database, process.catalog, life=how.life),
        partial(merge, spark, way=how.way, engine=how.engine),
        parallelism=how.parallelism,
        name=f"worker-{os.getpid()}",
        poll=timedelta(seconds=_PAUSE_SECONDS),
        on_event=write_event,
    )
    process.say("ready")
    worker.run()


_ROLES = {PLANNER: _plan, COMMITTER: _commit, WORKER: _work}
