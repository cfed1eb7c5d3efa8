"""Several processes append to one table; one of them is killed and starts again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.lake.appender import SCHEMA, append_batches, make_table
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

WRITERS = 4
BATCHES = 3


@dataclass(frozen=True)
class Writer:
    """A process that waits until it may begin."""

    process: BaseProcess
    connection: Connection

    def says(self, expected: object) -> None:
        assert self.answer() == expected

    def answer(self) -> Any:
        assert self.connection.poll(PATIENCE_SECONDS), f"no answer in {PATIENCE_SECONDS} s"
        return self.connection.recv()

    def begins(self) -> None:
        self.connection.send("go")

    def ends(self) -> None:
        self.process.join(PATIENCE_SECONDS)
        assert self.process.exitcode == 0


Starting = Callable[..., Writer]


@pytest.fixture
def start() -> Iterator[Starting]:
    """Starts a process that runs a function of ``appender``."""
    started: list[BaseProcess] = []

    def run(function: Callable[..., None], *arguments: object) -> Writer:
        processes = forkserver()
        here, there = processes.Pipe()
        process = processes.Process(target=function, args=(there, *arguments))
        process.start()
        there.close()
        started.append(process)
        return Writer(process, here)

    yield run
    for process in started:
        process.kill()
        process.join()


@pytest.mark.timeout(240)
def test_four_processes_lose_nothing_and_a_killed_one_doubles_nothing(
    settings: Settings, classic_spark: SparkSession, start: Starting
) -> None:
    """4 writers, 3 batches of 10 rows; one is killed after two and runs again from the start."""
    table = ensure_table(open_catalog(settings), "lake.race", SCHEMA)
    jvm = RunningJvm.of(classic_spark)

    def writer(who: int) -> Writer:
        return start(append_batches, settings.lake, "lake.race", jvm, who, BATCHES)

    writers = [writer(who) for who in range(WRITERS)]
    for one in writers:
        one.says("ready")
    for one in writers:
        one.begins()
    writers[0].says(0)
    writers[0].says(1)
    writers[0].process.kill()
    writers[0].process.join()
    writers[0] = writer(0)
    writers[0].begins()
    for one in writers:
        one.ends()
    expected = [
        who * 1000 + batch * 10 + row
        for who in range(WRITERS)
        for batch in range(BATCHES)
        for row in range(10)
    ]
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == expected
    assert len(table.snapshots()) == WRITERS * BATCHES


@pytest.mark.timeout(120)
def test_processes_that_make_the_same_table_get_the_same(tmp_path: Path, start: Starting) -> None:
    """Eight processes, no catalog yet: one table, and all of them load it."""
    writers = [start(make_table, tmp_path / "lake", "a.b.t") for _ in range(8)]
    for one in writers:
        one.says("ready")
    for one in writers:
        one.begins()
    assert len({one.answer() for one in writers}) == 1
    for one in writers:
        one.ends()
