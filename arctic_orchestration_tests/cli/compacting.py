"""A lake of small tables, and a state database, as the compaction commands open them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.attempts import Claim
from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)

SCHEMA = Schema(NestedField(1, "day", StringType(), True), NestedField(2, "n", LongType(), False))
BY_DAY = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
_ARROW = pa.schema([pa.field("day", pa.string(), nullable=False), pa.field("n", pa.int64())])

#: three files of a partition are worth merging, however young they are
THREE = {"arctic.compaction.minor.min-files": "3"}


def document(arctic: Callable[..., Outcome], *arguments: str) -> dict[str, Any]:
    """What a command says to programs."""
    found: dict[str, Any] = json.loads(arctic("compaction", *arguments, "--json").out)
    return found


@dataclass(frozen=True)
class SmallLake:
    """Tables, and what compaction knows of them."""

    catalog: Catalog
    database: Database

    def table(self, name: str, files: int, days: int = 1, /, **properties: str) -> Table:
        """A table with so many files, of one row each, in each of so many days."""
        made = ensure_table(self.catalog, name, SCHEMA, BY_DAY, {**THREE, **properties})
        for number in range(files):
            days_of = [f"2013-01-{day:02}" for day in range(1, days + 1)]
            made.append(pa.table({"day": days_of, "n": [number] * days}, schema=_ARROW))
        return made

    def tick(self) -> None:
        """A round of the planner and the committer."""
        CompactionService(self.database, self.catalog).tick(utc_now())

    def tasks(self, *states: TaskState) -> list[Task]:
        """Tasks in some states, or all."""
        with self.database.read() as tx:
            return task_store.tasks(tx, states=states)

    def claim(self, worker: str = "worker-1") -> Claim:
        """The next task, for a worker."""
        with self.database.begin() as tx:
            claim = attempts.claim(tx, [], worker)
        assert claim is not None
        return claim

    def fail(self, reason: str, *, final: bool = False) -> Claim:
        """The next task is claimed, and fails."""
        claim = self.claim()
        with self.database.begin() as tx:
            attempts.failed(tx, claim.attempt_id, claim.token, reason, final=final)
        return claim


@pytest.fixture
def lake(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallLake]:
    """An embedded catalog and a state database, which the environment names."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setenv("ARCTIC_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("ARCTIC_SPARK_MASTER", "local[2]")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    database = Database(database_url)
    yield SmallLake(open_catalog(Settings.from_environment()), database)
    database.close()


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def line_of(text: str, what: str) -> list[str]:
    """The cells of the line that has a word."""
    (line,) = [line for line in text.splitlines() if what in line]
    return cells(line)


def moment_of(text: str) -> datetime:
    """A moment as programs read it."""
    return datetime.fromisoformat(text).astimezone(UTC)


@dataclass(frozen=True)
class Process:
    """A command in a process of its own, which prints lines."""

    popen: "subprocess.Popen[str]"
    #: a file, not a pipe: nobody reads it while the lines are read, and Spark writes a lot to it
    err: IO[str]

    def until(self, is_wanted: Callable[[str], bool]) -> str:
        """Reads lines until one says it; fails where the process ends before."""
        seen = []
        for line in self._out:
            seen.append(line)
            if is_wanted(line):
                return line
        self.err.seek(0)
        raise AssertionError(f"it ended: {''.join(seen)}{self.err.read()}")

    def rest(self) -> list[str]:
        """All lines until it ends."""
        return self._out.read().splitlines()

    def send_signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.popen.send_signal(number)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self.popen.wait(PATIENCE_SECONDS)

    @property
    def _out(self) -> IO[str]:
        assert self.popen.stdout is not None
        return self.popen.stdout


@contextmanager
def arctic_process(*arguments: str) -> Iterator[Process]:
    """Runs ``arctic`` in a process of its own, which is ended with the block."""
    command = [sys.executable, "-c", "from arctic_orchestration.cli.main import main; main()"]
    with tempfile.TemporaryFile("w+") as err:
        popen = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield Process(popen, err)
        finally:
            if popen.poll() is None:
                popen.kill()
            popen.wait()
