"""The service on a port of loopback, behind a proxy that loses, doubles and refuses requests."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import uvicorn

from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until


class Fault(StrEnum):
    """What happens to a request."""

    #: it does not arrive
    DROPPED = "dropped"
    #: it is carried out, and its answer is cut off
    UNANSWERED = "unanswered"
    #: it is carried out twice; the second answer is given
    DOUBLED = "doubled"
    #: it is answered with 503
    REFUSED = "refused"
    #: a proxy redirects it to a login, without a body
    REDIRECTED = "redirected"


#: the answers that are not of the service, which gets no request
_OF_PROXY = {Fault.REFUSED: 503, Fault.REDIRECTED: 302}


@dataclass(frozen=True)
class Seen:
    """A request, and the status of its answer; 0: none."""

    method: str
    path: str
    body: Any
    status: int


@dataclass
class Proxy:
    """Stands before the application; has all requests of workers that came to an end."""

    app: Any
    seen: list[Seen] = field(default_factory=list)
    #: by the last word of a path, what happens to the next requests with it
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    #: called with the last word of a path before a request is carried out
    on_request: Callable[[str], None] = lambda word: None

    def requests(self, word: str) -> list[Seen]:
        """Those whose path ends with a word, or which have that method."""
        return [one for one in list(self.seen) if word in (one.path.rpartition("/")[2], one.method)]

    def waits_for(self, word: str, times: int = 1) -> None:
        """Waits until there are so many of them."""
        until(lambda: len(self.requests(word)) >= times, f"{times} requests: {word}")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        word = scope["path"].rpartition("/")[2]
        await asyncio.to_thread(self.on_request, word)
        names = word if self.faults.get(word) else scope["method"]
        fault = self.faults[names].pop(0) if self.faults.get(names) else None
        status = 0
        times = 2 if fault is Fault.DOUBLED else 0 if fault in (Fault.DROPPED, *_OF_PROXY) else 1

        async def hear(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            kept.append(message)

        kept: list[MutableMapping[str, Any]] = []
        for _ in range(times):
            kept.clear()
            first = [{"type": "http.request", "body": body, "more_body": False}]

            async def again(first: list[Any] = first) -> Any:
                return first.pop() if first else await receive()

            await self.app({**scope, "state": {}}, again, hear)
        if scope["path"].startswith("/api/v1/workers"):
            answered = status if times and not _cut(fault) else 0
            answered = _OF_PROXY.get(fault, answered) if fault else answered
            document = json.loads(body) if body else None
            self.seen.append(Seen(scope["method"], scope["path"], document, answered))
        if fault in _OF_PROXY:
            headers = [(b"retry-after", b"1"), (b"content-length", b"0")]
            refusal = {"status": _OF_PROXY[fault], "headers": headers}
            await send({"type": "http.response.start", **refusal})
            await send({"type": "http.response.body", "body": b""})
            return
        if _cut(fault):
            # Less than it promises: the connection is closed.
            headers = [(b"content-length", b"9")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            raise ConnectionError("the answer is cut off")
        for message in kept:
            await send(message)


def _cut(fault: Fault | None) -> bool:
    return fault in (Fault.DROPPED, Fault.UNANSWERED)


@dataclass(frozen=True)
class Served:
    """A running service."""

    address: str
    proxy: Proxy


@contextmanager
def served(database: Database, lake: Path, **rules: Any) -> Iterator[Served]:
    """The service of a state database and an embedded catalog, on a free port."""
    settings = Settings.from_environment({"ARCTIC_LAKE": str(lake)})
    proxy = Proxy(create_app(settings, database, AccessRules(**rules)))
    config = uvicorn.Config(proxy, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the service listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", proxy)
    finally:
        server.force_exit = server.should_exit = True
        thread.join(PATIENCE_SECONDS)
