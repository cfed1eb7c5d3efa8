"""Attempts: what is claimed, what is taken of a report, and what is lost."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import backoff, queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import AttemptState, Claim, MergedFile
from arctic_orchestration.errors import InvalidInput, Refused
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.stored import MERGE, MINUTE, NOON, opened, planned, seen
from arctic_orchestration_tests.standing_clock import Clock

SECOND = timedelta(seconds=1)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh state database with the task of files ``a`` and ``b``, once on each backend."""
    with opened(database_url) as made:
        with made.begin() as tx:
            seen(tx, "lake.a")
            offer(tx, "lake.a", [planned("a", "b")], NOON)
        yield made


def claimed(database: Database, clock: Clock, worker: str = "w") -> Claim:
    """The claim of the only task that can be claimed."""
    with database.begin() as tx:
        claim = attempts.claim(tx, [], worker, time=clock)
    assert claim is not None
    return claim


def state_of(database: Database, claim: Claim) -> tuple[TaskState, int, str]:
    """Where its task stands, how many attempts count, and why."""
    with database.begin() as tx:
        task = task_store.task_by_id(tx, claim.task.id)
    return task.state, task.attempts, task.reason


def test_the_time_of_the_database_is_the_one_that_counts(database: Database) -> None:
    """Aware, of now, and it goes on within a transaction."""
    with database.begin() as tx:
        first = database_time(tx)
        assert first.tzinfo is UTC
        assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)
        while (later := database_time(tx)) == first:
            pass
        assert later > first


def test_a_claim_has_all_that_a_worker_needs(database: Database) -> None:
    """An id, a token, a lease, a directory of its own, and the group; then nothing is left."""
    clock = Clock()
    claim = claimed(database, clock, "w1")
    assert claim.task.state is TaskState.CLAIMED
    assert (claim.task.attempts, claim.token, claim.task.token) == (1, 1, 1)
    assert claim.group == planned("a", "b").group
    assert (claim.claimed_at, claim.expires_at) == (NOON, NOON + attempts.LEASE)
    assert claim.directory == f"compaction-{claim.attempt_id}"
    with database.begin() as tx:
        assert attempts.claim(tx, [], "w2", time=clock) is None
        assert task_store.task_by_id(tx, claim.task.id) == claim.task
        (attempt,) = attempt_lookup.attempts_of(tx, claim.task.id)
    assert (attempt.state, attempt.worker) == (AttemptState.LIVE, "w1")
    assert claim.task.reason == "attempt 1 of 3, by worker w1"


def test_a_merge_that_is_reported_waits_for_the_committer(database: Database) -> None:
    """With its outputs; a second report of the same attempt is refused."""
    clock = Clock()
    claim = claimed(database, clock)
    with database.begin() as tx:
        attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
        (attempt,) = attempt_lookup.attempts_of(tx, claim.task.id)
        assert attempt.state is AttemptState.MERGED
        assert attempt.outputs == (MergedFile(path="out.parquet", size=1000, rows=199),)
        assert (attempt.rows_in, attempt.rows_deleted, attempt.rows_out) == (200, 1, 199)
        assert (attempt.way, attempt.because) == ("append", "one schema")
    state, count, reason = state_of(database, claim)
    assert (state, count) == (TaskState.MERGED, 1)
    assert reason == "merged (append: one schema); waits for the committer"
    with (
        pytest.raises(Refused, match="is merged since 2026-01-01 12:00:00Z"),
        database.begin() as tx,
    ):
        attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
    wrong = {**MERGE, "rows_deleted": 2}
    with (
        pytest.raises(InvalidInput, match="rows_out: got 199, expected 200 - 2 rows"),
        database.begin() as tx,
    ):
        attempts.merged(tx, claim.attempt_id, claim.token, **wrong, time=clock)


def test_a_failed_task_comes_back_after_its_interval_three_times(database: Database) -> None:
    """Then it is given up, its files are free, and they rest ten minutes."""
    clock = Clock()
    for number in (1, 2):
        claim = claimed(database, clock)
        assert (claim.token, claim.task.attempts) == (number, number)
        with database.begin() as tx:
            left = attempts.failed(tx, claim.attempt_id, claim.token, "disk full", time=clock)
        assert left is TaskState.FAILED
        again = clock.now + 5 * MINUTE
        state, _, reason = state_of(database, claim)
        assert state is TaskState.FAILED
        assert reason == (
            f"attempt {number} of 3 failed: disk full; again at {again:%Y-%m-%d %H:%M:%S}Z"
        )
        clock.now = again - SECOND
        with database.begin() as tx:
            assert attempts.claim(tx, [], "w", time=clock) is None
        clock.now = again
    claim = claimed(database, clock)
    with database.begin() as tx:
        left = attempts.failed(tx, claim.attempt_id, claim.token, "disk full", time=clock)
        assert left is TaskState.QUARANTINED
        resting = backoff.resting(tx, "lake.a", clock.now)
        assert set(resting) == {file.path for file in claim.group.files}
        for one in resting.values():
            assert (one.rests, one.until) == (1, clock.now + 10 * MINUTE)
            assert one.reason == f"task {claim.task.id} is in quarantine: disk full"
        assert not tables.table_by_name(tx, "lake.a").rests(clock.now)
        assert task_store.live_paths(tx, "lake.a") == {}
        assert attempts.claim(tx, [], "w", time=clock) is None
        steps = [(move.state.value, move.reason) for move in task_store.history(tx, claim.task.id)]
    assert steps[-1] == ("quarantined", "given up after 3 of 3 attempts: disk full")
    assert steps[3] == ("planned", "waits for attempt 2 of 3")
    assert [state for state, _ in steps] == [
        "planned", "claimed", "failed", "planned", "claimed", "failed", "planned", "claimed",
        "quarantined",
    ]  # fmt: skip


def test_what_can_never_succeed_is_given_up_at_once(database: Database) -> None:
    """The worker says so; the other tasks of the table would fail as well, so it rests."""
    clock = Clock()
    claim = claimed(database, clock)
    with database.begin() as tx:
        attempts.failed(tx, claim.attempt_id, 1, "format v3", final=True, time=clock)
    assert state_of(database, claim) == (
        TaskState.QUARANTINED,
        1,
        "given up after 1 of 3 attempts: format v3",
    )
    with database.begin() as tx:
        table = tables.table_by_name(tx, "lake.a")
    assert table.rests_until == clock.now + 10 * MINUTE
    assert table.rest_reason == f"task {claim.task.id} is in quarantine: format v3"


def test_what_is_given_back_does_not_count(database: Database) -> None:
    """It can be claimed at once, with a new token and directory."""
    clock = Clock()
    first = claimed(database, clock)
    with database.begin() as tx:
        attempts.release(tx, first.attempt_id, first.token, time=clock)
    assert state_of(database, first) == (TaskState.PLANNED, 0, "given back: its worker ends")
    second = claimed(database, clock)
    assert (second.token, second.task.attempts) == (2, 1)
    assert second.directory != first.directory
    with pytest.raises(Refused, match="is released since"), database.begin() as tx:
        attempts.failed(tx, first.attempt_id, first.token, "late", time=clock)


def test_a_lease_holds_as_long_as_it_is_renewed(database: Database) -> None:
    """Each renewal counts from its own moment; at the very end of a lease it is over."""
    clock = Clock()
    claim = claimed(database, clock)
    for _ in range(5):
        clock.passes(seconds=59)
        with database.begin() as tx:
            assert attempts.renew(tx, claim.attempt_id, claim.token, time=clock)
            assert attempts.expire(tx, time=clock) == 0
    with database.begin() as tx:
        assert not attempts.renew(tx, claim.attempt_id, claim.token + 1, time=clock)
        assert not attempts.renew(tx, "nobody", 1, time=clock)
    clock.passes(seconds=60)
    with database.begin() as tx:
        assert not attempts.renew(tx, claim.attempt_id, claim.token, time=clock)
        assert attempts.expire(tx, time=clock) == 1
        assert attempts.expire(tx, time=clock) == 0
    state, count, reason = state_of(database, claim)
    assert (state, count) == (TaskState.PLANNED, 1)
    assert reason == "attempt 1 of 3 was lost: worker w was silent until 2026-01-01 12:05:55Z"


def test_a_late_report_is_refused_even_before_the_expiry_is_noticed(database: Database) -> None:
    """Over counts as lost, whether or not the task was claimed since."""
    clock = Clock()
    late = claimed(database, clock)
    clock.passes(seconds=75)
    reports: list[Callable[[sa.Connection], object]] = [
        lambda tx: attempts.merged(tx, late.attempt_id, late.token, **MERGE, time=clock),
        lambda tx: attempts.failed(tx, late.attempt_id, late.token, "x", time=clock),
        lambda tx: attempts.release(tx, late.attempt_id, late.token, time=clock),
    ]
    for report in reports:
        with (
            pytest.raises(Refused, match="lost its lease: it was over 15s ago"),
            database.begin() as tx,
        ):
            report(tx)
    with database.begin() as tx:
        attempts.expire(tx, time=clock)
    new = claimed(database, clock, "w2")
    assert (new.task.id, new.token) == (late.task.id, 2)
    for report in reports:
        with (
            pytest.raises(Refused, match="is lost since 2026-01-01 12:01:15Z: silent"),
            database.begin() as tx,
        ):
            report(tx)
    with pytest.raises(Refused, match="has another token than 1"), database.begin() as tx:
        attempts.merged(tx, new.attempt_id, late.token, **MERGE, time=clock)
    with pytest.raises(Refused, match="there is no attempt nobody"), database.begin() as tx:
        attempts.failed(tx, "nobody", 1, "x", time=clock)
    with database.begin() as tx:
        attempts.merged(tx, new.attempt_id, new.token, **MERGE, time=clock)
        states = [attempt.state for attempt in attempt_lookup.attempts_of(tx, new.task.id)]
    assert states == [AttemptState.LOST, AttemptState.MERGED]


def test_the_last_attempt_that_is_lost_ends_the_task(database: Database) -> None:
    """Lost ones count as failed ones do."""
    clock = Clock()
    for _ in range(3):
        claim = claimed(database, clock)
        clock.passes(minutes=2)
        with database.begin() as tx:
            assert attempts.expire(tx, time=clock) == 1
    state, count, reason = state_of(database, claim)
    assert (state, count) == (TaskState.QUARANTINED, 3)
    assert "attempt 3 of 3 was lost: worker w was silent" in reason
    with database.begin() as tx:
        assert len(backoff.resting(tx, "lake.a", clock.now)) == len(claim.group.files)


def test_queues_are_served_by_their_shares(database: Database) -> None:
    """Shares 3, 1 and 1, twelve claims: as fast as they come, 3 of the first for 1 of others."""
    clock = Clock()
    with database.begin() as tx:
        for name, share, level in (("big", 3, 0), ("high", 1, 5), ("low", 1, 0)):
            queues.add_queue(tx, CompactionQueue(name=name, share=share, level=level), NOON)
            seen(tx, f"lake.{name}", queue=name)
            offer(tx, f"lake.{name}", [planned(f"{name}{n}") for n in range(9)], NOON)
        names = ["big", "high", "low", "gone"]
        order = [attempts.claim(tx, names, "w", time=clock) for _ in range(12)]
        served = [claim.task.queue for claim in order if claim]
        # None of them active: the level decides, then the name. Then the fewest for the share.
        assert served[:5] == ["high", "big", "low", "big", "big"]
        assert [served[:10].count(name) for name in names] == [6, 2, 2, 0]
        assert [served[10:]] == [["high", "big"]]
        only = attempts.claim(tx, ["low"], "w", time=clock)
        assert only is not None
        assert only.task.queue == "low"
        assert attempts.claim(tx, ["gone"], "w", time=clock) is None


def test_a_worker_can_keep_to_one_table(database: Database) -> None:
    """Whatever queue it is in, and whatever else is more urgent."""
    clock = Clock()
    with database.begin() as tx:
        seen(tx, "lake.b", level=9)
        offer(tx, "lake.b", [planned("x", "y")], NOON)
        claim = attempts.claim(tx, [], "w", table="lake.a", time=clock)
        assert claim is not None
        assert claim.task.table == "lake.a"
        assert attempts.claim(tx, [], "w", table="lake.a", time=clock) is None


def test_an_attempt_that_takes_too_long_is_lost_though_it_is_renewed(database: Database) -> None:
    """At the execution timeout of its queue, not before; what it reports later is refused."""
    clock = Clock()
    with database.begin() as tx:
        queues.update_queue(tx, "default", execution_timeout_seconds=600)
    claim = claimed(database, clock)
    with database.begin() as tx:
        for _ in range(19):
            clock.passes(seconds=30)
            assert attempts.renew(tx, claim.attempt_id, claim.token, time=clock)
            assert attempts.expire(tx, time=clock) == 0
        clock.passes(seconds=30)
        assert attempts.renew(tx, claim.attempt_id, claim.token, time=clock)
        assert attempts.expire(tx, time=clock) == 1
        assert not attempts.renew(tx, claim.attempt_id, claim.token, time=clock)
        with pytest.raises(Refused, match="is lost since"):
            attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
    assert state_of(database, claim) == (
        TaskState.PLANNED,
        1,
        "attempt 1 of 3 was lost: worker w had it for longer than 10m, the execution timeout of "
        "queue default",
    )
