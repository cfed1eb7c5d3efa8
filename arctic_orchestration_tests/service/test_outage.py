"""The service while its Postgres server is away: state database and Dagster's storage at once."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from typing import Any

import dagster as dg
import httpx2
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from arctic_orchestration.service import app
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.pages import live
from arctic_orchestration.service.pages.rendering import API
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.freshness.outage import Outage, outage
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.served import listening
from arctic_orchestration_tests.service.test_events import keys_of
from arctic_orchestration_tests.service.test_live_pages import EVENTS, schedule
from arctic_orchestration_tests.service.test_pages import HTML

__all__ = ["outage"]

#: what an answer may take: the database refuses connections, which costs nothing
_FEW_SECONDS = 5


def _paths(routers: Iterable[APIRouter]) -> list[str]:
    """Those without parameters that can be read."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return [one.path for one in routes if "GET" in (one.methods or ()) and "{" not in one.path]


#: with what their answers are to be
_READ = {
    **{(f"{API}{path}", "*/*"): "application/problem+json" for path in _paths(app.ROUTERS)},
    **{(path, HTML["Accept"]): "text/html; charset=utf-8" for path in _paths(app.PAGES[1:])},
}


@pytest.fixture
def state(database: Database) -> Database:
    """What the outage is of."""
    return database


class View:
    """A page that is open in a browser, and what it has received."""

    def __init__(self, url: str) -> None:
        self.received = ""
        self._url = url
        self.thread = threading.Thread(target=self._view, daemon=True)
        self.thread.start()

    def shows(self, text: str) -> bool:
        """Whether the last version of the page has the text."""
        return text in self.received.rpartition("event: page")[2]

    def _view(self) -> None:
        # The service ends before it.
        with (
            suppress(httpx2.RemoteProtocolError),
            httpx2.stream(
                "GET",
                self._url,
                headers=EVENTS,
                verify=False,
                trust_env=False,
                timeout=PATIENCE_SECONDS,
            ) as answer,
        ):
            for text in answer.iter_text():
                self.received += text


class Announcers:
    """Announce an arrival after the other; what was not confirmed is announced once more."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.confirmed: dict[str, str] = {}
        self.refused: list[str] = []
        self._numbers = count()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._announce_all) for _ in range(2)]

    def __enter__(self) -> "Announcers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def announce(self, key: str) -> httpx2.Response:
        body = {"arrivals": [{"asset": "raw/a", "partition": key}], "force": True}
        headers = {"Idempotency-Key": key}
        return httpx2.post(
            f"{self.url}/api/v1/events",
            json=body,
            headers=headers,
            verify=False,
            trust_env=False,
            timeout=PATIENCE_SECONDS,
        )

    def _announce_all(self) -> None:
        # Few: each of them opens an instance of Dagster.
        while not self._ended.wait(0.2):
            with self._lock:
                key = f"p{next(self._numbers)}"
            answer = self.announce(key)
            with self._lock:
                if answer.is_success:
                    self.confirmed[key] = answer.json()["id"]
                else:
                    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE, answer.text
                    self.refused.append(key)


@pytest.fixture
def url(
    database: Database,
    instance: dg.DagsterInstance,
    world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """A service, whose pages look for changes often."""
    world([schedule()])
    monkeypatch.setattr(live, "_POLL_SECONDS", 0.1)
    monkeypatch.setattr(live, "RATE", 1_000.0)
    made = app.create_app(Settings.from_environment(), database, AccessRules())
    with listening(made) as address:
        yield address


def wrong_answers(url: str) -> dict[str, Any]:
    """What is no 503 in words, or late, by its path."""
    found: dict[str, Any] = {}
    for (path, accepted), media_type in _READ.items():
        began_at = time.monotonic()
        answer = httpx2.get(
            f"{url}{path}", headers={"Accept": accepted}, verify=False, trust_env=False
        )
        took = time.monotonic() - began_at
        read = (answer.status_code, answer.headers["content-type"], answer.headers["retry-after"])
        is_said = "A database does not answer" in answer.text
        if read != (503, media_type, "5") or not is_said or took > _FEW_SECONDS:
            found[path] = (*read, took, answer.text[:300])
    return found


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_without_the_database_everything_says_so_and_nothing_is_lost(
    url: str, outage: Outage, instance: dg.DagsterInstance
) -> None:
    """Each route and page is 503 at once; pages and announcements go on afterwards.

    An arrival whose request was refused may have been stored: the same key makes one of it.
    """
    view = View(f"{url}/schedules")
    until(lambda: view.shows("raw/a"), "the page is open")
    with Announcers(url) as announcers:
        until(lambda: len(announcers.confirmed) > 2, "arrivals are announced")
        with outage():
            until(lambda: len(announcers.refused) > 2, "arrivals are refused")
            assert wrong_answers(url) == {}
            assert (
                httpx2.get(f"{url}/healthz", verify=False, trust_env=False).status_code
                == HTTPStatus.OK
            )
            until(lambda: view.shows("503 Service Unavailable"), "the page says so")
            assert view.thread.is_alive()
        confirmed = len(announcers.confirmed)
        until(lambda: len(announcers.confirmed) > confirmed + 2, "arrivals go on")
        until(lambda: view.shows("raw/a"), "the page shows its content again")
    for key in announcers.refused:
        assert announcers.announce(key).is_success
    for key, id in announcers.confirmed.items():
        assert announcers.announce(key).json()["id"] == id
    expected = sorted([*announcers.confirmed, *announcers.refused])
    assert sorted(str(partition) for _, partition in keys_of(instance)) == expected
