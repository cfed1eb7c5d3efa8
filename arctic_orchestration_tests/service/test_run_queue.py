"""``/queues``, ``/groups`` and ``/runs``, beside Dagster's own daemon that works the queue."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from dagster import DagsterInstance
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable

from arctic_orchestration.event_log.postgres_log import PostgresSql
from arctic_orchestration.event_log.sqlite_log import SqliteSql
from arctic_orchestration.run_queue.dagster.open_queue import Opened
from arctic_orchestration.service.pages.rendering import API
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.run_queue.coordinator.conftest import make_queue, queue_storage
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_buttons import FORM, confirm, press
from arctic_orchestration_tests.service.test_pages import Text, browser, shown
from arctic_orchestration_tests.service.test_problems import problem

__all__ = ["make_queue", "queue_storage"]
MakeQueue = Callable[..., RunQueue]
TWO = {"queues": {"low": {"match": {"job": "load"}}, "high": {"match": {"job": "bill"}}}}
TEAM = {"groups": {"ops": {"limit": 1, "match": {"job": "load"}}}}


@pytest.fixture
def ruled(
    backend: str,
    database: Database,
    make_queue: Callable[..., RunQueue],
) -> MakeQueue:
    """Makes a run queue under rules, of the instance that the service finds."""

    def make(**config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": config})

    return make


def records(database: Database) -> list[Any]:
    with database.read() as tx:
        return list(audit.records(tx, feature="runs"))


def changes(database: Database, feature: str) -> list[tuple[str, str, str]]:
    with database.read() as tx:
        found = reversed(audit.records(tx, feature=feature))
        return [(one.action, one.subject, one.actor.request_id) for one in found]


def test_a_queue_is_paused_and_resumed(api: MakeApi, database: Database, ruled: MakeQueue) -> None:
    """Its runs wait from the next pass on; what is so already is 409, an old ETag 412."""
    queue, client = ruled(max_concurrent_runs=9, **TWO), api()
    running = queue.submit("load")
    assert queue.iterate() == [running.run_id]
    held = queue.submit("load")
    before = client.get("/queues/low")
    assert [one["run_id"] for one in before.json()["holders"]] == [running.run_id]
    assert (before.json()["waiting"], before.json()["paused"]) == (1, None)
    tag = {"If-Match": before.headers["ETag"], "X-Request-Id": "p"}
    done = client.post("/queues/low/pause?reason=moving house", headers=tag)
    assert done.status_code == 200, done.text
    pause = done.json()["paused"]
    assert (pause["reason"], pause["by"]) == ("moving house", "loopback")
    problem(client.post("/queues/low/resume", headers=tag), 412)
    assert "moving house" in problem(client.post("/queues/low/pause"), 409)["detail"]
    assert queue.iterate() == []
    (line,) = client.get("/runs").json()["runs"]
    assert (line["run_id"], line["queue"], line["place"]) == (held.run_id, "low", 1)
    assert "moving house" in line["held_by"]["reason"]
    explained = client.get(f"/runs/{held.run_id}").json()
    assert explained["summary"].startswith("waits: queue low is paused")
    assert explained["paused"][0]["reason"] == "moving house"
    assert client.post("/queues/low/resume").json()["paused"] is None
    problem(client.post("/queues/low/resume"), 409)
    assert queue.iterate() == [held.run_id]
    assert changes(database, "queues") == [
        ("pause", "low", "p"),
        ("resume", "low", changes(database, "queues")[1][2]),
    ]


def test_a_group_shows_who_holds_its_slots(
    api: MakeApi, database: Database, ruled: MakeQueue
) -> None:
    """And is paused like a queue."""
    queue, client = ruled(**TEAM), api()
    first, second = queue.submit("load"), queue.submit("load")
    assert queue.iterate() == [first.run_id]
    group = client.get("/groups/ops").json()
    assert [one["run_id"] for one in group["holders"]] == [first.run_id]
    assert (group["limit"], group["in_progress"], group["waiting"]) == (1, 1, 1)
    (line,) = client.get("/runs").json()["runs"]
    assert (line["run_id"], line["held_by"]["gate"]) == (second.run_id, "group:ops")
    assert client.post("/groups/ops/pause").json()["paused"]["by"] == "loopback"
    listed = client.get("/queues").json()
    assert (listed["groups"][0]["group"], listed["groups"][0]["waiting"]) == ("ops", 1)
    for path in ("/queues/ops", "/groups/low", "/runs/nothing", "/queues/%ED%A0%80"):
        problem(client.get(path), 404)
    problem(client.post("/queues/ops/pause"), 404)
    assert [one[:2] for one in changes(database, "queues")] == [("pause", "ops")]


def test_a_run_gets_another_level(api: MakeApi, database: Database, ruled: MakeQueue) -> None:
    """It starts first then; what does not wait has no level."""
    queue, client = ruled(max_concurrent_runs=1, **TWO), api()
    first, second = queue.submit("load"), queue.submit("load")
    path = f"/runs/{second.run_id}/prioritize"
    tag = client.get(f"/runs/{second.run_id}").headers["ETag"]
    for body in ({}, {"level": 1.5}, {"level": "5"}, {"level": 10**9}, {"level": True}):
        assert problem(client.post(path, json=body), 422)["errors"][0]["field"] == "level"
    headers = {"If-Match": tag, "X-Request-Id": "q"}
    done = client.post(path, json={"level": 5}, headers=headers).json()
    assert (done["level"], done["level_before"]) == (5, 0)
    assert (done["place"], done["place_before"], done["waiting"]) == (1, 2, 2)
    problem(client.post(path, json={"level": 1}, headers=headers), 412)
    page = client.get("/runs?limit=1").json()
    rest = client.get(f"/runs?limit=1&cursor={page['next_cursor']}").json()
    ids = [one["run_id"] for one in (*page["runs"], *rest["runs"])]
    assert (ids, rest["next_cursor"]) == ([second.run_id, first.run_id], None)
    assert queue.iterate() == [second.run_id]
    problem(client.post(path, json={"level": 1}), 409)
    assert changes(database, "runs") == [("prioritize", second.run_id, "q")]


@pytest.mark.parametrize("config", [TWO, {}], ids=["rules", "no rules"])
def test_a_change_in_between_is_refused(
    api: MakeApi,
    database: Database,
    ruled: MakeQueue,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
) -> None:
    """Of two requests with one ETag the second is 412, however late the first one came."""
    queue, client = ruled(**config), api()
    run = queue.submit("load").run_id
    tag = {"If-Match": client.get(f"/runs/{run}").headers["ETag"]}
    path, outlook = f"/runs/{run}/prioritize", Opened.outlook
    others: list[Any] = []

    def with_another(self: Opened, now: Any) -> Any:
        seen = outlook(self, now)
        if not others:
            others.append(None)
            others.append(client.post(path, json={"level": 7}, headers=tag))
        return seen

    monkeypatch.setattr(Opened, "outlook", with_another)
    answer = client.post(path, json={"level": 5}, headers=tag)
    assert others[1].status_code == 200
    problem(answer, 412)
    # Without rules a level is Dagster's priority.
    (line,) = client.get("/runs").json()["runs"]
    assert (line["level"] if config else line["priority"]) == 7
    assert client.get(f"/runs/{run}").headers["ETag"] == others[1].headers["ETag"]
    assert [record.details["level"] for record in records(database)] == [7]


def test_a_page_of_a_long_queue_reads_no_more_than_itself(
    api: MakeApi, database: Database, ruled: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3,003 queued runs, in the order of their numbers, with the places in the whole queue."""
    queue = ruled(max_concurrent_runs=1, **TEAM)
    active = queue.submit("load").run_id
    assert queue.iterate() == [active]
    low, high, odd = (
        queue.submit("load", tags={"dagster/priority": number, "arctic/queue": name}).run_id
        for number, name in (("-5", "a"), ("12", "b"), ("7 seas", "b"))
    )
    plant_runs(queue.instance, low, 3_000)
    client = api()
    client.post(f"/runs/{low}/prioritize", json={"level": 3})
    with reading(monkeypatch, database) as read:
        first = client.get("/runs?limit=3").json()
        # Those of the page and the active one, and counts.
        assert sum(read) <= 40
        assert len(read) <= 20
    assert (first["waiting"], first["in_progress"]) == (3_003, 1)
    assert [(line["run_id"], line["place"]) for line in first["runs"]] == [
        (high, 1), (low, 2), (odd, 3),
    ]  # fmt: skip
    assert {line["held_by"]["gate"] for line in first["runs"]} == {"group:ops"}
    with reading(monkeypatch, database) as read:
        rest = client.get(f"/runs?limit=2&cursor={first['next_cursor']}").json()
        assert sum(read) <= 40
    assert [line["place"] for line in rest["runs"]] == [4, 5]
    limited = api(token=token(database, "runs:read@queue=b"))
    with reading(monkeypatch, database) as read:
        mine = limited.get("/runs").json()
        assert sum(read) <= 40
    assert [(line["run_id"], line["place"]) for line in mine["runs"]] == [(high, 1), (odd, 3)]
    assert mine["next_cursor"] is None


def plant_runs(instance: DagsterInstance, like: str, number: int) -> None:
    """Copies a run and its tags in Dagster's storage."""
    storage: Any = instance.run_storage
    with storage.connect() as connection:
        for table, kept in ((RunsTable, {"run_id"}), (RunTagsTable, {"run_id"})):
            query = sa.select(table).where(table.c.run_id == like)
            rows = [dict(row) for row in connection.execute(query).mappings()]
            connection.execute(
                sa.insert(table),
                [
                    {name: value for name, value in row.items() if name not in ("id", *kept)}
                    | {"run_id": f"copy-{n}"}
                    for n in range(number)
                    for row in rows
                ],
            )
        connection.commit()


@contextmanager
def reading(monkeypatch: pytest.MonkeyPatch, database: Database) -> Iterator[list[int]]:
    """Collects how many rows each statement returns from Dagster's storage; 0 of our database."""
    read: list[int] = []

    def counted(session: Any) -> Any:
        @contextmanager
        def counting(self: Any) -> Iterator[Any]:
            with session(self) as run:

                def noted(*given: Any) -> Any:
                    rows = run(*given)
                    read.append(len(rows))
                    return rows

                yield noted

        return counting

    def note(*_: Any) -> None:
        read.append(0)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    with monkeypatch.context() as patch:
        for kind in (SqliteSql, PostgresSql):
            patch.setattr(kind, "session", counted(kind.session))
        yield read
    sa.event.remove(database.engine, "before_cursor_execute", note)


def test_a_scope_is_limited_to_queues(api: MakeApi, database: Database, ruled: MakeQueue) -> None:
    """To its queue and the runs in it; groups need a scope without limits."""
    queue = ruled(**TWO, **TEAM)
    load, bill = queue.submit("load"), queue.submit("bill")
    scopes = ("queues:write@queue=low", "runs:write@queue=low")
    client = api(token=token(database, *scopes))
    listed = client.get("/queues").json()
    assert [one["queue"] for one in listed["queues"]] == ["low"]
    assert (listed["groups"], listed["rules"]) == ([], [])
    assert [one["run_id"] for one in client.get("/runs").json()["runs"]] == [load.run_id]
    for answer in (
        client.get("/queues/high"),
        client.get("/groups/ops"),
        client.get(f"/runs/{bill.run_id}"),
        client.post("/queues/high/pause"),
        client.post("/groups/ops/pause"),
        client.post(f"/runs/{bill.run_id}/prioritize", json={"level": 5}),
    ):
        assert answer.status_code == 403, answer.text
    assert client.post("/queues/low/pause").status_code == 200
    assert client.post(f"/runs/{load.run_id}/prioritize", json={"level": 5}).status_code == 200


def test_its_pages_are_what_the_api_answers(
    api: MakeApi, database: Database, ruled: MakeQueue
) -> None:
    """Under the same scopes; the former address leads there."""
    queue = ruled(max_concurrent_runs=1, **TWO, **TEAM)
    load = queue.submit("load")
    assert queue.iterate() == [load.run_id]
    bill = queue.submit("bill")
    pages = browser(api())
    for path, part in (
        ("/queues", "high"),
        ("/queues/low", "0 waiting, 1 in progress"),
        ("/groups/ops", "at most 1"),
        ("/runs", "1 run waiting, 1 in progress of at most 1"),
        (f"/runs/{load.run_id}", "STARTING"),
        (f"/runs/{bill.run_id}", "1 of 1 slots are in use"),
    ):
        assert part in shown(pages, path).text, path
        as_json = pages.get(path, headers={"Accept": "application/json"})
        assert as_json.json() == pages.get(f"{API}{path}").json()
    low = browser(api(token=token(database, "queues:read@queue=low", "runs:read@queue=low")))
    assert "high" not in shown(low, "/queues").text
    assert bill.run_id not in shown(low, "/runs").text
    assert {low.get(path).status_code for path in ("/queues/high", "/groups/ops")} == {403}
    assert low.get("/resources").status_code == 403


def test_buttons_pause_and_prioritize(api: MakeApi, database: Database, ruled: MakeQueue) -> None:
    """After a page that says how many wait; the reason of the form is that of the pause."""
    queue = ruled(max_concurrent_runs=1, **TWO, **TEAM)
    first, second = queue.submit("load"), queue.submit("load")
    pages = browser(api())
    for page in ("/queues/low", "/groups/ops"):
        asked = press(pages, page, "pause", reason="moving house")
        assert "Waiting: 2 runs. In progress: 0 runs." in Text(asked.text).text
        assert pages.get(f"{API}{page}").json()["paused"] is None
        done = confirm(pages, asked)
        assert done.url.path == page
        assert "by loopback: moving house" in Text(done.text).text
        assert confirm(pages, asked).status_code == 412
        assert press(pages, page, "resume").url.path == page
        assert pages.get(f"{API}{page}").json()["paused"] is None
    long = {"reason": "x" * 1_001}
    assert pages.post("/queues/low/pause", data=long, headers=FORM).status_code == 422
    page = f"/runs/{second.run_id}"
    done = press(pages, page, "prioritize", level="7")
    assert (done.url.path, "Level7" in Text(done.text).text) == (page, True)
    listed = pages.get(f"{API}/runs").json()["runs"]
    assert [line["run_id"] for line in listed] == [second.run_id, first.run_id]
    for level in ("", "1.5", "x", "9999999999"):
        bad = pages.post(f"{page}/prioritize", data={"level": level}, headers=FORM)
        assert (bad.status_code, "level" in bad.text) == (422, True), level


def test_without_rules_the_answer_says_so(
    api: MakeApi,
    database: Database,
    request: pytest.FixtureRequest,
) -> None:
    """First without an instance, then with one whose run coordinator is another."""
    assert database
    client = api()
    for path in ("/queues", "/runs"):
        assert "DAGSTER_HOME" in shown(browser(api()), path).text
    for path in ("/queues", "/queues/low", "/groups/ops", "/runs", "/runs/x"):
        assert "DAGSTER_HOME" in problem(client.get(path), 409)["detail"]
    instance: DagsterInstance = request.getfixturevalue("instance")
    assert instance.is_persistent
    assert "dagster.yaml" in problem(client.get("/queues"), 409)["detail"]
