"""The ``arctic`` command, called as the console script calls it."""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration.cli.doctor import run_queue_checks
from arctic_orchestration.cli.main import main
from arctic_orchestration.run_queue.cli import queues, runs
from arctic_orchestration.run_queue.dagster import coordinator
from arctic_orchestration.schedules.cli import apply, jobs, schedules, target_partitions
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.run_queue.coordinator.conftest import make_queue, queue_storage
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue
from arctic_orchestration_tests.schedules.simulated import World, at

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def arctic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs ``arctic`` with arguments, on a terminal wide enough to break no line."""
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["arctic", *arguments])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        result = capsys.readouterr()
        return Outcome(code, result.out, result.err)

    return run


class _Input(io.TextIOWrapper):
    """What a person types, or a program pipes in."""

    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(text.encode()), "utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets what comes through a pipe; at first nothing."""

    def pipe(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", _Input(text, terminal=False))

    pipe("")
    return pipe


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets what a person types in a terminal."""

    def type_(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", _Input(text, terminal=True))

    return type_


@pytest.fixture
def world(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Sequence[Schedule]], World]]:
    """Makes a ticked location "here" in the database that commands open, at a fixed time.

    For the commands it is ten minutes after the epoch of the tests.
    """
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    for module in (apply, jobs, schedules, target_partitions):
        monkeypatch.setattr(module, "utc_now", lambda: at(600))
    database = Database(database_url)

    def make(of: Sequence[Schedule]) -> World:
        made = World(database, of)
        made.tick(0)
        return made

    yield make
    database.close()


@pytest.fixture
def instance(
    backend: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> dg.DagsterInstance:
    """The instance that the environment names."""
    made = dagster_instance(backend)
    monkeypatch.setenv("DAGSTER_HOME", made.root_directory)
    return made


class Clock:
    """The time that the run coordinator and the commands read."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **span: float) -> None:
        self.now += timedelta(**span)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stands at noon until it may go on."""
    clock = Clock()
    for module in (coordinator, run_queue_checks, queues, runs):
        monkeypatch.setattr(module, "utc_now", clock)
    return clock


@pytest.fixture
def ruled(
    backend: str,
    database_url: str,
    make_queue: Callable[..., RunQueue],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., RunQueue]:
    """Makes a run queue under rules, ``ruled(groups=..., ...)``, of the instance of commands.

    Nobody goes through it but by its ``iterate``. The state database is on the same storage.
    """
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)

    def make(**config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": config})

    return make


__all__ = ["make_queue", "queue_storage"]
