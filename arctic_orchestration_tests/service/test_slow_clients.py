"""Clients that send or take little by little, or too much: they hold nobody up, and are cut off."""

import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from arctic_orchestration.service import bodies, connections
from arctic_orchestration.service.pages import live
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.served import listening, serving
from arctic_orchestration_tests.service.test_live_pages import schedule

#: the limits of these tests
_SHORT = 0.5
#: nobody reaches it
_LONG = 3_600.0
_HUGE = 100_000_000
_HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
#: which a client sends byte by byte: a head, a body
_TRICKLES = {
    "head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 9_999,
    "body": b"POST /api/v1/schedules HTTP/1.1\r\n" + _HEAD + b"Content-Length: 9999\r\n\r\n",
}


@pytest.fixture
def backend() -> str:
    """Connections are the same on both."""
    return "sqlite"


@pytest.fixture
def url(
    database: Database, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A service with no limit of time that a test does not set."""
    world([schedule()])
    for module, name in (
        (connections, "HEAD_SECONDS"), (connections, "TAKEN_SECONDS"), (bodies, "LONGEST_SECONDS"),
        (live, "_SEND_SECONDS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, _LONG)
    with serving(database) as address:
        yield address


def connected(url: str) -> socket.socket:
    """A connection that takes as little as a system lets it."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", urlsplit(url).port))
    made.settimeout(PATIENCE_SECONDS)
    return made


def received(connection: socket.socket) -> bytes:
    """What is answered until the connection ends."""
    parts = b""
    with suppress(ConnectionError):
        while part := connection.recv(1_000_000):
            parts += part
    return parts


def trickle(connection: socket.socket, text: bytes, ended: threading.Event) -> None:
    """Sends the head of a request with a body at once, and all else byte by byte."""
    head, _, _ = text.rpartition(b"\r\n\r\n")
    with suppress(OSError):
        connection.sendall(head + b"\r\n\r\n" if head else text[:10])
        while not ended.wait(0.02):
            connection.sendall(b"x")


@pytest.mark.parametrize(
    ("what", "module", "limit", "answer"),
    [
        ("head", connections, "HEAD_SECONDS", b""),
        ("body", bodies, "LONGEST_SECONDS", b"HTTP/1.1 408 Request Timeout"),
    ],
)
def test_what_is_sent_byte_by_byte_is_cut_off(
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    module: object,
    limit: str,
    answer: bytes,
) -> None:
    """However often a byte comes. A page that is open for longer than that goes on."""
    monkeypatch.setattr(module, limit, _SHORT)
    ended = threading.Event()
    with connected(url) as slow, connected(url) as page:
        page.sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        assert page.recv(100).startswith(b"HTTP/1.1 200 OK")
        thread = threading.Thread(target=trickle, args=(slow, _TRICKLES[what], ended))
        thread.start()
        try:
            assert slow.recv(1000).partition(b"\r\n")[0] == answer
        finally:
            ended.set()
            thread.join()
        page.settimeout(_SHORT)
        with suppress(TimeoutError):
            while text := page.recv(100_000):
                pass
            raise AssertionError(f"the page was cut off: {text!r}")


def test_who_sends_nothing_is_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after an answer and the beginning of another request."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", _SHORT)
    with connected(url) as silent, connected(url) as later:
        later.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = HTTPResponse(later)
        response.begin()
        assert (response.status, bool(response.read())) == (200, True)
        later.sendall(b"GET")
        assert received(silent) == received(later) == b""


def test_who_wants_the_head_gets_no_body(url: str) -> None:
    """As balancers ask; what comes next on the connection is the next answer."""
    with connected(url) as client:
        heads = []
        for path in (b"/healthz", b"/schedules", b"/nothing"):
            for method in (b"HEAD", b"GET"):
                client.sendall(method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
                response = HTTPResponse(client, method=method.decode())
                response.begin()
                body = response.read()
                assert bool(body) == (method == b"GET")
                heads.append((response.status, response.getheader("content-type")))
                assert response.getheader("content-length")
        assert heads[0::2] == heads[1::2]
        assert [status for status, _ in heads[0::2]] == [200, 200, 404]


def test_who_takes_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of it; one that takes it gets all."""
    monkeypatch.setattr(connections, "TAKEN_SECONDS", _SHORT)
    parts, ended = [b"x" * 100_000] * 300, []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            ended.append(scope["path"])

    with listening(app) as url, connected(url) as never:
        never.sendall(b"GET /never HTTP/1.0\r\n\r\n")
        answer = httpx2.get(f"{url}/taken", verify=False, trust_env=False, timeout=PATIENCE_SECONDS)
        assert answer.content == b"".join(parts)
        until(lambda: len(ended) == 2, "it is cut off")
        assert len(received(never)) < len(answer.content)


def test_slow_clients_hold_nobody_up(url: str) -> None:
    """More of each kind than there are threads, none of which is cut off here."""
    # It is made once, for all.
    assert httpx2.get(
        f"{url}/api/v1/openapi.json", verify=False, trust_env=False, timeout=PATIENCE_SECONDS
    ).is_success
    with ExitStack() as clients:
        for number in range(150):
            client = clients.enter_context(connected(url))
            if number % 3 == 0:
                client.sendall(_TRICKLES["head"][:40])
            elif number % 3 == 1:
                client.sendall(_TRICKLES["body"] + b"{")
            else:
                client.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for path in ("/healthz", "/schedules", "/api/v1/jobs"):
            answer = httpx2.get(
                f"{url}{path}", verify=False, trust_env=False, timeout=PATIENCE_SECONDS
            )
            assert answer.status_code == HTTPStatus.OK


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/v1/schedules", 413), ("/api/v1/events", 413), ("/api/v1/schedules/a/launch", 422)],
)
@pytest.mark.parametrize("chunked", [True, False])
def test_huge_bodies_are_not_kept(url: str, path: str, status: int, chunked: bool) -> None:
    """Of 100 MB, the limit at most: twice, in its parts and as a whole."""
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % _HUGE
    head = b"POST %s HTTP/1.1\r\n%sIdempotency-Key: k\r\n%s\r\n\r\n"
    part = b"x" * 1_000_000
    sent = b"%x\r\n%s\r\n" % (len(part), part) if chunked else part
    tracemalloc.start()
    try:
        with connected(url) as client:
            client.sendall(head % (path.encode(), _HEAD, length))
            with suppress(ConnectionError):
                for _ in range(_HUGE // len(part)):
                    client.sendall(sent)
            assert client.recv(12) == b"HTTP/1.1 %d" % status
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
