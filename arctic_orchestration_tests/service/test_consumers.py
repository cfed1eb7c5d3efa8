"""``/consumers``: the progress of partition consumers and their control, over REST."""

from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.consumers.dagster import event_source
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.state import audit
from arctic_orchestration.state.consumer_tables import consumer_partitions
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token

ODD = 'o\'dd "🐧" ../'


@pytest.fixture
def totals(database: Database) -> ConsumerEngine:
    """A consumer that gave up two partitions, one with an odd name; one is done."""
    log = Log()
    log.arrives("01", ODD, "03")
    engine = engine_of(database, log, attempts=1)
    with engine.consume() as partitions:
        partitions.failed("01", ODD, reason="broken")
    engine_of(database, log, name="other", asset="raw/planes")
    return engine


def keys_of(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["partition"] for one in answer.json()["partitions"]]


def changes(database: Database) -> list[Any]:
    with database.read() as tx:
        return list(reversed(audit.records(tx, feature="consumers")))


def test_consumers_are_shown_with_what_is_left(api: MakeApi, totals: ConsumerEngine) -> None:
    """By the state database: what nobody has read of the log is not counted."""
    client = api()
    page = client.get("/consumers?limit=1").json()
    assert [one["consumer"] for one in page["consumers"]] == ["other"]
    page = client.get(f"/consumers?cursor={page['next_cursor']}").json()
    (found,) = page["consumers"]
    assert page["next_cursor"] is None
    assert (found["consumer"], found["asset"]) == ("totals", "raw/flights")
    assert (found["acknowledged"], found["discarded"], found["unread"]) == (1, 2, None)
    assert client.get("/consumers/totals").json() == {**found, "leases": []}
    given_up = client.get("/consumers/totals/partitions?state=discarded")
    assert keys_of(given_up) == ["01", ODD]
    assert {one["reason"] for one in given_up.json()["partitions"]} == {"broken"}
    first = client.get("/consumers/totals/partitions?state=discarded&limit=1").json()
    rest = client.get(
        "/consumers/totals/partitions",
        params={"state": "discarded", "cursor": first["next_cursor"]},
    )
    assert keys_of(rest) == [ODD]
    assert rest.json()["next_cursor"] is None
    for query, field in (("state=lost", "state[0]"), ("cursor=WzFd", "cursor"), ("x=1", "x")):
        refused = client.get(f"/consumers/totals/partitions?{query}")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)


def test_what_was_given_up_is_delivered_again_once(
    api: MakeApi, database: Database, totals: ConsumerEngine
) -> None:
    """What is named, then all; then there is none left."""
    client, path = api(), "/consumers/totals/retry"
    done = client.post(path, json={"partitions": [ODD]}, headers={"X-Request-Id": "r"})
    assert keys_of_retry(done) == [ODD]
    assert keys_of_retry(client.post(path, json={"all": True})) == ["01"]
    assert client.post(path, json={"all": True}).status_code == 409
    assert client.post(path, json={"partitions": ["01", "nope"]}).status_code == 404
    bodies: list[dict[str, Any]] = [
        {}, {"all": True, "partitions": ["01"]}, {"partitions": []}, {"all": 7}, {"k": 1},
    ]  # fmt: skip
    for body in bodies:
        refused = client.post(path, json=body)
        assert refused.status_code == 422, body
        assert refused.json()["errors"][0]["field"] in ("partitions", "all", "k")
    first, second = changes(database)
    assert (first.action, first.subject, first.actor.request_id) == ("retry", "totals", "r")
    assert (first.before, first.after) == ({ODD: "discarded"}, {ODD: "waiting"})
    assert second.before == {"01": "discarded"}
    with totals.consume() as partitions:
        assert {"01", ODD} <= set(partitions.keys)
        leased = client.post(path, json={"partitions": ["01"]})
        assert leased.status_code == 409
        assert client.get("/consumers/totals").json()["leases"][0]["partitions"] >= 2


def keys_of_retry(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json()["partitions"]
    return found


def test_a_consumer_starts_again(
    api: MakeApi, database: Database, totals: ConsumerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its beginning, or of another asset from a moment; an old ETag changes nothing."""
    client, path = api(), "/consumers/totals/reset"
    tag = client.get("/consumers/totals").headers["ETag"]
    form = {"start": "2026-01-01T00:00:00+01:00", "asset": "raw/a"}
    done = client.post(path, json=form, headers={"If-Match": tag, "X-Request-Id": "s"})
    assert done.status_code == 200, done.text
    start = "2025-12-31T23:00:00+00:00"
    assert (done.json()["asset"], done.json()["start"]) == ("raw/a", start)
    assert (done.json()["discarded"], done.json()["acknowledged"]) == (0, 0)
    assert client.post(path, json=form, headers={"If-Match": tag}).status_code == 412
    again = client.post(path, json=form, headers={"If-Match": done.headers["ETag"]})
    # A reset to the same start forgets everything, too.
    assert again.headers["ETag"] != done.headers["ETag"]
    record, _ = changes(database)
    assert (record.action, record.actor.request_id) == ("reset", "s")
    assert record.before["asset"] == "raw/flights"
    assert record.after == {"asset": "raw/a", "start": start}
    for body, field in (
        ({"start": "tomorrow"}, "start"),
        ({"start": "from_now", "asset": "a//b"}, "asset"),
        ({}, "start"),
    ):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    asked = []
    monkeypatch.setattr(event_source, "present_end", lambda: asked.append(1))
    assert client.post(path, json={"start": "from_now"}).status_code == 200
    assert asked == [1]
    with database.read() as tx:
        assert tx.execute(sa.select(sa.func.count()).select_from(consumer_partitions)).scalar() == 0


def test_what_is_not_there_is_404(api: MakeApi, totals: ConsumerEngine) -> None:
    """Whatever its name; and nothing tells the names of others."""
    client = api()
    for name in ("nothing", "o'dd\"", "%F0%9F%90%A7", "%ED%A0%80", "%20", "..%2Ftotals"):
        for answer in (
            client.get(f"/consumers/{name}"),
            client.get(f"/consumers/{name}/partitions"),
            client.post(f"/consumers/{name}/retry", json={"all": True}),
            client.post(f"/consumers/{name}/reset", json={"start": "from_now"}),
        ):
            assert answer.status_code == 404 or "%2F" in name, answer.text
            assert answer.status_code in (404, 405)
            assert "raw/" not in answer.text


def test_a_scope_is_limited_to_assets(
    api: MakeApi, database: Database, totals: ConsumerEngine
) -> None:
    """To read and to change; nor may a consumer be moved to an asset outside."""
    client = api(token=token(database, "consumers:write@asset=raw/planes"))
    assert [one["consumer"] for one in client.get("/consumers").json()["consumers"]] == ["other"]
    away = {"start": "from_beginning", "asset": "raw/flights"}
    for answer in (
        client.get("/consumers/totals"),
        client.get("/consumers/totals/partitions"),
        client.post("/consumers/totals/retry", json={"all": True}),
        client.post("/consumers/totals/reset", json={"start": "from_now"}),
        client.post("/consumers/other/reset", json=away),
    ):
        assert answer.status_code == 403, answer.text
    assert client.post("/consumers/other/reset", json={"start": "from_beginning"}).is_success
    assert [record.subject for record in changes(database)] == ["other"]
    reader = api(token=token(database, "consumers:read", name="reader"))
    assert reader.post("/consumers/other/reset", json=away).status_code == 403
