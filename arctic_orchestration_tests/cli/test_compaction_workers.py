"""``arctic compaction workers``, beside the same over REST."""

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from arctic_orchestration.compaction.work.workers import WorkerInfo, record_heartbeat
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import audit
from arctic_orchestration_tests.cli.compacting import SmallLake, lake
from arctic_orchestration_tests.cli.conftest import Outcome

__all__ = ["lake"]

Command = Callable[..., Outcome]


@pytest.fixture
def workers(lake: SmallLake) -> SmallLake:
    """Two workers with one name, and one with another."""
    for id, name, queues in (("w1", "twin", ()), ("w2", "twin", ("fast",)), ("w3", "bo[x]", ())):
        with lake.database.begin() as tx:
            info = WorkerInfo(
                id=id, name=name, queues=queues, parallelism=2, host="h", pid=9, version="1"
            )
            record_heartbeat(tx, info)
    return lake


def test_workers_are_listed_as_over_rest(workers: SmallLake, arctic: Command) -> None:
    """Oldest first; the JSON is the one of the service."""
    listed = json.loads(arctic("compaction", "workers", "list", "--json").out)
    app = create_app(Settings.from_environment(), workers.database, AccessRules())
    client = TestClient(app, base_url="http://localhost/api/v1", client=("127.0.0.1", 5))
    assert listed == client.get("/workers").json()
    assert [(w["worker"], w["order"], w["merges"]) for w in listed["workers"]] == [
        ("w1", "run", []), ("w2", "run", []), ("w3", "run", []),
    ]  # fmt: skip
    shown = arctic("compaction", "workers", "list").out
    assert "bo[x]" in shown
    assert "0 of 2" in shown


def test_a_worker_is_drained_by_its_name_or_id(workers: SmallLake, arctic: Command) -> None:
    """Twice is refused, and so is a name of several; each change has a record."""
    done = arctic("compaction", "workers", "drain", "bo[x]")
    assert (done.code, done.out) == (
        0,
        "worker bo[x] finishes its tasks, and claims nothing\n",
    )
    twice = arctic("compaction", "workers", "drain", "bo[x]")
    assert "has the order to quiet already" in twice.err
    assert twice.code != 0
    many = arctic("compaction", "workers", "stop", "twin")
    assert (many.code, "several workers have the name: w1, w2" in many.err) == (2, True)
    lost = arctic("compaction", "workers", "stop", "lost")
    assert "no compaction worker lost; there is: bo[x], twin" in lost.err
    stopped = json.loads(arctic("compaction", "workers", "stop", "w2", "--json").out)
    assert (stopped["worker"], stopped["order"]) == ("w2", "stop")
    assert arctic("compaction", "workers", "resume", "w3").code == 0
    with workers.database.read() as tx:
        made = audit.records(tx, feature="compaction", limit=3)
    assert [(record.action, record.subject) for record in reversed(made)] == [
        ("workers drain", "w3"), ("workers stop", "w2"), ("workers resume", "w3"),
    ]  # fmt: skip
