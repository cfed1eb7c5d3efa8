"""Cases in which a run queue went wrong once, or would with less care."""

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from dagster import DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.storage.tags import PARENT_RUN_ID_TAG

from arctic_orchestration import migration_scripts, postgres_connections
from arctic_orchestration.run_queue import levels, waits
from arctic_orchestration.run_queue.dagster import coordinator, passes
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue
from arctic_orchestration_tests.run_queue.coordinator.listening import Clock, reported_waits

MakeQueue = Callable[..., RunQueue]
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.now = NOON
    return clock


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_the_zone_of_postgres_changes_no_rate_and_no_interval(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Dagster writes when a run was changed by the zone of its session, into a column without."""
    monkeypatch.setenv("PGTZ", zone)
    rules = {
        "rates": {"api": {"limit": 2, "per": "10m", "match": {"job": "load"}}},
        "intervals": {"calm": {"duration": "10m", "match": {"job": "bill"}}},
    }
    queue = make_queue("postgres", {**OURS, "config": rules})
    queue.iterate()
    for job in ("load",) * 5 + ("bill",) * 3:
        queue.submit(job)
    counts = []
    for _ in range(3):
        started = queue.iterate()
        counts.append(len(started))
        for run in started:
            queue.report(run, Status.STARTED)
            queue.report(run, Status.SUCCESS)
    assert counts == [3, 0, 0]


def test_a_program_that_a_pool_held_starts_when_the_pool_has_room(ruled: MakeQueue) -> None:
    """Though another queue always has runs for all slots."""
    queue = ruled(max_concurrent_runs=2, queues={"low": {"match": {"job": "needs_ice"}}})
    storage = queue.instance.event_log_storage
    storage.set_concurrency_slots("ice", 0)
    iced = queue.submit("needs_ice")
    queue.iterate()
    queue.iterate()
    for _ in range(8):
        queue.submit("load")
    running = [*queue.iterate(), *queue.iterate()]
    assert iced.run_id not in running
    storage.set_concurrency_slots("ice", 10)
    for _ in range(2):
        queue.report(running.pop(0), Status.SUCCESS)
        running += queue.iterate()
    assert iced.run_id in running


def test_runs_that_a_pool_holds_leave_the_shares_of_others_alone(ruled: MakeQueue) -> None:
    """Of one queue hundreds wait for a pool: its other runs still share with another queue."""
    queue = ruled(
        max_concurrent_runs=4,
        queues={"back": {"match": {"job": "needs_ice"}}, "front": {"match": {"job": "bill"}}},
    )
    queue.instance.event_log_storage.set_concurrency_slots("ice", 0)
    for _ in range(30):
        queue.submit("needs_ice")
    queue.iterate()
    queue.iterate()
    for _ in range(6):
        queue.submit("load", tags={"arctic/queue": "back"})
        queue.submit("bill")
    jobs = [queue.run(run).job_name for run in queue.iterate()]
    assert sorted(jobs) == ["bill", "bill", "load", "load"]


def test_a_rate_is_not_used_up_by_runs_that_a_pool_holds(ruled: MakeQueue) -> None:
    """One of them keeps a turn, to start when the pool has room."""
    queue = ruled(rates={"api": {"limit": 2, "per": "10m", "match": {"job": "*"}}})
    queue.instance.event_log_storage.set_concurrency_slots("ice", 0)
    iced = [queue.submit("needs_ice") for _ in range(3)]
    queue.iterate()
    queue.iterate()
    free = queue.submit("load")
    assert queue.iterate() == [free.run_id]
    turns = [queue.run(run).tags["arctic/rate.api"] for run in iced]
    assert turns == ["granted", "waiting", "waiting"]


def test_the_wait_of_a_run_behind_many_of_its_program_is_reported_once(
    ruled: MakeQueue, clock: Clock
) -> None:
    """Not for each of those before it that begins, ends and rests."""
    clock.now = datetime.now(UTC)
    queue = ruled(intervals={"calm": {"duration": "10m", "match": {"job": "load"}}})
    runs = [queue.submit("load") for _ in range(4)]
    for number in range(3):
        assert queue.iterate() == [runs[number].run_id]
        # Dagster's own time, by which runs end, is real.
        clock.now = datetime.now(UTC)
        assert queue.iterate() == []
        queue.report(runs[number], Status.STARTED)
        queue.report(runs[number], Status.SUCCESS)
        assert queue.iterate() == []
        clock.pass_(minutes=15)
    assert len(reported_waits(queue, runs[3])) == 1


def test_limits_that_alternate_with_slots_are_reported_once_in_five_minutes(
    ruled: MakeQueue, clock: Clock
) -> None:
    """As runs start and end: a thousand runs behind them would each get an event each time."""
    queue = ruled(max_concurrent_runs=2, groups={"few": {"limit": 1, "match": {"job": "load"}}})
    group = "group few: 1 of 1 runs are in progress"
    turn = "its turn: 2 of 2 slots are in use"
    load, bill, held = (queue.submit(job) for job in ("load", "bill", "load"))
    assert [queue.iterate(), queue.iterate()] == [[load.run_id, bill.run_id], []]
    assert reported_waits(queue, held) == [group]
    for _ in range(3):
        queue.report(load, Status.SUCCESS)
        first = queue.submit("bill", tags={"dagster/priority": "1"})
        assert [queue.iterate(), queue.iterate()] == [[first.run_id], []]
        queue.report(first, Status.SUCCESS)
        load = queue.submit("load", tags={"dagster/priority": "1"})
        assert [queue.iterate(), queue.iterate()] == [[load.run_id], []]
    queue.report(load, Status.SUCCESS)
    first = queue.submit("bill", tags={"dagster/priority": "1"})
    assert [queue.iterate(), queue.iterate()] == [[first.run_id], []]
    assert reported_waits(queue, held) == [group]
    clock.pass_(minutes=5)
    queue.iterate()
    assert reported_waits(queue, held) == [group, turn]


def run_again(queue: RunQueue, run: DagsterRun) -> DagsterRun:
    """A run that executes another one again, with its tags, as Dagster makes it."""
    tags = {**queue.run(run).tags, PARENT_RUN_ID_TAG: run.run_id}
    return queue.submit(run.job_name, tags=tags)


def test_a_reported_wait_is_not_that_of_a_re_execution(ruled: MakeQueue) -> None:
    """Nor a level that a person gave to it alone; its own level is kept."""
    queue = ruled(
        groups={"few": {"limit": 0, "match": {"job": "load"}}},
        queues={"urgent": {"level": 2, "match": {"job": "load"}}},
    )
    first = queue.submit("load", tags={"arctic/window": "nobody"})
    queue.iterate()
    tags = levels.tags_of(9, queue.run(first).tags, NOON, queue.coordinator.rules)
    queue.instance.add_run_tags(first.run_id, tags)
    assert queue.run(first).tags["arctic/level"] == "9"
    assert queue.run(first).tags["arctic/wait"].startswith("group few")
    again = run_again(queue, first).tags
    assert (again["arctic/level"], again["arctic/wait"]) == ("2", "nothing")


def test_a_lock_on_the_state_database_holds_up_no_run_that_stands_under_no_rule(
    make_queue: MakeQueue, postgres_database: str, postgres_server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A pass waits a bounded time for it, here half a second."""
    url = postgres_server.url(postgres_database)
    Database(url).upgrade()
    monkeypatch.setenv("ARCTIC_DATABASE_URL", url)
    monkeypatch.setattr(passes, "_BUSY_SECONDS", 0.5)
    queue = make_queue("sqlite", {**OURS, "config": {"groups": {"g": {"limit": 1}}}})
    run = queue.submit("load")
    locking = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    with locking.begin() as tx:
        tx.execute(sa.text("lock table arctic_queue_pauses in access exclusive mode"))
        thread = threading.Thread(target=queue.iterate, daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
        assert queue.launched == [run.run_id]
    locking.dispose()


def test_a_state_file_that_is_gone_is_trouble_and_no_new_one_is_made(
    make_queue: MakeQueue, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one would know of no pause."""
    file = tmp_path / "arctic.db"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{file}")
    config = {"queues": {"low": {"paused": True, "match": {"job": "load"}}}}
    queue = make_queue("sqlite", {**OURS, "config": config})
    run = queue.submit("load")
    assert queue.iterate() == []
    for part in tmp_path.glob("arctic.db*"):
        part.unlink()
    assert [queue.iterate(), queue.iterate()] == [[], []]
    assert not file.exists()
    assert queue.status(run) is Status.QUEUED


def test_runs_that_cannot_be_judged_have_that_reason(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state database never answered: what is paused is unknown."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", "postgresql://127.0.0.1:1/nobody")
    config = {"queues": {"low": {"match": {"job": "load"}}}}
    queue = make_queue("sqlite", {**OURS, "config": config})
    run = queue.submit("load")
    assert [queue.iterate(), queue.iterate()] == [[], []]
    (reason,) = reported_waits(queue, run)
    assert reason.startswith("the state database, which does not answer")


def test_two_sets_of_many_assets_are_two_programs() -> None:
    """Though they begin alike, and only three are written out."""
    from arctic_orchestration.run_queue.rules import RunFacts
    from arctic_orchestration.run_queue.tags import program_of

    one, other = (
        program_of(RunFacts(job="__ASSET_JOB", assets=(*"abc", last))) for last in ("d", "e")
    )
    assert one != other


def test_a_queue_that_is_gone_counts_its_runs_in_no_other(
    backend: str, make_queue: MakeQueue, clock: Clock
) -> None:
    """Dagster counts by the tag; the slots that the default queue may use are its own."""
    old = make_queue(backend, {**OURS, "config": {"queues": {"gone": {"match": {"job": "load"}}}}})
    before = [old.submit("load") for _ in range(2)]
    assert old.iterate() == [run.run_id for run in before]
    new = make_queue(
        backend,
        {**OURS, "config": {"max_concurrent_runs": 4,
                            "queues": {"urgent": {"match": {"job": "bill"}}}}},
    )  # fmt: skip
    for _ in range(4):
        new.submit("needs_fog")
        new.submit("bill")
    jobs = sorted(new.run(run).job_name for run in new.iterate())
    # Two of default are in progress, by their rules if not by their tags.
    assert jobs == ["bill", "bill"]


def test_without_rules_no_run_is_said_to_wait_for_them(
    backend: str, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon without rules makes no passes that would delete what earlier ones reported."""
    url = Settings.from_environment().database_url
    ruled = make_queue(
        backend, {**OURS, "config": {"groups": {"none": {"limit": 0, "match": {"job": "load"}}}}}
    )
    run = ruled.submit("load")
    ruled.iterate()
    with closing(Database.open(url)) as database, database.read() as tx:
        assert waits.reported_waits(tx, "default").keys() == {run.run_id}
    monkeypatch.setattr(coordinator, "in_daemon", lambda: True)
    # What the process of the daemon keeps.
    monkeypatch.setattr(postgres_connections, "reuse_in_instance", lambda _: None)
    monkeypatch.setattr(migration_scripts, "remember", lambda: None)
    assert make_queue(backend, OURS).iterate() == [run.run_id]
    with closing(Database.open(url)) as database, database.read() as tx:
        assert waits.reported_waits(tx, "default") == {}
