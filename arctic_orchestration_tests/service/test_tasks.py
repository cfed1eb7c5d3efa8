"""``/tasks``: tasks with fresh parents, their graph, submissions and the skip list, over REST."""

from typing import Any

import pytest

from arctic_orchestration.service import tasks
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.tasked import Tasked, task
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_problems import problem


@pytest.fixture
def three(database: Database) -> Tasked:
    """A chain over two locations: raw/a of ``feeds``, then middle and top of ``lake``.

    raw/a is 5 hours old, middle 30, which is too old for top; top was never made.
    """
    made = Tasked(database)
    raw = task("raw/a", 12).model_copy(update={"batch": "landing"})
    made.declare(raw, location="feeds")
    made.declare(task("middle", 48, raw__a=6), task("top", None, middle=24, plain=2))
    made.made("raw/a", 5)
    made.made("middle", 30, run="run-7", cluster="west")
    return made


def changes(database: Database) -> list[Any]:
    with database.read() as tx:
        return list(reversed(audit.records(tx, feature="tasks")))


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["task"] for one in answer.json()["tasks"]]


def test_tasks_are_listed_by_page(api: MakeApi, three: Tasked) -> None:
    """Of a batch, and fresh ones or others; also when a filter leaves most of them out."""
    client = api()
    assert names(client.get("/tasks")) == ["middle", "raw/a", "top"]
    assert names(client.get("/tasks?batch=landing")) == ["raw/a"]
    assert names(client.get("/tasks?fresh=false")) == ["top"]
    assert names(client.get("/tasks?fresh=false&limit=1")) == ["top"]
    first = client.get("/tasks?limit=2")
    rest = client.get(f"/tasks?limit=2&cursor={first.json()['next_cursor']}")
    assert (names(first), names(rest)) == (["middle", "raw/a"], ["top"])
    assert rest.json()["next_cursor"] is None
    for query, field in (("fresh=perhaps", "fresh"), ("cursor=WzFd", "cursor"), ("x=1", "x")):
        errors = problem(client.get(f"/tasks?{query}"), 422)["errors"]
        assert errors[0]["field"] == field


def test_a_task_that_is_removed_meanwhile_is_still_listed(
    api: MakeApi, three: Tasked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All statements of a request see one state of the database, on Postgres, too."""
    readable = tasks._readable

    def removed(*given: Any) -> list[str]:
        found = readable(*given)
        three.declare(task("middle", 48, raw__a=6))
        return found

    monkeypatch.setattr(tasks, "_readable", removed)
    assert names(api().get("/tasks")) == ["middle", "raw/a", "top"]
    monkeypatch.undo()
    assert names(api().get("/tasks")) == ["middle", "raw/a"]


def test_a_task_says_why_it_does_not_run(api: MakeApi, three: Tasked) -> None:
    """Its parents with their ages, those that are unknown here; its name may have slashes."""
    client = api()
    top = client.get("/tasks/top").json()
    assert (top["state"], top["fresh"], top["last_success_at"]) == ("never", False, None)
    edges = {one["parent"]: one for one in top["parents"]}
    assert (edges["middle"]["kind"], edges["middle"]["fresh"]) == ("task", False)
    # No task, and the service has no instance of Dagster.
    assert (edges["plain"]["exists"], edges["plain"]["fresh"]) == (None, None)
    assert any("Parent middle" in line for line in top["explanation"])
    for path in ("raw/a", "raw%2Fa"):
        raw = client.get(f"/tasks/{path}").json()
        assert [one["child"] for one in raw["children"]] == ["middle"]
        assert raw["declared"][0]["location"] == "feeds"
    for path in ("nothing", "raw", "o'dd\"", "%F0%9F%90%A7", "%ED%A0%80", "%20"):
        assert "middle" not in problem(client.get(f"/tasks/{path}"), 404)["detail"]
    graph = client.get("/task-graph?task=middle").json()
    assert [one["task"] for one in graph["tasks"]] == ["raw/a", "middle"]
    assert [(one["child"], one["parent"]) for one in graph["edges"]] == [("middle", "raw/a")]
    assert len(client.get("/task-graph").json()["edges"]) == 3
    problem(client.get("/task-graph?task=nothing"), 404)


def test_tasks_are_submitted_all_or_none(api: MakeApi, database: Database, three: Tasked) -> None:
    """Batches stand for their tasks; a name that is none stops all."""
    client = api()
    body = {"names": ["top"], "with_parents": True}
    done = client.post("/submissions", json=body, headers={"X-Request-Id": "r"})
    assert done.status_code == 202, done.text
    made = done.json()["submissions"]
    assert {one["task"] for one in made} == {"raw/a", "middle", "top"}
    assert {(one["by"], one["state"]) for one in made} == {("loopback", "submitted")}
    live = client.get("/tasks/top").json()["live_submissions"]
    assert [one["submission"] for one in live] == [
        one["submission"] for one in made if one["task"] == "top"
    ]
    problem(client.post("/submissions", json={"names": ["top", "tpo"]}), 404)
    bodies: list[tuple[dict[str, Any], str]] = [
        ({}, "names"),
        ({"names": []}, "names"),
        ({"names": [""]}, "names[0]"),
        ({"names": "top"}, "names"),
        ({"names": ["top"], "freshness_hours": 0}, "freshness_hours"),
        ({"names": ["top"], "freshness_hours": 1, "force": True}, "freshness_hours"),
        ({"names": ["top"], "only": ["middle"]}, "only"),
        ({"names": ["top"], "only": ["top"], "with_parents": True}, "with_parents"),
        ({"names": ["top"], "location": "nowhere"}, "location"),
        ({"names": ["top"], "force": 1}, "force"),
    ]
    for wrong, field in bodies:
        errors = problem(client.post("/submissions", json=wrong), 422)["errors"]
        assert errors[0]["field"] == field, wrong
    (record,) = changes(database)
    assert (record.action, record.subject, record.actor.request_id) == ("submit", "top", "r")
    assert record.details["submissions"] == 3


def test_a_task_is_skipped_until_it_is_not(api: MakeApi, database: Database, three: Tasked) -> None:
    """Under its ETag; what is not on the list is 404."""
    client, path = api(), "/skip-list/raw/a"
    tag = {"If-Match": client.get("/tasks/raw/a").headers["ETag"]}
    for body in ({}, {"reason": ""}, {"reason": 7}, {"why": "x"}):
        problem(client.put(path, json=body), 422)
    done = client.put(path, json={"reason": "feed moves"}, headers=tag)
    assert (done.json()["task"], done.json()["by"]) == ("raw/a", "loopback")
    assert done.headers["ETag"] == client.get("/tasks/raw/a").headers["ETag"]
    problem(client.put(path, json={"reason": "again"}, headers=tag), 412)
    problem(client.delete(path, headers=tag), 412)
    assert client.get("/tasks/raw/a").json()["skipped"] == "feed moves (by loopback)"
    (listed,) = client.get("/skip-list").json()["skipped"]
    assert (listed["task"], listed["reason"]) == ("raw/a", "feed moves")
    assert client.delete(path).status_code == 204
    problem(client.delete(path), 404)
    problem(client.put("/skip-list/nothing", json={"reason": "x"}), 404)
    assert [(one.action, one.subject) for one in changes(database)] == [
        ("skip", "raw/a"),
        ("unskip", "raw/a"),
    ]


def test_a_scope_admits_tasks_by_their_names(
    api: MakeApi, database: Database, three: Tasked
) -> None:
    """A location has no say: others may declare the same task. Parents need the scope, too."""
    client = api(token=token(database, "freshness:write@asset=raw/*"))
    assert names(client.get("/tasks")) == ["raw/a"]
    assert [one["task"] for one in client.get("/task-graph").json()["tasks"]] == ["raw/a"]
    for answer in (
        client.get("/tasks/top"),
        client.get("/task-graph?task=top"),
        client.post("/submissions", json={"names": ["raw/a", "top"]}),
        client.post("/submissions", json={"names": ["daily"]}),
        client.put("/skip-list/top", json={"reason": "x"}),
        client.delete("/skip-list/top"),
    ):
        assert answer.status_code == 403, answer.text
    assert client.post("/submissions", json={"names": ["raw/a"]}).status_code == 202
    assert client.put("/skip-list/raw/a", json={"reason": "x"}).status_code == 200
    there = api(token=token(database, "freshness:write@location=feeds", name="there"))
    assert names(there.get("/tasks")) == []
    assert there.post("/submissions", json={"names": ["raw/a"]}).status_code == 403
    assert [one.action for one in changes(database)] == ["submit", "skip"]
