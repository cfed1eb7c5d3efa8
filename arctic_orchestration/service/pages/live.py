"""Keeps open pages up to date: one poller a process, however many pages are open.

A page that is open is a stream of server-sent events at its own URL. Viewers of the same URL with
the same rights share what is rendered. The poller asks the database with one statement whether
something has changed, and then renders the open pages, the longest unchanged first. Its statements
are paced: at most ``BURST`` at once, and one a second over time; those to Dagster's storage count,
too, and a second of rendering counts as 20. So many pages, or a database that changes all the time,
make pages older and not the database slower. What a page costs beyond ``BURST`` delays that page
alone, by five minutes at most, and a page that is not rendered in time is left until it is.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import sqlalchemy as sa
from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from arctic_orchestration.service.pages.changes import fingerprint
from arctic_orchestration.service.problems import answer, problem_of
from arctic_orchestration.state.database import Database

Render = Callable[[Request], Awaitable[Response]]
#: statements that may be executed at once after a time without any
BURST = 60.0
#: statements a second
RATE = 1.0
#: between two checks for changes; it leaves half of the rate to pages
_POLL_SECONDS = 2.0
#: moments that have come and processes that have ended change a page, and not the database
_OLDEST_SECONDS = 60.0
#: a viewer that takes nothing for so long has gone
_SEND_SECONDS = 30.0
#: a page that takes longer says so, and the others go on
_RENDER_SECONDS = 20.0
#: how long the cost of a page may delay it
_LONGEST_REST_SECONDS = 300.0
#: what a first rendering is expected to cost
_STATEMENTS = 20
#: what a second of rendering counts as, such as that of a run queue with many runs
_STATEMENTS_A_SECOND = 20
#: what decides what a caller may see
_CREDENTIALS = ("authorization", "remote-user", "remote-groups")
_NO_QUERIES = ("BEGIN", "SAVEPOINT", "RELEASE")
_log = logging.getLogger(__name__)
_executed: ContextVar[list[str] | None] = ContextVar("executed", default=None)


# Compared by identity.
@dataclass(eq=False, kw_only=True)
class _OpenPage:
    """A page that is open, for all who may see the same of it."""

    request: Request
    render: Render
    viewers: set[asyncio.Event] = field(default_factory=set)
    html: str
    rendered_at: float
    cost: int = _STATEMENTS
    #: whether something has changed since
    is_behind: bool = False
    #: not rendered before this moment
    due_at: float = 0.0
    #: a rendering that took too long, and goes on
    rendering: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        rests = self.due_at > now or (self.rendering is not None and not self.rendering.done())
        return self.is_behind and not rests


class LivePages:
    """The open pages of one process.

    Args:
        database: the state database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pages: dict[tuple[Any, ...], _OpenPage] = {}
        self._poller: asyncio.Task[None] | None = None

    async def stream(self, request: Request, render: Render) -> Response:
        """Answers with the changes of a page; or with what the page is, if it has no content.

        Errors:
            ArcticError: the caller may not see it, or it does not exist.
        """
        # Each viewer is authorized: others may see more.
        made = await render(request)
        if made.status_code != HTTPStatus.OK:
            return made
        now = time.monotonic()
        page = _OpenPage(request=request, render=render, html=_text(made), rendered_at=now)
        return EventSourceResponse(self._changes(_key(request), page), send_timeout=_SEND_SECONDS)

    async def _changes(
        self, key: tuple[Any, ...], page: _OpenPage
    ) -> AsyncIterator[ServerSentEvent]:
        page = self._pages.setdefault(key, page)
        changed, sent = asyncio.Event(), None
        page.viewers.add(changed)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            while True:
                if page.html != sent:
                    sent = page.html
                    yield ServerSentEvent(sent, event="page")
                await changed.wait()
                changed.clear()
        finally:
            page.viewers.discard(changed)
            if not page.viewers:
                self._pages.pop(key, None)

    async def _poll(self) -> None:
        """Renders pages after changes, until none is open."""
        allowance, known = _Allowance(), None
        while self._pages:
            with _counted() as executed:
                found = await self._check()
            allowance.spend(len(executed))
            now = time.monotonic()
            changed = found is None or found != known
            known = found
            for page in self._pages.values():
                page.is_behind |= changed or page.rendered_at < now - _OLDEST_SECONDS
            due = [page for page in self._pages.values() if page.is_due(now)]
            for page in sorted(due, key=lambda one: one.rendered_at):
                await allowance.reaches(page.cost)
                if page.viewers:
                    began_at = time.monotonic()
                    with _counted() as executed:
                        await _refresh_in_time(page)
                    now = time.monotonic()
                    cost = max(len(executed), int((now - began_at) * _STATEMENTS_A_SECOND))
                    page.cost = min(cost, int(BURST))
                    page.due_at = now + min((cost - page.cost) / RATE, _LONGEST_REST_SECONDS)
                    allowance.spend(page.cost)
            await asyncio.sleep(_POLL_SECONDS)

    async def _check(self) -> tuple[Any, ...] | None:
        """Returns what the database is now; None: it does not answer, which pages say."""
        try:
            return await run_in_threadpool(self._fingerprint)
        except Exception as error:
            _log.warning("the state database cannot be polled", exc_info=error)
            return None

    def _fingerprint(self) -> tuple[Any, ...]:
        with self._database.read() as tx:
            return fingerprint(tx)


class _Allowance:
    """How many statements may be executed now; it grows with time."""

    def __init__(self) -> None:
        self._left = BURST
        self._at = time.monotonic()

    def spend(self, statements: int) -> None:
        """Notes executed statements."""
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._at) * RATE) - statements
        self._at = now

    async def reaches(self, statements: int) -> None:
        """Returns when so many may be executed."""
        self.spend(0)
        if self._left < statements:
            await asyncio.sleep((statements - self._left) / RATE)


async def _refresh_in_time(page: _OpenPage) -> None:
    page.rendering = asyncio.create_task(_refresh(page))
    _, late = await asyncio.wait([page.rendering], timeout=_RENDER_SECONDS)
    if late:
        detail = f"This page takes longer than {_RENDER_SECONDS:g} s. It comes when it is made."
        _show(page, answer(page.request, HTTPStatus.SERVICE_UNAVAILABLE, detail))


async def _refresh(page: _OpenPage) -> None:
    page.rendered_at, page.is_behind = time.monotonic(), False
    try:
        made = await page.render(page.request)
    except Exception as error:
        made = await problem_of(page.request, error)
    _show(page, made)


def _show(page: _OpenPage, made: Response) -> None:
    text = _text(made)
    if text != page.html:
        page.html = text
        for viewer in page.viewers:
            viewer.set()


def _text(answer: Response) -> str:
    return bytes(answer.body).decode()


def _key(request: Request) -> tuple[Any, ...]:
    """Returns what decides what a request is answered with."""
    client = request.client.host if request.client else ""
    credentials = (tuple(request.headers.getlist(name)) for name in _CREDENTIALS)
    return (request.url.path, request.url.query, client, *credentials)


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Collects the statements that are executed for what the block awaits."""
    executed: list[str] = []
    token = _executed.set(executed)
    try:
        yield executed
    finally:
        _executed.reset(token)


def _count(_: object, __: object, statement: str, *___: object) -> None:
    executed = _executed.get()
    if executed is not None and not statement.startswith(_NO_QUERIES):
        executed.append(statement)


# Of all engines: pages of the run queue read Dagster's storage.
sa.event.listen(sa.Engine, "before_cursor_execute", _count)
