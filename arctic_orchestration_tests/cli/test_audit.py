"""``arctic audit``: every change that a person makes with a command holds who it was."""

import getpass
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction.commit import commit_leases
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.consumers import store, working_set
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.run_queue_tables import queue_pauses
from arctic_orchestration.state.tables import audit as audit_table
from arctic_orchestration_tests.cli.compacting import SmallLake, lake
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.cli.tasked import Tasked, tasked, three
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue
from arctic_orchestration_tests.schedules.simulated import World

__all__ = ["lake", "tasked", "three"]

Command = Callable[..., Outcome]

ANN = Actor(name="ann", cluster="default")


@pytest.fixture(autouse=True)
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's user."""
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")


@pytest.fixture
def state(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The database that commands open; they know no Dagster instance."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Database(database_url)


def audited(database: Database) -> list[tuple[str, str]]:
    """Commands and their subjects, oldest first; all of them by ann."""
    with database.read() as tx:
        found = audit.records(tx, limit=1000)
    assert {record.actor for record in found} <= {ANN}
    return [(f"{one.feature} {one.action}", one.subject) for one in reversed(found)]


def details(database: Database) -> dict[str, Any]:
    """The details of the newest record."""
    with database.read() as tx:
        return dict(audit.records(tx, limit=1)[0].details)


def succeeds(arctic: Command, *arguments: str) -> None:
    result = arctic(*arguments)
    assert result.code == 0, result.err


def test_changes_of_consumers(state: Database, arctic: Command) -> None:
    """Retry, reset and delete; so does the partition. A refused one leaves none."""
    log = Log()
    log.arrives("01", "02")
    engine = engine_of(state, log, attempts=1)
    with engine.consume() as partitions:
        partitions.failed("01", reason="no such file")
    assert arctic("consumers", "retry", "totals", "99").code == 2
    assert audited(state) == []
    succeeds(arctic, "consumers", "retry", "totals", "01")
    assert details(state) == {"partitions": ["01"]}
    with state.read() as tx:
        one = store.by_name(tx, "default", "totals")
        (waiting,) = working_set.partitions_of(tx, one.id, [PartitionState.WAITING], 9)
    assert waiting.reason == "delivered again by ann"
    succeeds(arctic, "consumers", "reset", "totals", "--start", "from_now", "--yes")
    succeeds(arctic, "consumers", "delete", "totals", "--yes")
    assert audited(state) == [
        ("consumers retry", "totals"),
        ("consumers reset", "totals"),
        ("consumers delete", "totals"),
    ]


def test_changes_of_compaction(lake: SmallLake, arctic: Command) -> None:
    """Queues, tables, tasks and plans; what changed nothing is not recorded."""
    lake.table("lake.a", 3)
    for arguments in (
        ("queues", "add", "night"),
        ("queues", "update", "night", "--capacity", "7"),
        ("queues", "pause", "night"),
        ("queues", "pause", "night"),
        ("queues", "drain", "night"),
        ("queues", "resume", "night"),
        ("map", "lake.a", "night"),
        ("unmap", "lake.a"),
        ("queues", "delete", "night"),
        ("due", "lake.a"),
        ("plan", "lake.a", "--dry-run"),
        ("plan", "lake.a", "--force"),
    ):
        succeeds(arctic, "compaction", *arguments)
    failed = lake.fail("the disk is full").task.id
    succeeds(arctic, "compaction", "tasks", "retry", failed)
    assert details(lake.database) == {"table": "lake.a", "state": "failed"}
    succeeds(arctic, "compaction", "tasks", "cancel", failed)
    history = json.loads(arctic("compaction", "tasks", "show", failed, "--json").out)["history"]
    assert history[-1]["reason"] == "canceled by ann"
    succeeds(arctic, "compaction", "wake", "lake.a")
    succeeds(arctic, "compaction", "expire-snapshots", "lake.a", "--older-than", "7d")
    succeeds(arctic, "compaction", "remove-orphans", "lake.a", "--older-than", "7d")
    succeeds(arctic, "compaction", "rewrite-manifests", "lake.a")
    succeeds(arctic, "compaction", "forget-catalog")
    *made, (last, _) = audited(lake.database)
    assert made == [
        ("compaction queues add", "night"),
        ("compaction queues update", "night"),
        ("compaction queues pause", "night"),
        ("compaction queues drain", "night"),
        ("compaction queues resume", "night"),
        ("compaction map", "lake.a"),
        ("compaction unmap", "lake.a"),
        ("compaction queues delete", "night"),
        ("compaction due", "lake.a"),
        ("compaction plan", "lake.a"),
        ("compaction tasks retry", failed),
        ("compaction tasks cancel", failed),
        ("compaction wake", "lake.a"),
        ("compaction expire-snapshots", "lake.a"),
        ("compaction remove-orphans", "lake.a"),
        ("compaction rewrite-manifests", "lake.a"),
    ]
    assert last == "compaction forget-catalog"


def test_a_run_and_the_cancel_of_a_merged_task(lake: SmallLake, arctic: Command) -> None:
    """A run that finds the queue paused has offered its plan all the same."""
    lake.table("lake.a", 3)
    succeeds(arctic, "compaction", "queues", "pause", "default")
    assert arctic("compaction", "run", "lake.a").code == 1
    assert details(lake.database) == {"force": False, "offered": 1, "replaced": 0}
    succeeds(arctic, "compaction", "queues", "resume", "default")
    claim = lake.claim()
    with lake.database.begin() as tx:
        attempts.merged(
            tx, claim.attempt_id, claim.token, outputs=[], rows_in=3, rows_deleted=3,
            rows_out=0, way="decode", because="all rows are deleted",
        )  # fmt: skip
        # While a committer has the table, the cancel is refused.
        lease = commit_leases.take_commit_lease(tx, "lake.a", "committer-7")
        assert lease is not None
    assert arctic("compaction", "tasks", "cancel", claim.task.id).code == 2
    with lake.database.begin() as tx:
        commit_leases.end_commit_lease(tx, lease)
    succeeds(arctic, "compaction", "tasks", "cancel", claim.task.id)
    assert lake.tasks(TaskState.CANCELED)[0].reason == "canceled by ann"
    assert audited(lake.database) == [
        ("compaction queues pause", "default"),
        ("compaction run", "lake.a"),
        ("compaction queues resume", "default"),
        ("compaction tasks cancel", claim.task.id),
    ]


def test_changes_of_the_run_queue(
    ruled: Callable[..., RunQueue], database_url: str, arctic: Command
) -> None:  # fmt: skip
    """The pause holds who it was, and the runs that wait say it."""
    queue = ruled(max_concurrent_runs=9, queues={"low": {"match": {"job": "load"}}})
    state = Database(database_url)
    run = queue.submit("load")
    succeeds(arctic, "queues", "pause", "low", "--reason", "moving house")
    assert details(state) == {"kind": "queue", "reason": "moving house"}
    with state.read() as tx:
        assert tx.execute(sa.select(queue_pauses.c.actor)).scalar_one() == "ann"
    queue.iterate()
    (line,) = json.loads(arctic("runs", "list", "--json").out)["runs"]
    assert line["held_by"]["reason"].endswith(" by ann (moving house)")
    listed = json.loads(arctic("queues", "list", "--json").out)["queues"]
    paused = {one["queue"]: one["paused"] for one in listed if one["paused"]}
    assert paused["low"]["by"] == "ann"
    succeeds(arctic, "queues", "pause", "low")
    succeeds(arctic, "runs", "prioritize", run.run_id, "0")
    assert "job load, level 0" in " ".join(arctic("audit", "--limit", "1").out.split())
    succeeds(arctic, "runs", "prioritize", run.run_id, "3")
    assert details(state) == {"job": "load", "level": 3}
    succeeds(arctic, "queues", "resume", "low")
    assert audited(state) == [
        ("queues pause", "low"),
        ("runs prioritize", run.run_id),
        ("runs prioritize", run.run_id),
        ("queues resume", "low"),
    ]


def test_changes_of_tasks(three: Tasked, arctic: Command) -> None:
    """Submit, the skip list, and a location that is forgotten."""
    succeeds(arctic, "tasks", "submit", "top", "raw", "--force")
    assert details(three.database)["force"] is True
    succeeds(arctic, "tasks", "skip", "top", "--reason", "not today")
    assert details(three.database) == {"reason": "not today"}
    succeeds(arctic, "tasks", "unskip", "top")
    succeeds(arctic, "tasks", "forget", "lake", "--yes")
    assert audited(three.database) == [
        ("tasks submit", "top, raw"),
        ("tasks skip", "top"),
        ("tasks unskip", "top"),
        ("tasks forget", "lake"),
    ]


def test_changes_of_locations(state: Database, arctic: Command) -> None:
    """Unbind, rename, delete, and a feed that is restarted."""
    daily = Schedule(name="daily", target="rollup", trigger=on.partitions("raw/a"), enabled=True)
    World(state, [daily], location="old").tick(0)
    succeeds(arctic, "locations", "unbind", "old", "--yes")
    succeeds(arctic, "locations", "rename", "old", "new", "--yes")
    succeeds(arctic, "feed", "restart", "new")
    succeeds(arctic, "locations", "delete", "new", "--yes")
    assert details(state) == {"schedules": 1, "active_jobs": 0}
    assert arctic("feed", "restart", "new").code == 2
    assert audited(state) == [
        ("locations unbind", "old"),
        ("locations rename", "old"),
        ("feed restart", "new"),
        ("locations delete", "new"),
    ]


def test_the_log_is_listed_filtered_and_escaped(state: Database, arctic: Command) -> None:
    """Newest first; a name that no terminal shows as it is, and no database holds, is escaped."""
    assert arctic("audit").out == "no such changes\n"
    bob = Actor(name="bob", cluster="west")
    with state.begin() as tx:
        audit.record(tx, ANN, "consumers", "retry", "totals", partitions=["a\0\udc80"])
        audit.record(tx, bob, "tasks", "skip", "to\x1bp\udc80", reason="not today", force=False)
    first, second = arctic("audit").out.splitlines()[2:]
    assert first.split()[2:6] == ["bob", "west", "tasks", "skip"]
    assert first.rstrip().endswith("reason not today")
    assert "\x1b" not in first
    assert "totals" in second
    for arguments in (("--actor", "bob"), ("--feature", "tasks"), ("--limit", "1")):
        (only,) = json.loads(arctic("audit", "--json", *arguments).out)["records"]
        assert (only["actor"], only["cluster"], only["action"]) == ("bob", "west", "skip")
    (found,) = json.loads(arctic("audit", "--json", "--subject", "totals").out)["records"]
    assert found["details"] == {"partitions": ["a\0\udc80"]}


def test_a_record_is_rolled_back_with_its_change(state: Database) -> None:
    """Nothing is recorded of what did not happen."""
    with pytest.raises(RuntimeError), state.begin() as tx:
        audit.record(tx, ANN, "consumers", "retry", "totals")
        raise RuntimeError
    assert audited(state) == []


def test_old_records_are_deleted(state: Database) -> None:
    """The next record deletes those that are older than the log is kept."""
    with state.begin() as tx:
        for subject, age in (("old", audit.KEEP + timedelta(days=1)), ("young", timedelta(days=9))):
            audit.record(tx, ANN, "tasks", "skip", subject)
            this = sa.update(audit_table).where(audit_table.c.subject == subject)
            tx.execute(this.values(at=database_time(tx) - age))
        audit.record(tx, ANN, "tasks", "skip", "new")
    assert [subject for _, subject in audited(state)] == ["young", "new"]
