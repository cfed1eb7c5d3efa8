"""Claims that wait for a task, on one connection of the state database."""

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue import claim_order, queues
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.compaction.work.http_source import Server
from arctic_orchestration.service import claim_waiters
from arctic_orchestration.service.claim_waiters import ClaimWaiters
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in, offered, table_of
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.service.lossy_service import served


def test_a_thousand_claims_wait_without_threads(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement an interval for all of them; each task wakes one, in order of arrival."""
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="night"), utc_now())
        seen(tx, "lake.words")
        seen(tx, "lake.dark", queue="night")

    async def wait() -> list[int]:
        waiters = ClaimWaiters(database)
        asked, answered = 0, Counter[str]()
        ask = claim_order.claimable

        def counted(*given: Any) -> Any:
            # Those that are woken claim their tasks: what was answered once is taken.
            nonlocal asked, answered
            asked += 1
            tasks = ask(*given) - answered
            answered += tasks
            return tasks

        monkeypatch.setattr(claim_waiters, "claimable", counted)
        woken: list[int] = []

        async def one(number: int, *names: str) -> None:
            if await waiters.wait(f"w{number}", names, PATIENCE_SECONDS):
                woken.append(number)

        nights = asyncio.create_task(one(0, "night"))
        others = [asyncio.create_task(one(number)) for number in range(1, 1001)]
        while asked < 5:
            await asyncio.sleep(claim_waiters.INTERVAL_SECONDS)
        assert (woken, threading.active_count() < 50) == ([], True)
        with database.begin() as tx:
            offer(tx, "lake.words", [planned("a"), planned("b")], utc_now())
        while len(woken) < 2:
            await asyncio.sleep(claim_waiters.INTERVAL_SECONDS)
        first = list(woken)
        for task in (nights, *others):
            task.cancel()
        await asyncio.gather(nights, *others, return_exceptions=True)
        return first

    assert asyncio.run(wait()) == [1, 2]


def test_a_waiting_claim_gets_a_task_soon(database: Database, tmp_path: Path) -> None:
    """And an order to stop at once."""
    answers: list[Any] = []
    with served(database, tmp_path / "lake") as service:
        server = Server(service.address)
        server.request("PUT", "/w", {"name": "w"})

        def wait() -> None:
            body = {"key": f"k{len(answers)}", "wait_seconds": 50}
            answers.append(server.request("POST", "/w/claim", body, wait=50))

        def is_waiting() -> bool:
            return bool(service.proxy.app.state.service.waiters._waiters)

        for number in range(2):
            thread = threading.Thread(target=wait)
            thread.start()
            until(is_waiting, "it waits")
            begun_at = time.monotonic()
            if number == 0:
                offered(database, table_of(lake_in(tmp_path / "lake")))
            else:
                server.request("POST", "/w/stop")
            thread.join(PATIENCE_SECONDS)
            assert time.monotonic() - begun_at < 40
    assert answers[0]["assignment"]["table"]["name"] == "lake.words"
    assert (answers[1]["order"], answers[1]["assignment"]) == ("stop", None)


def test_the_watcher_gives_its_connection_back(database: Database) -> None:
    """It takes one of the pool's, and leaves none that commits on its own as it did."""
    waiters = ClaimWaiters(database)
    pool = database.engine.pool
    assert isinstance(pool, sa.QueuePool)

    def levels() -> list[Any]:
        with database.engine.connect() as one, database.engine.connect() as other:
            return [each.connection.dbapi_connection.isolation_level for each in (one, other)]  # type: ignore[union-attr]

    before = levels()

    async def wait() -> int:
        waiting = asyncio.create_task(waiters.wait("w", (), PATIENCE_SECONDS))
        while waiters._tasks is None:
            await asyncio.sleep(claim_waiters.INTERVAL_SECONDS)
        used = pool.checkedout()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return used

    assert asyncio.run(wait()) == 1
    until(lambda: waiters._watcher is None and pool.checkedout() == 0, "it ends")
    assert levels() == before


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_watcher_whose_connection_is_ended_goes_on(
    database: Database, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the server: the waiting claim is woken by the next task."""
    monkeypatch.setattr(claim_waiters, "_PAUSE_SECONDS", 0.01)
    with database.begin() as tx:
        seen(tx, "lake.words")
    backends: list[int] = []
    sa.event.listen(
        database.engine,
        "checkout",
        lambda connection, *_: backends.append(connection.info.backend_pid),
    )

    async def wait() -> bool:
        waiters = ClaimWaiters(database)
        waiting = asyncio.create_task(waiters.wait("w", (), PATIENCE_SECONDS))
        while not backends:
            await asyncio.sleep(claim_waiters.INTERVAL_SECONDS)
        postgres_server.end_backend(backends[0])
        while len(backends) < 2:
            await asyncio.sleep(claim_waiters.INTERVAL_SECONDS)
        with database.begin() as tx:
            offer(tx, "lake.words", [planned("a")], utc_now())
        return await waiting

    assert asyncio.run(wait())
