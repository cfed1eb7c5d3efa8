"""Pages that stay open: what they cost, and what they show."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import httpx2
import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service.pages import live
from arctic_orchestration.service.pages.changes import fingerprint
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.served import serving
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.waiting.planted import plant

EVENTS = {"Accept": "text/event-stream"}


def schedule(name: str = "a") -> Schedule:
    trigger = on.partitions("raw/a", count=2)
    return Schedule(name=name, target="rollup", trigger=trigger, enabled=True)


class Viewers:
    """Open pages, and what each has received."""

    def __init__(self, number: int) -> None:
        self.received = [""] * number

    def all_have(self, text: str) -> bool:
        return all(text in received for received in self.received)


@asynccontextmanager
async def viewing(url: str, paths: Sequence[str]) -> AsyncIterator[Viewers]:
    """Opens pages; each has received its content when the block begins."""
    viewers = Viewers(len(paths))
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(
        base_url=url, timeout=PATIENCE_SECONDS, limits=limits, trust_env=False
    ) as client:

        async def view(number: int, path: str) -> None:
            async with client.stream("GET", path, headers=EVENTS) as answer:
                assert answer.status_code == 200
                async for text in answer.aiter_text():
                    viewers.received[number] += text

        tasks = [asyncio.create_task(view(number, path)) for number, path in enumerate(paths)]
        try:
            await until(lambda: viewers.all_have("event: page"))
            yield viewers
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.05)


@contextmanager
def counting(database: Database) -> Iterator[list[str]]:
    """Collects the queries of a service: those of its threads."""
    executed: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        of_service = threading.current_thread().name.startswith("AnyIO")
        if of_service and not statement.startswith(("BEGIN", "SAVEPOINT", "RELEASE")):
            executed.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield executed
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)


def test_two_hundred_open_pages_cost_a_query_in_two_seconds(
    database: Database, world: Callable[..., World]
) -> None:
    """While nothing changes; without the poller each would have asked."""
    world([schedule()])

    polls = 4

    async def seconds_of_polls(url: str) -> float:
        async with viewing(url, ["/jobs"] * 100 + ["/schedules"] * 100):
            await asyncio.sleep(2 * live._POLL_SECONDS)
            with counting(database) as executed:
                await until(lambda: bool(executed))
                begun = time.monotonic()
                await until(lambda: len(executed) > polls)
                return time.monotonic() - begun

    with serving(database) as url:
        took = asyncio.run(seconds_of_polls(url))
    assert took > (polls - 1) * live._POLL_SECONDS


def test_statements_to_dagster_count_too(instance: DagsterInstance) -> None:
    """Pages of the run queue read its storage; their transactions do not count."""
    with live._counted() as executed:
        assert instance.get_runs() == []
    assert [text for text in executed if "runs" in text]
    with live._counted() as executed:
        pass
    assert executed == []


def test_changes_all_the_time_cost_no_more_than_the_rate(
    database: Database, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred different pages, ten changes a second; forty times as fast as the service."""
    faster = 40
    monkeypatch.setattr(live, "RATE", live.RATE * faster)
    monkeypatch.setattr(live, "_POLL_SECONDS", live._POLL_SECONDS / faster)
    here, ended = world([schedule()]), threading.Event()

    def change() -> None:
        second = 1
        while not ended.wait(0.1):
            here.feed.arrive("raw/a", f"p{second}")
            here.tick(second)
            second += 1

    async def counted(url: str) -> tuple[int, float]:
        async with viewing(url, [f"/jobs?limit={number}" for number in range(1, 201)]) as viewers:
            changing = threading.Thread(target=change)
            changing.start()
            before = [len(received) for received in viewers.received]
            try:
                begin = time.monotonic()
                with counting(database) as executed:
                    await asyncio.sleep(4)
                span = time.monotonic() - begin
            finally:
                ended.set()
                changing.join()
            grown = [len(text) > size for text, size in zip(viewers.received, before, strict=True)]
            # Some were brought up to date, as many as the rate allows.
            assert 10 < sum(grown) < 200
            return len(executed), span

    with serving(database) as url:
        executed, span = asyncio.run(counted(url))
    assert executed <= live.BURST + faster * span


def test_a_page_that_is_open_shows_a_change(
    database: Database, world: Callable[..., World]
) -> None:
    """Of another process; a page that does not change is not sent again."""
    here = world([schedule()])

    async def seen(url: str) -> None:
        async with viewing(url, ["/jobs", "/jobs", "/consumers"]) as viewers:
            assert "No jobs" in viewers.received[0]
            here.feed.arrive("raw/a", "monday")
            here.tick(1)
            await until(lambda: all("waiting_trigger" in one for one in viewers.received[:2]))
            assert viewers.received[2].count("event: page") == 1

    with serving(database) as url:
        asyncio.run(seen(url))


def test_each_feature_changes_the_fingerprint(database: Database) -> None:
    """What pages show of it is brought up to date."""
    with database.read() as tx:
        before = fingerprint(tx)
        assert fingerprint(tx) == before
    plant(database)
    with database.read() as tx:
        after = fingerprint(tx)
    # Neither commits of compaction, nor workers, are planted.
    assert sum(one != other for one, other in zip(before, after, strict=True)) >= 14


def test_nobody_sees_more_of_an_open_page_than_of_the_page(
    api: MakeApi, database: Database
) -> None:
    """The scope is checked before the first event; a refusal is a problem, not a stream."""
    text = token(database, "jobs:read")
    client = api(token=text)
    client.base_url = "http://localhost:3001"
    for path, status in (("/schedules", 403), ("/jobs/nowhere", 404), ("/jobs?limit=0", 422)):
        assert client.get(path, headers=EVENTS).status_code == status, path
    assert api().get("http://localhost:3001/jobs", headers=EVENTS).status_code == 401


def test_a_page_says_that_the_token_of_its_viewer_was_revoked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the first token, which closes loopback."""
    monkeypatch.setattr(live, "_OLDEST_SECONDS", 0.1)

    async def seen(url: str) -> None:
        async with viewing(url, ["/jobs"]) as viewers:
            token(database, "jobs:read", name="first")
            await until(lambda: "401 Unauthorized" in viewers.received[0])

    with serving(database) as url:
        asyncio.run(seen(url))


def test_a_page_says_that_the_database_does_not_answer(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows its content again when it does; meanwhile it is asked as often as before."""
    asked = []

    @contextmanager
    def away(_: Database) -> Iterator[sa.Connection]:
        asked.append(time.monotonic())
        raise DatabaseUnavailable("no answer")
        yield

    async def seen(url: str) -> None:
        async with viewing(url, ["/jobs"]) as viewers:
            with monkeypatch.context() as patched:
                patched.setattr(Database, "read", away)
                await until(lambda: "503 Service Unavailable" in viewers.received[0])
                begin = time.monotonic()
                await until(lambda: len(asked) >= 4)
                # Two polls and two renderings.
                assert time.monotonic() - begin >= live._POLL_SECONDS / 2
            count = viewers.received[0].count("No jobs")
            await until(lambda: viewers.received[0].count("No jobs") > count)

    with serving(database) as url:
        asyncio.run(seen(url))
