"""A worker claims, merges, renews, reports, and ends in an orderly way."""

import threading
import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts, task_source, workers
from arctic_orchestration.compaction.work import worker as worker_module
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import What, Worker, WorkerEvent
from arctic_orchestration.errors import (
    CatalogUnavailable,
    DatabaseUnavailable,
    LakeError,
    UnsupportedTable,
    WorkerBroken,
)
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.small_lake import Merging, offered, table_of, tasks_of
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until

AT_ONCE = timedelta(0)
#: a lease that does not end while a test looks on, however slow the machine is,
LONG = timedelta(minutes=10)
#: and how often it is renewed: each hundredth of a second
OFTEN = 60_000


def table_row(state: Database) -> tables.CompactionTable:
    """What is known of the table."""
    with state.read() as tx:
        return tables.table_by_name(tx, "lake.words")


def test_it_merges_what_waits_and_reports_it(state: Database, catalog: Catalog) -> None:
    """Each task once, into a directory of its attempt; then it ends, as nothing waits."""
    offered(state, table_of(catalog, files=6), at_once=2)
    merging, events = Merging(), list[Any]()
    done = Worker(DatabaseSource(state, catalog), merging, on_event=events.append).run(AT_ONCE)
    assert (done.of(What.CLAIMED), done.of(What.MERGED), done.of(What.FAILED)) == (3, 3, 0)
    assert {task.state for task in tasks_of(state)} == {TaskState.MERGED}
    with state.read() as tx:
        found = [attempt_lookup.attempts_of(tx, task.id)[-1] for task in tasks_of(state)]
    assert sorted(Path(path).name for path in merging.directories) == sorted(
        attempt.directory for attempt in found
    )
    assert all(Path(one.path).exists() for attempt in found for one in attempt.outputs or ())
    assert [event.what for event in events].count(What.MERGED) == 3


def test_as_many_tasks_at_once_as_configured(state: Database, catalog: Catalog) -> None:
    offered(state, table_of(catalog, files=6), at_once=1)
    meet = threading.Barrier(3)

    def together(group: FileGroup) -> None:
        # Never passed by fewer than three.
        meet.wait(PATIENCE_SECONDS)

    merging = Merging(before=together)
    done = Worker(DatabaseSource(state, catalog), merging, parallelism=3).run(AT_ONCE)
    assert (done.of(What.MERGED), merging.most_at_once) == (6, 3)


def test_a_merge_that_fails_is_reported_and_leaves_no_file(
    state: Database, catalog: Catalog
) -> None:
    """With its reason; the task waits for its next attempt."""
    offered(state, table_of(catalog))

    def full(group: FileGroup) -> None:
        raise OSError(28, "No space left on device")

    merging = Merging(before=full)
    done = Worker(DatabaseSource(state, catalog), merging).run(AT_ONCE)
    assert done.of(What.FAILED) == 1
    (task,) = tasks_of(state)
    assert task.state is TaskState.FAILED
    assert "No space left on device" in task.reason
    assert not any(Path(one).exists() for one in merging.directories)


def test_what_no_attempt_can_do_is_given_up_at_once(state: Database, catalog: Catalog) -> None:
    offered(state, table_of(catalog))

    def refuse(group: FileGroup) -> None:
        raise UnsupportedTable("lake.words: column id: type uuid does not survive Spark")

    Worker(DatabaseSource(state, catalog), Merging(before=refuse)).run(AT_ONCE)
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.QUARANTINED, 1)
    assert "type uuid does not survive Spark" in task.reason
    assert table_row(state).rests_until is not None


def test_a_long_merge_keeps_its_lease(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renewed until the merge ends, however long that takes: no attempt is lost."""
    offered(state, table_of(catalog))
    monkeypatch.setattr(worker_module, "RENEWALS", OFTEN)

    def long(group: FileGroup) -> None:
        for _ in range(3):
            # As if half of its life had passed.
            soon = ends_in(state, LONG / 2)
            renewed = partial(renewed_beyond, state, soon)
            until(renewed, "the lease is renewed")

    done = Worker(DatabaseSource(state, catalog, life=LONG), Merging(before=long)).run(AT_ONCE)
    assert (done.of(What.MERGED), done.of(What.LOST)) == (1, 0)
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.MERGED, 1)


def test_a_lease_that_is_not_renewed_is_lost_and_its_outputs_go(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may have the task: nothing is reported, and nothing of it stays."""
    offered(state, table_of(catalog))
    monkeypatch.setattr(worker_module, "RENEWALS", OFTEN)

    def away(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("The state database did not answer: it is a test")

    monkeypatch.setattr(attempts, "renew", away)
    reported: list[str] = []
    monkeypatch.setattr(attempts, "merged", lambda tx, id, *_, **__: reported.append(id))
    worker = Worker(DatabaseSource(state, catalog, life=LONG), merging := Merging())

    def until_lost(group: FileGroup) -> None:
        (held,) = worker._held.values()
        assert not held.lost.is_set()
        # As if its whole life had passed.
        held.trusted_until = time.monotonic()
        ends_in(state, AT_ONCE)
        with state.begin() as tx:
            assert attempts.expire(tx) == 1
        assert held.lost.wait(PATIENCE_SECONDS)

    merging.before = until_lost
    done = run_once(worker)
    assert (done.of(What.MERGED), done.of(What.LOST), reported) == (0, 1, [])
    assert not any(Path(one).exists() for one in merging.directories)
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.PLANNED, 1)
    assert "was lost" in task.reason


def test_draining_finishes_what_it_has_and_claims_nothing_more(
    state: Database, catalog: Catalog
) -> None:
    offered(state, table_of(catalog, files=4), at_once=1)
    merging = Merging()
    worker = Worker(DatabaseSource(state, catalog), merging)
    merging.before = lambda group: worker.drain()
    done = worker.run()
    assert (done.of(What.CLAIMED), done.of(What.MERGED)) == (1, 1)
    states = sorted(task.state for task in tasks_of(state))
    assert states == [TaskState.MERGED, *[TaskState.PLANNED] * 3]


def test_giving_back_lets_others_claim_at_once_and_costs_no_attempt(
    state: Database, catalog: Catalog
) -> None:
    offered(state, table_of(catalog))
    canceled = threading.Event()
    merging = Merging()
    worker = Worker(DatabaseSource(state, catalog), merging, cancel=canceled.set)

    def stopped(group: FileGroup) -> None:
        worker.give_back()
        assert canceled.is_set()
        raise RuntimeError("Job 1 cancelled as part of cancellation of all jobs")

    merging.before = stopped
    done = worker.run()
    assert (done.of(What.RELEASED), done.of(What.FAILED)) == (1, 0)
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.PLANNED, 0)
    assert not any(Path(one).exists() for one in merging.directories)


@pytest.mark.parametrize("late", ["while it claims", "while it says where it writes"])
def test_what_is_claimed_during_a_give_back_is_not_merged(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """There was nothing to cancel yet, so nobody would stop that merge."""
    offered(state, table_of(catalog))
    merging = Merging()
    worker = Worker(DatabaseSource(state, catalog), merging)
    name = "claim" if late == "while it claims" else "writes_to"
    done_by = getattr(attempts, name)

    def slowly(*args: Any, **more: Any) -> Any:
        worker.give_back()
        return done_by(*args, **more)

    monkeypatch.setattr(attempts, name, slowly)
    done = worker.run()
    assert (done.of(What.CLAIMED), done.of(What.RELEASED), done.of(What.FAILED)) == (1, 1, 0)
    assert merging.directories == []
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.PLANNED, 0)
    assert task.reason == "given back: its worker ends"


def test_a_merge_that_begins_as_it_gives_back_is_canceled_too(
    state: Database, catalog: Catalog
) -> None:
    """The first cancel came before its first job; so merges are canceled until all have ended."""
    offered(state, table_of(catalog))
    canceled = threading.Semaphore(0)
    worker = Worker(DatabaseSource(state, catalog), merging := Merging(), cancel=canceled.release)

    def stopped_by_the_second(group: FileGroup) -> None:
        worker.give_back()
        assert canceled.acquire(timeout=PATIENCE_SECONDS)
        assert canceled.acquire(timeout=PATIENCE_SECONDS)
        raise RuntimeError("Job 1 cancelled as part of cancellation of all jobs")

    merging.before = stopped_by_the_second
    assert worker.run().of(What.RELEASED) == 1


def test_it_is_seen_while_it_works(state: Database, catalog: Catalog) -> None:
    """So that no more workers are started than are wanted."""
    offered(state, table_of(catalog))
    seen: list[Any] = []

    def look(group: FileGroup) -> None:
        with state.read() as tx:
            seen.extend(workers.live_workers(tx, "default"))

    Worker(
        DatabaseSource(state, catalog), Merging(before=look), queues=["default"], parallelism=2
    ).run(AT_ONCE)
    assert [(one.queues, one.parallelism) for one in seen] == [(("default",), 2)]
    with state.read() as tx:
        assert workers.live_workers(tx, "default") == []


def test_a_worker_of_one_table_leaves_the_others_alone(state: Database, catalog: Catalog) -> None:
    offered(state, table_of(catalog, "lake.one"))
    offered(state, table_of(catalog, "lake.other"))
    Worker(DatabaseSource(state, catalog, table="lake.other"), Merging()).run(AT_ONCE)
    assert {task.table: task.state for task in tasks_of(state)} == {
        "lake.one": TaskState.PLANNED,
        "lake.other": TaskState.MERGED,
    }


def test_its_events_are_reported_with_the_numbers(state: Database, catalog: Catalog) -> None:
    offered(state, table_of(catalog, files=3))
    events: list[WorkerEvent] = []
    Worker(DatabaseSource(state, catalog), Merging(), on_event=events.append).run(AT_ONCE)
    assert [event.what for event in events] == [What.CLAIMED, What.MERGED]
    assert events[0].text == "lake.words: 3 files → 1"
    assert events[1].text.startswith("lake.words: 3 files → 1, ")


def test_who_listens_cannot_harm_the_work(state: Database, catalog: Catalog) -> None:
    """An event that cannot be reported, at whatever moment, costs neither the task nor a thread."""
    offered(state, table_of(catalog, files=6), at_once=2)

    def gone(event: WorkerEvent) -> None:
        raise SystemExit("the reader of the pipe has ended")

    merging = Merging()
    done = Worker(DatabaseSource(state, catalog), merging, on_event=gone).run(AT_ONCE)
    assert done.of(What.MERGED) == 3
    assert all(Path(one).exists() for one in merging.directories)


def test_an_error_of_any_kind_ends_no_thread(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that fails unexpectedly is made again."""
    offered(state, table_of(catalog))
    claim = attempts.claim
    errors = iter([KeyError("a bug"), ValueError("another one")])

    def broken(*args: Any, **named: Any) -> Any:
        if error := next(errors, None):
            raise error
        return claim(*args, **named)

    monkeypatch.setattr(attempts, "claim", broken)
    worker = Worker(
        DatabaseSource(state, catalog), merging := Merging(), poll=timedelta(milliseconds=10)
    )
    merging.before = lambda group: worker.drain()
    assert worker.run().of(What.MERGED) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Cannot call methods on a stopped SparkContext.",
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE",
        "[INVALID_HANDLE.SESSION_NOT_FOUND] The handle 5d0 is invalid. Session not found.",
    ],
)
def test_a_worker_whose_spark_is_gone_gives_its_tasks_back_and_ends(
    state: Database, catalog: Catalog, text: str
) -> None:
    """Healthy workers do them; none of them has lost an attempt."""
    offered(state, table_of(catalog, files=6), at_once=1)

    def gone(group: FileGroup) -> None:
        cause = RuntimeError(text)
        raise LakeError("lake.words: merging 1 files failed") from cause

    with pytest.raises(WorkerBroken, match="merging 1 files failed"):
        Worker(DatabaseSource(state, catalog), Merging(before=gone)).run()
    assert {(task.state, task.attempts) for task in tasks_of(state)} == {(TaskState.PLANNED, 0)}


def test_a_worker_that_fails_again_and_again_slows_down(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the tasks to others: twice as long each time, a minute at most."""
    offered(state, table_of(catalog, files=6), at_once=1)

    def full(group: FileGroup) -> None:
        raise OSError(28, "No space left on device")

    worker = Worker(
        DatabaseSource(state, catalog), Merging(before=full), poll=timedelta(milliseconds=1)
    )
    waited: list[float] = []
    wait = worker._draining.wait

    def at_once(seconds: float) -> bool:
        waited.append(seconds)
        return wait(0)

    monkeypatch.setattr(worker._draining, "wait", at_once)
    assert worker.run(AT_ONCE).of(What.FAILED) == 6
    # After the second failure in a row, and each one after that.
    assert waited[:5] == [0.001, 0.002, 0.004, 0.008, 0.016]


def test_a_catalog_that_is_down_costs_no_attempt(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(state, table_of(catalog))

    def down(*_: Any) -> Any:
        raise CatalogUnavailable("lake.words: the catalog did not answer, tried 5 times")

    monkeypatch.setattr(task_source, "load_table", down)
    done = run_once(Worker(DatabaseSource(state, catalog), Merging()))
    assert (done.of(What.RELEASED), done.of(What.FAILED)) == (1, 0)
    assert [(task.state, task.attempts) for task in tasks_of(state)] == [(TaskState.PLANNED, 0)]


def run_once(worker: Worker) -> Any:
    """Lets it work on one task and no more."""
    source = worker._source
    claim = source.claim

    def once(wait: timedelta | None) -> Any:
        worker.drain()
        return claim(wait)

    source.claim = once  # type: ignore[method-assign]
    return worker.run()


def renewed_beyond(state: Database, moment: datetime) -> bool:
    """Whether the lease of the last attempt ends later than that."""
    with state.read() as tx:
        return attempt_lookup.attempts_of(tx, task_store.tasks(tx)[0].id)[-1].expires_at > moment


def ends_in(state: Database, span: timedelta) -> datetime:
    """Lets the leases of all attempts end so soon; returns when."""
    with state.begin() as tx:
        at = database_time(tx) + span
        tx.execute(sa.update(compaction_attempts).values(expires_at=at))
    return at
