"""Levels that age, and those that a person gives to runs that wait."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterRun
from dagster import DagsterRunStatus as Status

from arctic_orchestration import migration_scripts, postgres_connections
from arctic_orchestration.run_queue import levels
from arctic_orchestration.run_queue.dagster import coordinator, passes
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue
from arctic_orchestration_tests.run_queue.coordinator.listening import Clock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
#: of noon: 2026-03-02 is day 20514 since 1970-01-01
NOON_SECONDS = 20_514 * 86_400 + 12 * 3_600
LATER = NOON + timedelta(hours=1)


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.now = NOON
    return clock


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    made = Database(database_url)
    made.upgrade()
    return made


@pytest.fixture
def queue(
    backend: str, make_queue: Callable[..., RunQueue], clock: Clock, database: Database
) -> RunQueue:
    config = {"max_concurrent_runs": 1, "seconds_per_level": 60}
    return make_queue(backend, {**OURS, "config": config})


def request(database: Database, run: DagsterRun, level: int, at: datetime = NOON) -> None:
    with database.begin() as tx:
        levels.request_level(tx, "default", run.run_id, level, at)


def requested(database: Database) -> list[levels.LevelRequest]:
    with database.read() as tx:
        return levels.pending_levels(tx, "default")


def started_one_by_one(queue: RunQueue) -> list[str]:
    """All runs in the order in which they start in the one slot."""
    order: list[str] = []
    while started := queue.iterate():
        order += started
        queue.report(started[0], Status.SUCCESS)
    return order


def test_a_minute_of_waiting_counts_as_a_level(queue: RunQueue, clock: Clock) -> None:
    """At 60 s a level: what came 61 s before goes first, what came 59 s before does not."""
    runs: dict[str, DagsterRun] = {}
    for name, second, level in (("old", 0, 0), ("young", 2, 0), ("urgent", 61, 1)):
        clock.now = NOON + timedelta(seconds=second)
        runs[name] = queue.submit("load", tags={"arctic/level": str(level)})
    assert started_one_by_one(queue) == [runs[name].run_id for name in ("old", "urgent", "young")]
    assert runs["urgent"].tags["dagster/priority"] == str(60 - (NOON_SECONDS + 61))


def test_a_manual_level_counts_in_the_next_pass(queue: RunQueue, database: Database) -> None:
    """It keeps its age; what was requested is forgotten then."""
    first, second, third = (queue.submit("load") for _ in range(3))
    request(database, third, 4)
    assert queue.iterate() == [third.run_id]
    tags = queue.run(third).tags
    assert (tags["arctic/level"], tags[".dagster/arctic_queued_at"]) == (
        "4",
        "2026-03-02T12:00:00Z",
    )
    assert tags["dagster/priority"] == str(4 * 60 - NOON_SECONDS)
    assert requested(database) == []
    queue.report(third, Status.SUCCESS)
    request(database, first, -1)
    assert queue.iterate() == [second.run_id]


def test_the_last_of_several_manual_levels_counts(queue: RunQueue, database: Database) -> None:
    """Also of one that came while the one before was being written."""
    run = queue.submit("load")
    request(database, run, 1)
    (first,) = requested(database)
    request(database, run, 2, LATER)
    with database.begin() as tx:
        levels.written(tx, "default", first)
    assert [request.level for request in requested(database)] == [2]
    queue.iterate()
    assert queue.run(run).tags["arctic/level"] == "2"


def test_many_manual_levels_do_not_hold_up_what_can_start(
    queue: RunQueue, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass whose time for them is over goes on after one, and the next ones write the rest."""
    monkeypatch.setattr(passes, "_LEVELS_SECONDS", -1)
    runs = [queue.submit("load") for _ in range(3)]
    for run in runs:
        request(database, run, 4)
    started = queue.iterate()
    assert (len(started), len(requested(database))) == (1, 2)
    assert [queue.iterate(), queue.iterate()] == [[], []]
    assert requested(database) == []
    assert {queue.run(run).tags["arctic/level"] for run in runs[1:]} == {"4"}


def test_a_level_that_was_written_and_not_forgotten_is_written_again(
    queue: RunQueue, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in between costs nothing: the pass after it does both."""
    blocking, run = queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [blocking.run_id]
    request(database, run, 3)

    def crash(*given: Any) -> None:
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(levels, "written", crash)
        queue.iterate()
    assert queue.run(run).tags["arctic/level"] == "3"
    assert [request.level for request in requested(database)] == [3]
    queue.iterate()
    assert (queue.run(run).tags["arctic/level"], requested(database)) == ("3", [])


def test_a_level_for_a_run_that_waits_no_more_is_forgotten(
    queue: RunQueue, database: Database
) -> None:
    """Started, or deleted: its tags stay as they are."""
    started, deleted = queue.submit("load"), queue.submit("load")
    assert queue.iterate() == [started.run_id]
    queue.instance.delete_run(deleted.run_id)
    for run in (started, deleted):
        request(database, run, 9)
    queue.iterate()
    assert requested(database) == []
    assert queue.run(started).tags["arctic/level"] == "0"


def test_levels_of_another_cluster_are_not_written(queue: RunQueue, database: Database) -> None:
    """Several Dagster instances may share the state database."""
    run = queue.submit("load")
    with database.begin() as tx:
        levels.request_level(tx, "elsewhere", run.run_id, 9, NOON)
    queue.iterate()
    assert queue.run(run).tags["arctic/level"] == "0"


@pytest.mark.parametrize("groups", [{}, {"few": {"limit": 9, "match": {"job": "*"}}}])
def test_runs_that_wait_when_the_queues_are_removed_are_not_overtaken(
    make_queue: Callable[..., RunQueue],
    backend: str,
    groups: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their aged numbers are below those of all later runs; what a user gives then stays."""
    before = make_queue(backend, {**OURS, "config": {"queues": {"urgent": {"level": 2}}}})
    first, second = before.submit("load"), before.submit("load")
    urgent = before.submit("load", tags={"arctic/queue": "urgent"})
    monkeypatch.setattr(coordinator, "in_daemon", lambda: True)
    # What the process of the daemon keeps.
    monkeypatch.setattr(postgres_connections, "reuse_in_instance", lambda _: None)
    monkeypatch.setattr(migration_scripts, "remember", lambda: None)
    section = {**OURS, "config": {"max_concurrent_runs": 1, "groups": groups}}
    queue = make_queue(backend, section)
    later = queue.submit("load")
    assert queue.iterate() == [urgent.run_id]
    queue.report(urgent, Status.SUCCESS)
    queue.instance.add_run_tags(second.run_id, {"dagster/priority": "9"})
    order = started_one_by_one(make_queue(backend, section))
    assert order == [second.run_id, first.run_id, later.run_id]
