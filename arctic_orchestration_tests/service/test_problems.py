"""Errors of the API: each is a problem, and bad input is never an error of the service."""

import asyncio
import json
import threading
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from anyio import to_thread
from fastapi import Request
from starlette.testclient import TestClient

from arctic_orchestration.errors import DatabaseUnavailable, RequestRefused
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service import bodies
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(api: MakeApi, database: Database) -> TestClient:
    """An API with one schedule."""
    trigger = on.partitions("raw/a")
    World(database, [Schedule(name="a", target="rollup", trigger=trigger)]).tick(0)
    return api()


def problem(answer: Any, status: int) -> Any:
    """The problem, which has the form of RFC 9457 and the id of its request."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "errors", "request_id"}
    assert document["status"] == status
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"name": "a", "name": "b"}', 400),
        (b'{"priority": NaN}', 400),
        (b'{"priority": 1e999}', 400),
        (b'{"name": "\xff"}', 400),
        (b'{"name": "\\u0000"}', 400),
        (b'{"properties": {"a": "\\ud800"}}', 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 200 + b"1" + b"}" * 200, 400),
        (b'{"priority": ' + b"9" * 5_000 + b"}", 400),
        (b"[]", 422),
        (b"null", 422),
        (b"{}", 422),
        (b'{"trigger": {"any_of": [' + b'{"any_of": [' * 40 + b"]}" * 41 + b"}", 422),
    ],
)
def test_a_malformed_body_is_a_bad_request(client: TestClient, body: bytes, status: int) -> None:
    """And one of another form is unprocessable; both say what was expected."""
    for call in (client.post, client.put):
        path = "/schedules" if call == client.post else "/schedules/a"
        answer = call(path, content=body, headers={**JSON, "If-Match": "*"})
        assert problem(answer, status)["detail"]
    assert client.get("/schedules/a").json()["version"] == 1


def test_what_a_route_does_not_take_changes_nothing(client: TestClient) -> None:
    """A body would be a missing filter, and of a value given twice the last one would count."""
    before = client.get("/schedules/a").json()
    for path in ("/schedule-actions/suspend?dry_run=false&at_most=9", "/schedules/a/suspend"):
        for given in ({"json": {"name": "b"}}, {"content": iter([b"name=b"])}):
            answer = problem(client.post(path, **given), 422)
            assert [error["field"] for error in answer["errors"]] == ["body"]
    twice = client.post("/schedule-actions/suspend?dry_run=false&at_most=9&name=b&name=a")
    assert [error["field"] for error in problem(twice, 422)["errors"]] == ["name"]
    assert client.get("/schedules/a").json() == before
    assert client.get("/jobs?state=waiting&state=failed").status_code == 200
    for empty in (None, b""):
        path = "/schedule-actions/suspend?dry_run=true&at_most=9"
        assert client.post(path, content=empty).status_code == 200


def test_a_large_body_is_refused(client: TestClient) -> None:
    """Before it is in memory: eleven megabytes, sent in parts."""
    parts = (b" " * 1_000_000 for _ in range(11))
    answer = client.post("/schedules", content=parts, headers=JSON)
    assert "2000000" in problem(answer, 413)["detail"]


def test_aliases_do_not_make_a_body_larger(client: TestClient) -> None:
    """Of some kilobytes, each schedule would have a thousand fields to be refused."""
    fields = ", ".join(f"k{number}: 1" for number in range(1_000))
    text = "schedules:\n- &a {" + fields + "}\n" + "- *a\n" * 500
    answer = client.post("/schedule-files", content=text, headers={"Content-Type": "text/yaml"})
    assert "aliases" in problem(answer, 413)["detail"]
    few = text.replace("- *a\n" * 500, "- *a\n")
    answer = client.post("/schedule-files", content=few, headers={"Content-Type": "text/yaml"})
    assert problem(answer, 422)


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends a byte a minute holds nothing for long."""
    monkeypatch.setattr(bodies, "LONGEST_SECONDS", 0.0)

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    with pytest.raises(RequestRefused) as refusal:
        asyncio.run(bodies.Body()(Request(scope, receive)))
    assert refusal.value.status == 408


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/schedules/%00", 400),
        ("/schedules?name=%00", 400),
        ("/schedules/%ff%fe", 404),
        ("/schedules/..%2f..%2fetc", 404),
        ("/schedules/<script>'\"%0a%1b[31m😀", 404),
        ("/schedules?location=%27%20or%201=1", 404),
        ("/schedules?limit=999999999999999999999", 422),
        ("/schedules?suspended_from=yesterday", 422),
        ("/schedules?suspended_from=2026-01-01", 422),
        ("/schedules?suspended_from=9999-12-31T23:59:59-23:00", 422),
        ("/schedules?cursor=WzFd", 422),
        ("/jobs?cursor=WyJ4IiwieSJd", 422),
        ("/audit?cursor=WzFlOTldCg", 422),
        ("/audit?cursor=Wzk5OTk5OTk5OTk5OTk5OTk5OTk5XQ", 422),
        ("/nothing", 404),
        ("/schedules/", 404),
    ],
)
def test_an_odd_address_is_refused(client: TestClient, path: str, status: int) -> None:
    """With the value that was sent, as JSON."""
    problem(client.get(path), status)


def test_a_method_that_a_resource_lacks_is_refused(client: TestClient) -> None:
    """With the methods that it has."""
    answer = client.patch("/schedules")
    problem(answer, 405)
    assert answer.headers["allow"] == "GET"


def test_a_long_value_is_shortened(client: TestClient) -> None:
    """An answer does not send a megabyte back."""
    body = json.dumps({"name": "x" * 1_000_000})
    answer = client.post("/schedules", content=body, headers=JSON)
    problem(answer, 422)
    assert len(answer.content) < 10_000


def test_a_database_that_is_away_is_unavailable(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying again is safe; neither address nor user of the database is shown."""

    def fail(self: Database) -> Any:
        raise DatabaseUnavailable("no answer from secret@db.internal")

    monkeypatch.setattr(Database, "read", fail)
    answer = client.get("/schedules")
    assert "secret" not in problem(answer, 503)["detail"]
    assert answer.headers["retry-after"] == "5"
    ready = client.get("http://localhost/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
    assert client.get("http://localhost/healthz").json()["status"] == "ok"


def test_health_is_answered_while_all_threads_wait_for_a_database(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are forty; here there is one."""
    waits, ends = threading.Event(), threading.Event()

    def revision(self: Database) -> None:
        waits.set()
        assert ends.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(Database, "revision", revision)

    async def health() -> int:
        to_thread.current_default_thread_limiter().total_tokens = 1
        transport = httpx2.ASGITransport(client.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as other:
            waiting = asyncio.create_task(other.get("/readyz"))
            try:
                while not waits.is_set():
                    await asyncio.sleep(0.01)
                found = await asyncio.wait_for(other.get("/healthz"), 30)
            finally:
                ends.set()
            await waiting
        return found.status_code

    assert asyncio.run(health()) == 200


def test_a_database_of_another_version_is_not_ready(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which revision it has."""
    assert client.get("http://localhost/readyz").json() == {"status": "ok", "reason": None}
    monkeypatch.setattr(Database, "revision", lambda self: "9999")
    assert "revision 9999" in client.get("http://localhost/readyz").json()["reason"]


def test_an_unexpected_error_tells_nothing_of_itself(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it, under the id of the request."""

    def fail(self: Database) -> Any:
        raise ZeroDivisionError("of the secret kind")

    monkeypatch.setattr(Database, "read", fail)
    answer = client.get("/schedules", headers={"X-Request-Id": "abc-7"})
    assert problem(answer, 500)["request_id"] == "abc-7"
    assert "secret" not in answer.text
    assert "request abc-7 failed" in caplog.text
    odd = client.get("/schedules", headers={"X-Request-Id": "a\tb"})
    assert odd.json()["request_id"] != "a\tb"


def test_metrics_are_those_of_all_locations(api: MakeApi, database: Database) -> None:
    """In the format of Prometheus."""
    trigger = on.partitions("raw/a", count=2)
    both = [Schedule(name="a", target="rollup", trigger=trigger, enabled=True)]
    for location in ("here", "there"):
        world = World(database, both, location=location)
        world.tick(0)
        world.feed.arrive("raw/a", "1")
        world.tick(1)
    text = api().get("http://localhost/metrics").text
    for location in ("here", "there"):
        place = f'cluster="default",location="{location}"'
        assert f'arctic_jobs{{{place},state="waiting_trigger"}} 1.0' in text


def test_metrics_of_a_location_end_with_it(api: MakeApi, database: Database) -> None:
    """It was renamed: its last numbers would be reported until the service ends."""
    world = World(database, [Schedule(name="a", target="rollup", trigger=on.partitions("raw/a"))])
    world.tick(0)
    client = api()
    assert 'location="here"' in client.get("http://localhost/metrics").text
    with database.begin() as tx:
        tx.execute(sa.update(locations).values(name="there"))
    text = client.get("http://localhost/metrics").text
    assert 'location="here"' not in text
    assert 'arctic_jobs{cluster="default",location="there",state="launched"} 0.0' in text
