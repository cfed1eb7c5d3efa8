"""``/compaction``: its tables, queues, merge tasks and commits, over REST."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import make_due
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.service.compaction import _PLANNING
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.compacting import SmallLake
from arctic_orchestration_tests.compaction.small_lake import lake_in
from arctic_orchestration_tests.compaction.stored import MERGE, planned, seen
from arctic_orchestration_tests.compaction.test_records import recorded
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_live_pages import counting

ODD = 'lake.o\'dd "🐧" ...'
UNKNOWN = ["nothing", "o'dd\"", "..%2Fqueues", "%F0%9F%90%A7", "%ED%A0%80", "%20"]

ACTIONS = [("tables", "wake"), ("queues", "pause"), ("tasks", "retry"), ("tasks", "cancel")]


@dataclass(frozen=True)
class Tasks:
    """The ids of tasks of ``lake.a``, by their states; and of one in the queue ``night``."""

    failed: str
    quarantined: str
    merged: str
    claimed: str
    planned: str
    night: str


@pytest.fixture
def tasks(database: Database) -> Tasks:
    """A task in each state; a table with an odd name."""
    now = utc_now()
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="night"), now)
        seen(tx, "lake.a", now=now)
        seen(tx, "lake.n", queue="night", now=now)
        seen(tx, ODD, now=now)
        offer(tx, "lake.a", [planned(name) for name in "abcde"], now)
        offer(tx, "lake.n", [planned("n")], now)
        claims = []
        for _ in range(4):
            claim = attempts.claim(tx, ["default"], "w")
            assert claim is not None
            claims.append(claim)
        for claim, is_bad in ((claims[0], False), (claims[1], True)):
            attempts.failed(tx, claim.attempt_id, claim.token, "bad rows", bad_files=is_bad)
        attempts.merged(tx, claims[2].attempt_id, claims[2].token, **MERGE)
        (last,) = task_store.tasks(tx, table="lake.a", states=[TaskState.PLANNED])
        (night,) = task_store.tasks(tx, table="lake.n")
    failed, bad, merged, held = (claim.task.id for claim in claims)
    return Tasks(
        failed=failed, quarantined=bad, merged=merged, claimed=held, planned=last.id, night=night.id
    )


@pytest.mark.usefixtures("tasks")
def test_a_list_of_many_tables_is_read_at_once(api: MakeApi, database: Database) -> None:
    """In as many statements as a short one; each is described as if it were shown alone."""
    with database.begin() as tx:
        for number in range(50):
            seen(tx, f"lake.t{number:02}", now=utc_now())
    client, statements = api(), list[int]()
    for limit in (1, 60):
        with counting(database) as executed:
            listed = client.get(f"/compaction/tables?limit={limit}").json()["tables"]
        statements.append(len(executed))
    assert len(listed) == 53
    assert statements[0] == statements[1]
    for one in listed[:3]:
        alone = client.get(f"/compaction/tables/{quote(one['table'], safe='')}").json()["table"]
        assert alone == one


def states(answer: Any) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {one["task"]: one["state"] for one in answer.json()["tasks"]}


def changes(database: Database) -> list[Any]:
    """The records of changes of compaction, oldest first."""
    with database.read() as tx:
        return list(reversed(audit.records(tx, feature="compaction")))


def pages(client: TestClient, path: str, name: str, **query: str) -> list[Any]:
    """All objects of a list, two at a time."""
    found: list[Any] = []
    params: dict[str, Any] = {**query, "limit": 2}
    while True:
        page = client.get(path, params=params).json()
        assert len(page[name]) <= 2
        found += page[name]
        if page["next_cursor"] is None:
            return found
        params["cursor"] = page["next_cursor"]


def test_tasks_are_listed_and_explained(api: MakeApi, tasks: Tasks) -> None:
    """Live ones by default; each with files, attempts, history and what it waits for."""
    client = api()
    live = {
        tasks.failed: "failed", tasks.merged: "merged", tasks.claimed: "claimed",
        tasks.planned: "planned", tasks.night: "planned",
    }  # fmt: skip
    assert states(client.get("/compaction/tasks")) == live
    assert states(client.get("/compaction/tasks?queue=night")) == {tasks.night: "planned"}
    ended = client.get("/compaction/tasks?state=ended&table=lake.a")
    assert states(ended) == {tasks.quarantined: "quarantined"}
    assert states(client.get("/compaction/tasks?table=lake.lost")) == {}
    refused = client.get("/compaction/tasks?state=asleep").json()
    assert refused["errors"][0]["field"] == "state"
    found = client.get(f"/compaction/tasks/{tasks.planned}").json()
    assert (found["ahead"], found["data_files"][0]["path"]) == (0, "e")
    assert found["explanation"]["text"].endswith("no worker serves default")
    assert [move["state"] for move in found["history"]] == ["planned"]
    gone = client.get(f"/compaction/tasks/{tasks.quarantined}").json()
    assert (gone["explanation"], gone["tried"][0]["reason"]) == (None, "bad rows")


def test_pages_have_each_object_once(api: MakeApi, database: Database, tasks: Tasks) -> None:
    """Tasks that live and that ended, tables with odd names, commits of one moment."""
    now = utc_now()
    with database.begin() as tx:
        for number in range(5):
            records.write(tx, recorded("lake.a", number, now))
    client = api()
    client.post(f"/compaction/tasks/{tasks.failed}/cancel")
    client.post(f"/compaction/tasks/{tasks.planned}/cancel")
    found = [one["task"] for one in pages(client, "/compaction/tasks", "tasks", state="all")]
    whole = client.get("/compaction/tasks?state=all").json()["tasks"]
    assert found == [one["task"] for one in whole]
    assert len(set(found)) == 6
    assert found[3:] == [tasks.planned, tasks.failed, tasks.quarantined]
    tables = [one["table"] for one in pages(client, "/compaction/tables", "tables")]
    assert tables == sorted(["lake.a", "lake.n", ODD])
    with database.begin() as tx:
        make_due(tx, ODD, "a commit", now)
        make_due(tx, "lake.n", "a commit", now - timedelta(hours=1))
    due = pages(client, "/compaction/tables", "tables", order="need")
    assert [one["table"] for one in due] == ["lake.n", ODD, "lake.a"]
    shown = pages(client, "/compaction/records", "records")
    assert [one["snapshot_id"] for one in shown] == [4, 3, 2, 1, 0]
    for path in ("tasks", "tables", "records"):
        refused = client.get(f"/compaction/{path}?cursor=WzFd")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "cursor")


def test_a_table_is_shown_with_what_rests_and_waits(api: MakeApi, tasks: Tasks) -> None:
    """By the state database alone; a name is text, whatever it holds."""
    client = api()
    found = client.get("/compaction/tables/lake.a").json()
    assert found["table"]["resting_files"] == 1
    assert [one["path"] for one in found["resting_files"]] == ["b"]
    assert [one["task"] for one in found["quarantined"]] == [tasks.quarantined]
    assert (found["live"], len(found["tasks"]), found["queue"]["queue"]) == (4, 4, "default")
    odd = client.get(f"/compaction/tables/{quote(ODD)}").json()
    assert (odd["table"]["table"], odd["tasks"], odd["last_commit"]) == (ODD, [], None)


@pytest.mark.parametrize(
    ("action", "state"), [("pause", "paused"), ("drain", "draining"), ("resume", "open")]
)
def test_a_queue_is_changed_once(
    api: MakeApi, database: Database, tasks: Tasks, action: str, state: str
) -> None:
    """The second request is refused and leaves no record; an old ETag, too."""
    client, before = api(), "draining" if action == "resume" else "open"
    path = "/compaction/queues/night"
    if action == "resume":
        client.post(f"{path}/drain")
    tag = client.get(path).headers["ETag"]
    done = client.post(f"{path}/{action}", headers={"If-Match": tag, "X-Request-Id": "mine"})
    assert (done.status_code, done.json()["state"]) == (200, state), done.text
    assert done.json() == client.get(path).json()
    assert done.headers["ETag"] == client.get(path).headers["ETag"] != tag
    assert client.post(f"{path}/{action}").status_code == 409
    assert client.post(f"{path}/{action}", headers={"If-Match": tag}).status_code == 412
    record = changes(database)[-1]
    assert (record.action, record.subject) == (f"queues {action}", "night")
    assert (record.before, record.after) == ({"state": before}, {"state": state})
    assert (record.actor.name, record.actor.request_id) == ("loopback", "mine")
    assert len(changes(database)) == (2 if action == "resume" else 1)
    assert client.get("/compaction/queues/default").json()["state"] == "open"


def test_a_failed_task_is_retried_once(api: MakeApi, database: Database, tasks: Tasks) -> None:
    """It is planned from then on; so it can only be canceled."""
    client, path = api(), f"/compaction/tasks/{tasks.failed}"
    tag = client.get(path).headers["ETag"]
    done = client.post(f"{path}/retry", headers={"If-Match": tag, "X-Request-Id": "r"})
    assert (done.status_code, done.json()["state"]) == (200, "planned")
    assert done.json()["reason"].endswith("at once: requested by loopback")
    assert client.post(f"{path}/retry").status_code == 409
    assert client.post(f"{path}/cancel", headers={"If-Match": tag}).status_code == 412
    (record,) = changes(database)
    assert (record.action, record.subject) == ("tasks retry", tasks.failed)
    assert (record.before, record.after) == ({"state": "failed"}, {"state": "planned"})
    assert record.actor.request_id == "r"


def test_the_files_of_a_quarantined_task_are_planned_again(
    api: MakeApi, database: Database, tasks: Tasks
) -> None:
    """The task itself has ended and stays so; its table is due."""
    client = api()
    done = client.post(f"/compaction/tasks/{tasks.quarantined}/retry")
    assert (done.status_code, done.json()["state"]) == (200, "quarantined")
    found = client.get("/compaction/tables/lake.a").json()
    assert found["resting_files"] == []
    assert found["table"]["due_because"].startswith(f"task {tasks.quarantined} is retried")


def test_a_waiting_task_is_canceled_once(api: MakeApi, database: Database, tasks: Tasks) -> None:
    """Not one that a worker has, nor a merged one: a snapshot may have it."""
    client, path = api(), f"/compaction/tasks/{tasks.planned}"
    done = client.post(f"{path}/cancel", headers={"X-Request-Id": "c"})
    assert (done.status_code, done.json()["state"]) == (200, "canceled")
    assert client.post(f"{path}/cancel").status_code == 409
    assert client.post(f"/compaction/tasks/{tasks.claimed}/cancel").status_code == 409
    merged = client.post(f"/compaction/tasks/{tasks.merged}/cancel")
    assert merged.status_code == 409
    assert f"arctic compaction tasks cancel {tasks.merged}" in merged.json()["detail"]
    (record,) = changes(database)
    assert (record.action, record.subject) == ("tasks cancel", tasks.planned)
    assert (record.before, record.after) == ({"state": "planned"}, {"state": "canceled"})
    assert record.actor.request_id == "c"


def test_a_waiting_task_is_prioritized(api: MakeApi, database: Database, tasks: Tasks) -> None:
    """It is claimed first, plans leave its level alone, and only one that waits has another."""
    now = utc_now()
    with database.begin() as tx:
        (old,) = offer(tx, "lake.a", [planned("e"), planned("f")], now + timedelta(1)).taken
        assert task_store.ahead_of(tx, task_store.task_by_id(tx, old)) == 1
    client, path = api(), f"/compaction/tasks/{old}/prioritize"
    tag = client.get(f"/compaction/tasks/{old}").headers["ETag"]
    for level in (1001, -1001, "5", True, None, 1.5):
        refused = client.post(path, json={"level": level})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "level")
    done = client.post(path, json={"level": 30}, headers={"If-Match": tag, "X-Request-Id": "p"})
    assert (done.status_code, done.json()["level"], done.json()["state"]) == (200, 30, "planned")
    assert client.post(path, json={"level": 40}, headers={"If-Match": tag}).status_code == 412
    for other in (tasks.claimed, tasks.merged, tasks.failed, tasks.quarantined):
        refused = client.post(f"/compaction/tasks/{other}/prioritize", json={"level": 5})
        assert refused.status_code == 409
        assert "only planned tasks wait for a worker" in refused.json()["detail"]
    (record,) = changes(database)
    assert (record.action, record.subject, record.actor.request_id) == (
        "tasks prioritize", old, "p",
    )  # fmt: skip
    assert (record.before, record.after) == ({"level": 0}, {"level": 30})
    with database.begin() as tx:
        offer(tx, "lake.a", [planned("e"), planned("f")], now + timedelta(1))
        assert task_store.task_by_id(tx, old).level == 30
        claim = attempts.claim(tx, ["default"], "w")
        assert claim is not None
        assert claim.task.id == old


def test_a_table_is_planned_without_an_offer(
    api: MakeApi, database: Database, tmp_path: Path
) -> None:
    """Three small files would be one; one request at a time reads manifests."""
    lake = SmallLake(lake_in(tmp_path / "lake"), database)
    lake.table("lake.flights", 3)
    with database.begin() as tx:
        seen(tx, "lake.flights")
    client, path = api(), "/compaction/tables/lake.flights/plan"
    found = client.get(path).json()
    (task,) = found["tasks"]
    assert (found["files"], task["files"], task["partition"]) == (3, 3, "day=2013-01-01")
    assert [one["left"] for one in found["partitions"]] == [None]
    assert states(client.get("/compaction/tasks")) == {}
    assert client.get("/compaction/tables/lake.lost/plan").status_code == 404
    assert client.get(f"{path}?force=perhaps").status_code == 422
    with _PLANNING:
        busy = client.get(path)
    assert (busy.status_code, busy.headers["Retry-After"]) == (429, "5")
    assert client.get(path).json()["tasks"] == found["tasks"]
    for manifest in (tmp_path / "lake").rglob("*.avro"):
        manifest.unlink()
    for _ in range(2):
        away = client.get(path)
        assert (away.status_code, "the lake cannot be used" in away.json()["detail"]) == (503, True)
        assert str(tmp_path) not in away.text


def test_a_table_is_woken_once(api: MakeApi, database: Database, tasks: Tasks) -> None:
    """With its files; then it is due, and does not rest."""
    client, path = api(), "/compaction/tables/lake.a"
    tag = client.get(path).headers["ETag"]
    done = client.post(f"{path}/wake", headers={"If-Match": tag, "X-Request-Id": "w"})
    assert (done.status_code, done.json()["files"]) == (200, 1)
    assert client.post(f"{path}/wake").status_code == 409
    assert client.post(f"{path}/wake", headers={"If-Match": tag}).status_code == 412
    assert client.post(f"/compaction/tables/{quote(ODD)}/wake").status_code == 409
    (record,) = changes(database)
    assert (record.action, record.subject, record.details) == ("wake", "lake.a", {"files": 1})
    assert record.before == {"rests_until": None, "files": 1}
    assert record.after == {"rests_until": None, "files": 0}
    assert record.actor.request_id == "w"
    assert client.get(path).json()["table"]["due_because"] == "loopback ended its rest"


def test_what_is_not_there_is_404(api: MakeApi, tasks: Tasks) -> None:
    """Whatever its name; and nothing tells the names of others."""
    client = api()
    reads = [f"{what}/{name}" for what in ("tables", "queues", "tasks") for name in UNKNOWN]
    writes = [f"{what}/{{}}/{action}" for what, action in ACTIONS]
    requests = [("GET", path) for path in reads]
    requests += [("POST", path.format(name)) for path in writes for name in UNKNOWN]
    for method, path in requests:
        answer = client.request(method, f"/compaction/{path}")
        # A slash in a name is one of the path, and there is no such resource.
        assert answer.status_code == 404 or "%2F" in path, (method, path, answer.text)
        assert answer.status_code in (404, 405)
        assert "night" not in answer.text
        assert "lake." not in answer.text


def test_a_scope_is_limited_to_its_queues(api: MakeApi, database: Database, tasks: Tasks) -> None:
    """Lists leave the rest out; a single object of another queue is 403."""
    with database.begin() as tx:
        records.write(tx, recorded("lake.a", 1))
        records.write(tx, recorded("lake.n", 2))
        records.write(tx, recorded("lake.gone", 3))
    client = api(token=token(database, "compaction:write@queue=n*", lifetime=timedelta(days=1)))
    assert states(client.get("/compaction/tasks?state=all")) == {tasks.night: "planned"}
    assert [one["table"] for one in client.get("/compaction/tables").json()["tables"]] == ["lake.n"]
    assert [one["queue"] for one in client.get("/compaction/queues").json()["queues"]] == ["night"]
    shown = client.get("/compaction/records").json()["records"]
    assert [one["table"] for one in shown] == ["lake.n"]
    for path in ("tables/lake.a", "queues/default", f"tasks/{tasks.failed}"):
        assert client.get(f"/compaction/{path}").status_code == 403, path
    for path in ("tables/lake.a/wake", "queues/default/pause", f"tasks/{tasks.failed}/retry"):
        assert client.post(f"/compaction/{path}").status_code == 403, path
    assert client.post("/compaction/queues/night/pause").status_code == 200
    assert [record.subject for record in changes(database)] == ["night"]


def test_reading_changes_nothing(api: MakeApi, database: Database, tasks: Tasks) -> None:
    client = api(token=token(database, "compaction:read", "jobs:write"))
    for path in ("tables/lake.a/wake", "queues/night/pause", f"tasks/{tasks.failed}/cancel"):
        answer = client.post(f"/compaction/{path}")
        assert (answer.status_code, "compaction:write" in answer.text) == (403, True)
    assert changes(database) == []
