"""An open page that costs much, or does not end, keeps no other from being brought up to date."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from arctic_orchestration.service.pages import live
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


class Pages:
    """Two open pages of a database that changes all the time."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live = live.LivePages(database)
        changes = itertools.count()
        monkeypatch.setattr(self.live, "_fingerprint", lambda: (next(changes),))
        monkeypatch.setattr(live, "_POLL_SECONDS", 0.01)
        self.seen: dict[str, list[str]] = {"/fine": [], "/slow": []}
        self.is_slow, self.goes_on = False, asyncio.Event()

    async def fine(self, request: Request) -> Response:
        return HTMLResponse(f"fine {len(self.seen['/fine'])}")

    @asynccontextmanager
    async def opened(self, slow: live.Render) -> AsyncIterator[None]:
        async def view(path: str, render: live.Render) -> None:
            scope = {"type": "http", "path": path, "query_string": b"", "headers": []}
            request = Request({**scope, "method": "GET", "server": ("localhost", 80)})
            page = live._OpenPage(request=request, render=render, html="", rendered_at=0, cost=1)
            changes: Any = self.live._changes((path,), page)
            async for event in changes:
                self.seen[path].append(event.data)

        tasks = [
            asyncio.create_task(view("/fine", self.fine)),
            asyncio.create_task(view("/slow", slow)),
        ]
        try:
            await self.until(lambda: len(self.seen["/fine"]) > 2 and len(self.seen["/slow"]) > 1)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await asyncio.sleep(0.01)

    async def goes_on_by(self, updates: int) -> None:
        before = len(self.seen["/fine"])
        await self.until(lambda: len(self.seen["/fine"]) >= before + updates)


def test_a_page_of_thousands_of_statements_delays_itself_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RATE", 1_000.0)

    async def opened() -> None:
        pages = Pages(database, monkeypatch)
        numbers = itertools.count()

        async def slow(request: Request) -> Response:
            if pages.is_slow:
                for _ in range(1_000_000):
                    live._count(None, None, "select 1")
            return HTMLResponse(f"slow {next(numbers)}")

        async with pages.opened(slow):
            pages.is_slow = True
            await pages.goes_on_by(3)
            rendered = len(pages.seen["/slow"])
            await pages.goes_on_by(20)
            assert len(pages.seen["/slow"]) <= rendered + 1

    asyncio.run(opened())


def test_a_page_that_hangs_says_so_and_comes_when_it_is_made(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RATE", 1_000.0)
    monkeypatch.setattr(live, "_RENDER_SECONDS", 0.2)
    monkeypatch.setattr(live, "_LONGEST_REST_SECONDS", 0.1)

    async def opened() -> None:
        pages = Pages(database, monkeypatch)
        begun: list[int] = []

        async def slow(request: Request) -> Response:
            begun.append(len(begun))
            made = HTMLResponse(f"slow {begun[-1]}")
            if pages.is_slow:
                await pages.goes_on.wait()
            return made

        async with pages.opened(slow):
            pages.is_slow = True
            await pages.until(lambda: "takes longer than 0.2 s" in pages.seen["/slow"][-1])
            before = len(begun)
            await pages.goes_on_by(5)
            assert "takes longer" in pages.seen["/slow"][-1]
            assert len(begun) == before
            pages.is_slow = False
            pages.goes_on.set()
            await pages.until(lambda: pages.seen["/slow"][-1].startswith("slow "))

    asyncio.run(opened())
