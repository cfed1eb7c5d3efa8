"""``/workers``: registration, claims, heartbeats and reports, over REST."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.service import worker_reports
from arctic_orchestration.service.assignments import _of_files
from arctic_orchestration.service.merge_reports import checked_outputs
from arctic_orchestration.state import audit
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in, offered, table_of
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token


@pytest.fixture
def client(api: MakeApi) -> TestClient:
    """With a registered worker, ``w``."""
    made = api()
    assert made.put("/workers/w", json={"name": "one"}).status_code == 200
    return made


@pytest.fixture
def task(database: Database, tmp_path: Path) -> Task:
    """The task of four files, of ten rows each, of a table of the lake."""
    offered(database, table_of(lake_in(tmp_path / "lake")))
    with database.read() as tx:
        (one,) = task_store.tasks(tx)
    return one


def claimed(client: TestClient, key: str = "k", worker: str = "w") -> Any:
    answer = client.post(f"/workers/{worker}/claim", json={"key": key})
    assert answer.status_code == 200, answer.text
    return answer.json()["assignment"]


def report(work: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A report of a merge that is accepted, but for the changes."""
    outputs = [{"path": f"{work['directory']}/a.parquet", "size": 900, "rows": 40}]
    sound = {"fencing_token": work["fencing_token"], "outputs": outputs, "rows_in": 40}
    return {**sound, "rows_deleted": 0, "way": "append", **changes}


def expire(database: Database) -> None:
    """Ends the leases of all attempts."""
    with database.begin() as tx:
        past = utc_now() - timedelta(days=1)
        tx.execute(sa.update(compaction_attempts).values(expires_at=past))
        attempts.expire(tx)


def state(database: Database, task: Task) -> TaskState:
    with database.read() as tx:
        return task_store.task_by_id(tx, task.id).state


def test_an_assignment_has_all_that_a_merge_needs(client: TestClient, task: Task) -> None:
    """Files, schema, where to write; of the catalog's properties none that open no file."""
    work = claimed(client)
    assert (work["task"], work["table"]["name"], work["fencing_token"]) == (
        task.id,
        "lake.words",
        1,
    )
    assert [one["rows"] for one in work["group"]["files"]] == [10, 10, 10, 10]
    assert [one["name"] for one in work["table"]["columns"]["fields"]] == ["id", "word"]
    assert work["directory"].endswith(f"/data/compaction-{work['attempt']}")
    assert Path(work["table"]["metadata_location"]).exists()
    assert work["table"]["io"] == {}
    assert 50 < work["lease_seconds"] <= 60


def test_a_worker_gets_the_properties_that_open_files_alone() -> None:
    """Those of stores, with their credentials; none that opens the catalog."""
    files = {"s3.endpoint": "https://store", "s3.secret-access-key": "x", "client.region": "eu"}
    catalog = {
        "uri": "postgresql://u:p@h/c",
        "token": "t",
        "credential": "a:b",
        "glue.region": "eu",
    }
    assert _of_files({**catalog, **files}) == files


def test_a_repeated_claim_is_the_same_claim(
    client: TestClient, database: Database, task: Task
) -> None:
    """Until its attempt has ended; then the key is spent. Another key takes another task."""
    first = claimed(client)
    assert claimed(client)["attempt"] == first["attempt"]
    assert claimed(client, "other") is None
    body = report(first)
    path = f"/workers/attempts/{first['attempt']}"
    for _ in range(2):
        answer = client.post(f"{path}/merged", json=body)
        assert (answer.status_code, answer.json()["task_state"]) == (200, "merged")
    answer = client.post("/workers/w/claim", json={"key": "k"})
    assert (answer.status_code, "claim with another" in answer.json()["detail"]) == (409, True)
    other = report(first, outputs=[{**body["outputs"][0], "size": 901}])
    assert client.post(f"{path}/merged", json=other).status_code == 409
    assert (
        client.post(f"{path}/failed", json={"fencing_token": 1, "reason": "x"}).status_code == 409
    )
    assert client.get(path).json()["state"] == "merged"
    assert state(database, task) is TaskState.MERGED


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_of_two_merges_reported_at_once_one_is_refused(
    client: TestClient, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has read the attempt before the other one's report."""
    work = claimed(client)
    path, first = f"/workers/attempts/{work['attempt']}/merged", report(work)
    second = report(work, outputs=[{**first["outputs"][0], "size": 901}])
    answers = []

    def report_before(*arguments: Any) -> Any:
        monkeypatch.undo()
        answers.append(client.post(path, json=first).status_code)
        return checked_outputs(*arguments)

    monkeypatch.setattr(worker_reports, "checked_outputs", report_before)
    answers.append(client.post(path, json=second).status_code)
    assert answers == [200, 409]


@pytest.mark.parametrize(
    ("word", "body", "state_after"),
    [("failed", {"reason": "the disk is full"}, "failed"), ("released", {}, "planned"),
     ("failed", {"reason": "bad rows", "retry": "not these files"}, "quarantined")],
)  # fmt: skip
def test_a_repeated_report_changes_nothing(
    client: TestClient, task: Task, word: str, body: dict[str, Any], state_after: str
) -> None:
    """A failure or a release is accepted once, however often it comes."""
    work = claimed(client)
    path, full = f"/workers/attempts/{work['attempt']}/{word}", {"fencing_token": 1, **body}
    answers = [client.post(path, json=full) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["task_state"] for answer in answers} == {state_after}
    assert client.post(path, json={**full, "fencing_token": 2}).status_code == 409


@pytest.mark.parametrize("word", ["merged", "failed", "released"])
def test_a_late_report_is_refused(
    client: TestClient, database: Database, task: Task, word: str
) -> None:
    """The next attempt has the task, under a higher fencing token."""
    first = claimed(client)
    expire(database)
    second = claimed(client, "next")
    assert second["fencing_token"] == first["fencing_token"] + 1
    bodies = {"merged": report(first), "failed": {"reason": "late"}, "released": {}}
    body = {"fencing_token": 1, **bodies[word]}
    answer = client.post(f"/workers/attempts/{first['attempt']}/{word}", json=body)
    assert (answer.status_code, "is lost since" in answer.json()["detail"]) == (409, True)
    stolen = {**body, "fencing_token": 1}
    answer = client.post(f"/workers/attempts/{second['attempt']}/{word}", json=stolen)
    assert answer.status_code in (409, 422)
    assert state(database, task) is TaskState.CLAIMED


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"outputs": [{"path": "/etc/passwd", "size": 1, "rows": 40}]}, "outputs[0].path"),
        ({"outputs": [{"path": "{}/../a.parquet", "size": 1, "rows": 40}]}, "outputs[0].path"),
        ({"outputs": [{"path": "{}/%2e%2e/a", "size": 1, "rows": 40}]}, "outputs[0].path"),
        ({"outputs": [{"path": "{}/", "size": 1, "rows": 40}]}, "outputs[0].path"),
        ({"outputs": [{"path": "{}-2/a", "size": 1, "rows": 40}]}, "outputs[0].path"),
        ({"outputs": [{"path": "{}/a\nb", "size": 1, "rows": 40}]}, "outputs[0].path"),
        ({"outputs": [{"path": "{}/a", "size": 1, "rows": 20}] * 2}, "outputs[1].path"),
        ({"outputs": [{"path": "{}/a", "size": 0, "rows": 40}]}, "outputs[0].size"),
        ({"outputs": [{"path": "{}/a", "size": 1, "rows": 39}]}, "outputs"),
        ({"outputs": [{"path": "{}/a", "size": 1, "rows": 2**63}]}, "outputs[0].rows"),
        ({"outputs": [], "rows_deleted": 40}, "rows_deleted"),
        ({"rows_in": 41}, "rows_in"),
        ({"rows_in": "40"}, "rows_in"),
        ({"rows_in": True}, "rows_in"),
        ({"way": "magic"}, "way"),
        ({"sort_order_id": -1}, "sort_order_id"),
        ({"fencing_token": None}, "fencing_token"),
        ({"because": "x" * 4_001}, "because"),
        ({"more": 1}, "more"),
    ],
)
def test_a_report_is_not_believed(
    client: TestClient, database: Database, task: Task, changes: dict[str, Any], field: str
) -> None:
    """Files elsewhere, rows that do not add up, rows that no delete can have deleted."""
    work = claimed(client)
    outputs = [
        {**one, "path": one["path"].format(work["directory"])} for one in changes.get("outputs", ())
    ]
    body = report(work, **{**changes, **({"outputs": outputs} if "outputs" in changes else {})})
    answer = client.post(f"/workers/attempts/{work['attempt']}/merged", json=body)
    assert answer.status_code == 422, answer.text
    assert field in [one["field"] for one in answer.json()["errors"]]
    assert state(database, task) is TaskState.CLAIMED


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "w", {"name": "a\x1bb"}, "name"),
        ("PUT", "w", {"name": "a", "slots": 0}, "slots"),
        ("PUT", "w", {"name": "a", "queues": [""]}, "queues[0]"),
        ("PUT", "w", {"name": "a", "labels": {"k": 1}}, "labels.k"),
        ("PUT", "a%20b", {"name": "a"}, "worker"),
        ("POST", "w/claim", {"key": "k", "wait_seconds": 101}, "wait_seconds"),
        ("POST", "w/claim", {"key": "k", "wait_seconds": -1}, "wait_seconds"),
        ("POST", "w/claim", {}, "key"),
        ("POST", "w/beat", {"attempts": [{"attempt": "a"}]}, "attempts[0].fencing_token"),
        ("POST", "w/burn", None, "worker_action"),
    ],
)
def test_a_bad_request_names_its_fields(
    client: TestClient, method: str, path: str, body: Any, field: str
) -> None:
    """And changes nothing."""
    answer = client.request(method, f"/workers/{path}", json=body)
    assert answer.status_code == 422, answer.text
    assert [one["field"] for one in answer.json()["errors"]] == [field]


def test_what_is_not_there_is_404(client: TestClient) -> None:
    """A worker that was forgotten registers again."""
    for method, path in [("GET", "no"), ("POST", "no/drain"), ("GET", "attempts/no")]:
        assert client.request(method, f"/workers/{path}").status_code == 404, path
    assert client.post("/workers/no/claim", json={"key": "k"}).status_code == 404
    assert client.post("/workers/no/beat", json={}).status_code == 404
    body = {"fencing_token": 1}
    assert client.post("/workers/attempts/no/released", json=body).status_code == 404
    assert client.delete("/workers/no").status_code == 204


def test_a_heartbeat_renews_and_tells(client: TestClient, database: Database, task: Task) -> None:
    """Go on; cancel, when the worker is to stop; lost, after its lease or for another's attempt."""
    work = claimed(client)
    held = {"attempt": work["attempt"], "fencing_token": 1}

    def beat_answer(*attempts: dict[str, Any], worker: str = "w") -> tuple[str, list[str]]:
        answer = client.post(f"/workers/{worker}/beat", json={"attempts": list(attempts)}).json()
        return answer["order"], [one["answer"] for one in answer["attempts"]]

    with database.begin() as tx:
        soon = utc_now() + timedelta(seconds=5)
        tx.execute(sa.update(compaction_attempts).values(expires_at=soon))
    wrong, unknown = {**held, "fencing_token": 2}, {**held, "attempt": "none"}
    assert beat_answer(held, wrong, unknown) == ("run", ["go on", "lost", "lost"])
    with database.read() as tx:
        (attempt,) = attempt_lookup.attempts_of(tx, task.id)
    assert attempt.expires_at > utc_now() + timedelta(seconds=50)
    assert client.put("/workers/v", json={"name": "two"}).status_code == 200
    assert beat_answer(held, worker="v") == ("run", ["lost"])
    assert client.post("/workers/w/stop").status_code == 200
    assert beat_answer(held) == ("stop", ["cancel"])
    expire(database)
    assert beat_answer(held) == ("stop", ["lost"])


def test_a_drained_worker_gets_nothing(client: TestClient, database: Database, task: Task) -> None:
    """Until it is resumed; each order is audited, and refused if it has it already."""
    before = client.get("/workers/w")
    drained = client.post("/workers/w/drain", headers={"If-Match": before.headers["etag"]})
    assert (drained.status_code, drained.json()["order"]) == (200, "quiet")
    answer = client.post("/workers/w/claim", json={"key": "k"}).json()
    assert (answer["order"], answer["assignment"]) == ("quiet", None)
    assert client.post("/workers/w/drain").status_code == 409
    old = {"If-Match": before.headers["etag"]}
    assert client.post("/workers/w/stop", headers=old).status_code == 412
    assert client.put("/workers/w", json={"name": "one"}).json()["order"] == "quiet"
    assert client.post("/workers/w/resume").status_code == 200
    assert claimed(client)["task"] == task.id
    with database.read() as tx:
        records = [one for one in audit.records(tx, feature="compaction") if one.subject == "w"]
    assert [(one.action, one.before, one.after) for one in reversed(records)] == [
        ("workers drain", {"order": "run"}, {"order": "quiet"}),
        ("workers resume", {"order": "quiet"}, {"order": "run"}),
    ]


def test_a_worker_that_ends_puts_its_tasks_back(
    client: TestClient, database: Database, task: Task
) -> None:
    """It costs no attempt, and a late claim of it finds no worker."""
    work = claimed(client)
    assert client.get("/workers/w").json()["tasks"] == 1
    assert [client.delete("/workers/w").status_code for _ in range(2)] == [204, 204]
    assert state(database, task) is TaskState.PLANNED
    with database.read() as tx:
        assert task_store.task_by_id(tx, task.id).attempts == 0
    assert client.post("/workers/w/claim", json={"key": "late"}).status_code == 404
    path = f"/workers/attempts/{work['attempt']}/merged"
    assert client.post(path, json=report(work)).status_code == 409
    assert client.get("/workers").json() == {"workers": []}


def test_a_scope_is_limited_to_queues(api: MakeApi, database: Database, tmp_path: Path) -> None:
    """A worker serves queues that its token admits; it reports on, and sees, no other's tasks."""
    table_of(lake_in(tmp_path / "lake"), files=0)
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="night"), utc_now())
        seen(tx, "lake.words")
        offer(tx, "lake.words", [planned("a", "b")], utc_now())
    night = api(token=token(database, "workers:write@queue=night", name="night"))
    every = api(token=token(database, "workers:write", name="every"))
    reads = api(token=token(database, "workers:read", "compaction:write", name="reads"))
    form = {"name": "n", "queues": ["night"]}
    assert night.put("/workers/n", json={"name": "n"}).status_code == 403
    assert night.put("/workers/n", json={**form, "queues": ["night", "day"]}).status_code == 403
    assert reads.put("/workers/n", json=form).status_code == 403
    assert night.put("/workers/n", json=form).status_code == 200
    assert claimed(night, worker="n") is None
    for worker in "ei":
        assert every.put(f"/workers/{worker}", json={"name": worker}).status_code == 200
    work = claimed(every, worker="e")
    path = f"/workers/attempts/{work['attempt']}"
    assert night.get(path).status_code == 403
    assert night.post(f"{path}/released", json={"fencing_token": 1}).status_code == 403
    bodies = {"claim": {"key": "k"}, "beat": {"key": "k"}, "drain": None}
    for way, body in bodies.items():
        assert night.post(f"/workers/e/{way}", json=body).status_code in (403, 422)
    # One with a task of another queue, and one without a task.
    assert [night.delete(f"/workers/{worker}").status_code for worker in "ei"] == [403, 403]
    assert night.put("/workers/e", json=form).status_code == 403
    assert every.get("/workers/e").json()["queues"] == []
    assert [one["worker"] for one in night.get("/workers").json()["workers"]] == ["n"]
    assert len(reads.get("/workers").json()["workers"]) == 3
    for way, body in bodies.items():
        assert reads.post(f"/workers/e/{way}", json=body).status_code == 403
    assert every.get(path).json()["state"] == "live"


def test_a_table_that_is_gone_costs_no_attempt(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    """The worker is asked to wait; the key is spent, and the task back."""
    with database.begin() as tx:
        seen(tx, "lake.gone")
        offer(tx, "lake.gone", [planned("a", "b")], utc_now())
        (one,) = task_store.tasks(tx)
    answer = client.post("/workers/w/claim", json={"key": "k", "wait_seconds": 9})
    assert answer.status_code == 200
    assert (answer.json()["assignment"], answer.json()["retry_seconds"]) == (None, 5)
    with database.read() as tx:
        after = task_store.task_by_id(tx, one.id)
    assert (after.state, after.attempts) == (TaskState.PLANNED, 0)
    assert "lake.gone" in after.reason
    assert client.post("/workers/w/claim", json={"key": "k"}).status_code == 409


def test_a_table_whose_sort_column_is_gone_fails_its_task(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    """It was dropped after the plan: the worker is asked to wait, and other tasks are given out."""
    catalog = lake_in(tmp_path / "lake")
    table = table_of(catalog)
    offered(database, table)
    with table.transaction() as change:
        change.set_properties({"arctic.compaction.sort": "gone"})
    assert claimed(client, "one") is None
    with database.read() as tx:
        (after,) = task_store.tasks(tx)
    assert after.state is TaskState.FAILED
    assert f"arctic.compaction.sort of {after.table}: got 'gone'" in after.reason
    offered(database, table_of(catalog, "lake.sound"))
    assert claimed(client, "two")["table"]["name"] == "lake.sound"
