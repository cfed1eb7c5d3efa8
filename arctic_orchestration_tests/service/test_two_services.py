"""A worker over HTTP whose service is killed, and that goes on with another one.

Both services are processes on one state database and, one after the other, on one port.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_runner, attempts, worker
from arctic_orchestration.compaction.work.http_source import HttpSource, Server
from arctic_orchestration.compaction.work.worker import Worker
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    lake_in,
    offered,
    rows_of,
    table_of,
    tasks_of,
)
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.processes import free_port
from arctic_orchestration_tests.service import service_process
from arctic_orchestration_tests.service.service_process import CLAIMED, MERGED
from arctic_orchestration_tests.service.test_worker_protocol_laws import ForgetfulSource

_WORKING = "working"

Start = Callable[..., BaseProcess]


@pytest.fixture
def start(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Starts a service on a port: ``start(port, dies_when)``."""
    for module, name in ((worker, "POLL"), (attempt_runner, "_RETRY_SECONDS")):
        pause = timedelta(seconds=0.1)
        monkeypatch.setattr(module, name, pause if name == "POLL" else pause.total_seconds())
    environment = {"ARCTIC_DATABASE_URL": database_url, "ARCTIC_LAKE": str(tmp_path / "lake")}
    started: list[BaseProcess] = []

    def make(port: int, dies_when: str = "") -> BaseProcess:
        started.append(service_process.start(port, environment, dies_when))
        return started[-1]

    yield make
    for process in started:
        process.kill()
        process.join()


def attempts_of(database: Database) -> int:
    """How many attempts there were, of all tasks."""
    with database.read() as tx:
        return tx.execute(sa.select(sa.func.count()).select_from(compaction_attempts)).scalar_one()


@pytest.mark.parametrize(
    ("dies_when", "source", "expected"),
    [
        (_WORKING, HttpSource, 1),
        (CLAIMED, HttpSource, 1),
        (MERGED, HttpSource, 1),
        (CLAIMED, ForgetfulSource, 2),
    ],
    ids=["working", "claimed", "merged", "control"],
)
def test_a_task_is_committed_once_whichever_service_dies(
    database: Database,
    start: Start,
    tmp_path: Path,
    dies_when: str,
    source: type[HttpSource],
    expected: int,
) -> None:
    """While it works, and between what a request stored and its answer: one attempt, one commit.

    The control has another key for each try of a claim: the first attempt is lost, and the lease
    has to expire before the task is claimed once more.
    """
    catalog = lake_in(tmp_path / "lake")
    table = table_of(catalog)
    before, snapshots = rows_of(table), len(table.refresh().snapshots())
    offered(database, table)
    port = free_port()
    first = start(port, dies_when)

    died = threading.Event()

    def kill(_: object) -> None:
        if dies_when == _WORKING:
            first.kill()
            # Its exit code can be read once: in the other thread.
            assert died.wait(PATIENCE_SECONDS)

    merging = Merging(before=kill)
    made = Worker(source(Server(f"http://127.0.0.1:{port}")), merging, poll=timedelta(0))
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        first.join(PATIENCE_SECONDS)
        assert first.exitcode == -signal.SIGKILL
        died.set()
        start(port)
        if expected > 1:
            expire(database)
        merged = [TaskState.MERGED]
        until(lambda: [one.state for one in tasks_of(database)] == merged, "it is merged")
    finally:
        made.drain()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert attempts_of(database) == expected
    assert len(merging.directories) == 1
    assert [Committer(database, catalog).tick().committed for _ in range(2)] == [1, 0]
    assert len(table.refresh().snapshots()) == snapshots + 1
    assert rows_of(table) == before


def expire(database: Database) -> None:
    """All leases expire, as if their workers had been silent for that long."""
    with database.begin() as tx:
        past = utc_now() - timedelta(days=1)
        tx.execute(sa.update(compaction_attempts).values(expires_at=past))
        attempts.expire(tx)
