"""Over real HTTP, and in the background."""

import html
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from arctic_orchestration.notifications.messages import AppriseSender, Message, SendFailed
from arctic_orchestration.notifications.notifier import Notifier
from arctic_orchestration.notifications.outbox import Notice, StoredNotice
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.schedules.notifications.post import Postbox, news
from arctic_orchestration_tests.schedules.simulated import at


class _Mailbox(ThreadingHTTPServer):
    """An HTTP server on loopback that keeps what is posted to it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.status = 200
        #: the characters of a text that it takes
        self.longest = 1_000_000
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Mailbox

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, json.loads(body)))
        is_long = len(self.server.posted[-1][1].get("text", "")) > self.server.longest
        self.send_response(400 if is_long else self.server.status)
        self.send_header("Location", "/moved")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def mailbox() -> Iterator[_Mailbox]:
    with _Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_apprise_delivers_over_http(
    database: Database,
    tmp_path: Path,
    write: Callable[..., None],
    rows: Callable[[], list[Any]],
    mailbox: _Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A URL with a variable; a refusal is a failed attempt with apprise's reason."""
    monkeypatch.setenv("MAILBOX_FOR_TESTS", mailbox.address)
    path = tmp_path / "n.yaml"
    path.write_text(yaml.safe_dump({"channels": [{"url": "json://${MAILBOX_FOR_TESTS}/hook"}]}))
    notifier = Notifier(
        database, cluster="default", location="here", path=path, clock=lambda: at(0)
    )
    mailbox.status = 500
    write(news(1, Notice.LAUNCH_FAILED, reason="partition 'x' is unknown"))
    assert notifier.send_due(at(1)) == 0
    ((attempts, _, problem),) = rows()
    assert attempts == 1
    assert "500" in problem
    assert mailbox.address not in problem, "what the environment holds stays there"
    mailbox.status = 200
    assert notifier.send_due(at(61)) == 1
    path_posted, body = mailbox.posted[-1]
    assert path_posted == "/hook"
    assert (body["title"], body["type"]) == ("s1: launch failed", "failure")
    assert body["message"].startswith("partition 'x' is unknown\n")


def _failed(reason: str) -> Message:
    notice = StoredNotice(
        id=1, at=at(0), event=Notice.RUN_FAILED, schedule="s1", reason=reason, job_id=None,
        tags={}, attempts=0, sent_to={},
    )  # fmt: skip
    return Message(notice=notice)


def test_a_service_that_sends_html_shows_the_whole_text(mailbox: _Mailbox) -> None:
    """As mail does: unescaped, a class or a placeholder would vanish, and lines would join."""
    sender = AppriseSender(f"json://{mailbox.address}/hook?format=html")
    sender.send(_failed("got <class 'int'>"), "default/here")
    shown = html.unescape(mailbox.posted[0][1]["message"]).replace("\xa0", " ")
    assert shown.startswith("got <class 'int'><br/><br/>at ")


def test_a_text_that_the_service_refused_as_too_long_is_cut(
    database: Database, tmp_path: Path, write: Callable[..., None], mailbox: _Mailbox
) -> None:
    """At the next attempt; each one would be refused, and the notice given up."""
    path = tmp_path / "n.yaml"
    url = f"mmost://{mailbox.address}/abcdefghijklmnopqrstuvwxyz"
    path.write_text(yaml.safe_dump({"channels": [{"url": url}]}))
    notifier = Notifier(
        database, cluster="default", location="here", path=path, clock=lambda: at(0)
    )
    mailbox.longest = 4_000
    write(news(1, reason=f"5 partitions are given up: {'x' * 5_000}"))
    assert notifier.send_due(at(1)) == 0
    assert notifier.send_due(at(61)) == 1
    assert "s1: run failed" in mailbox.posted[-1][1]["text"]
    assert "5 partitions are given up: xxx" in mailbox.posted[-1][1]["text"]


def test_a_redirect_is_no_success(mailbox: _Mailbox) -> None:
    """Followed, it would be a GET without the message, which a server may answer with 200."""
    mailbox.status = 301
    sender = AppriseSender(f"json://{mailbox.address}/hook")
    with pytest.raises(SendFailed, match="error=301"):
        sender.send(_failed("lost"), "default/here")


def test_the_background_thread_sends_once_it_is_woken(
    database: Database, tmp_path: Path, write: Callable[..., None]
) -> None:
    """Waking returns at once; an error in a round does not end the thread."""
    sent = threading.Event()
    rounds: list[int] = []

    class Ringing(Postbox):
        def send(self, message: Message, place: str) -> None:
            sent.set()

    failed = threading.Event()

    def clock() -> datetime:
        rounds.append(1)
        if len(rounds) == 1:
            failed.set()
            raise RuntimeError("the first round goes wrong")
        return at(1)

    path = tmp_path / "n.yaml"
    path.write_text("channels: [{url: json://a}]")
    notifier = Notifier(
        database,
        cluster="default",
        location="here",
        path=path,
        clock=clock,
        reach=lambda channel: Ringing(),
    )
    write(news())
    notifier.wake()
    assert failed.wait(30)
    notifier.wake()
    assert sent.wait(30)
    notifier.close()
    assert notifier._thread is not None
    notifier._thread.join(PATIENCE_SECONDS)
    assert not notifier._thread.is_alive()
