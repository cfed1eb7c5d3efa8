"""What workers cost that wait for tasks over HTTP, and how soon one of them has a task.

A service is a process of its own, and each worker a connection. Their claims end one after the
other, as those of workers that were started at different times.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.service.worker_documents import LONGEST_WAIT_SECONDS
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in, table_of
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.proofs.processes import free_port
from arctic_orchestration_tests.service import service_process

WORKERS, TASKS = 1_000, 100
#: milliseconds, and a share of a core
CLAIM_GOAL, IDLE_GOAL = 50, 0.05
_TABLE = "lake.words"
_MEASURED_SECONDS = 60
_WARM_UP_SECONDS = 20
#: between two tasks, so that the worker waits again
_PAUSE_SECONDS = 0.2


async def request(port: int, method: str, path: str, body: Any) -> Any:
    """Sends a request on a connection of its own; returns its answer."""
    text = json.dumps(body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"{method} /api/v1/workers/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
    )
    answer = await reader.read()
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0], answer
    return json.loads(content)


async def _claim_for_ever(port: int, worker: str) -> None:
    """Waits for tasks that there are not."""
    wait = random.uniform(1, LONGEST_WAIT_SECONDS)
    while True:
        await request(port, "POST", f"{worker}/claim", {"key": worker, "wait_seconds": wait})
        wait = LONGEST_WAIT_SECONDS


async def _share_of_a_core(port: int, pid: int) -> float:
    """What all workers cost the service while they wait."""
    names = [f"idle{number}" for number in range(WORKERS)]
    for name in names:
        await request(port, "PUT", name, {"name": name})
    waiting = [asyncio.create_task(_claim_for_ever(port, name)) for name in names]
    # The first claims come all at once.
    await asyncio.sleep(_WARM_UP_SECONDS)
    process = psutil.Process(pid)
    before, began_at = sum(process.cpu_times()[:2]), time.monotonic()
    await asyncio.sleep(_MEASURED_SECONDS)
    share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began_at)
    for task in waiting:
        assert not task.done(), task
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return share


async def _claims(port: int, database: Database) -> list[float]:
    """Milliseconds from a task that is stored to the answer that a waiting worker has."""
    taken = []
    await request(port, "PUT", "quick", {"name": "quick"})
    for number in range(TASKS + 1):
        body = {"key": str(number), "wait_seconds": LONGEST_WAIT_SECONDS}
        claim = asyncio.create_task(request(port, "POST", "quick/claim", body))
        # Not in step with the interval of the service.
        await asyncio.sleep(_PAUSE_SECONDS + random.uniform(0, 0.1))
        with database.begin() as tx:
            offer(tx, _TABLE, [planned(f"f{number}")], utc_now())
        began_at = time.perf_counter()
        assert (await claim)["assignment"] is not None
        taken.append((time.perf_counter() - began_at) * 1000)
    # The first one opens the catalog.
    return taken[1:]


def measured(database: Database, url: str, folder: Path) -> tuple[Sequence[float], float]:
    """The times of claims, and the share of a core."""
    table_of(lake_in(folder / "lake"), files=0)
    with database.begin() as tx:
        seen(tx, _TABLE)
    port = free_port()
    environment = {"ARCTIC_DATABASE_URL": url, "ARCTIC_LAKE": str(folder / "lake")}
    # Of this benchmark's own folder, if there is one.
    environment["DAGSTER_HOME"] = os.environ.get("DAGSTER_HOME", "")
    service = service_process.start(port, environment)
    try:
        assert service.pid is not None
        claims = asyncio.run(_claims(port, database))
        return claims, asyncio.run(_share_of_a_core(port, service.pid))
    finally:
        service.kill()
        service.join()
