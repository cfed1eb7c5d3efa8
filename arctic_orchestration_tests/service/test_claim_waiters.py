"""Claims that wait, without a service."""

import asyncio
import threading

from arctic_orchestration.service.claim_waiters import ClaimWaiters
from arctic_orchestration.state.database import Database


def test_one_thread_watches_however_waiters_come_and_go(database: Database) -> None:
    """A thread that has found no waiter ends, though one comes just then and starts another."""
    waiters = ClaimWaiters(database)
    goes_on = waiters._goes_on
    ended = threading.Event()

    async def wait() -> None:
        await waiters.wait("w", [], 0.2)
        # The thread looks at most an interval later.
        await asyncio.to_thread(ended.wait, 60)
        waiting = asyncio.create_task(waiters.wait("w", [], 60))
        while waiters._watcher is None:
            await asyncio.sleep(0)
        may_return.set()
        await asyncio.to_thread(first.join, 60)
        assert not first.is_alive()
        assert waiters._watcher.is_alive()
        waiting.cancel()

    may_return, first = threading.Event(), threading.Thread()

    def looked() -> bool:
        nonlocal first
        found = goes_on()
        if not found and not ended.is_set():
            first = threading.current_thread()
            ended.set()
            assert may_return.wait(60)
        return found

    waiters._goes_on = looked  # type: ignore[method-assign]
    asyncio.run(wait())
