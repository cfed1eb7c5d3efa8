"""Files that rest after a quarantine: how long, and what ends it."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction import control
from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.planning.table_planner import state_of
from arctic_orchestration.compaction.queue import backoff
from arctic_orchestration.compaction.queue.backoff import length_of_rest
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MERGE, MINUTE, NOON, planned
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock

pytestmark = pytest.mark.usefixtures("two_tables")


def quarantine(tx: sa.Connection, clock: Clock, *paths: str) -> None:
    """A task of these files is offered, and fails its only attempt."""
    offer(tx, "lake.a", [planned(*paths)], clock.now, max_attempts=1)
    claim = attempts.claim(tx, [], "w", table="lake.a", time=clock)
    assert claim is not None
    attempts.failed(tx, claim.attempt_id, claim.token, "a page is broken", time=clock)


def resting(tx: sa.Connection, clock: Clock) -> dict[str, timedelta]:
    """How long the files rest from now on."""
    found = backoff.resting(tx, "lake.a", clock.now)
    assert state_of(tx, "lake.a", clock.now).resting == {
        path: one.until for path, one in found.items()
    }
    return {path: one.until - clock.now for path, one in found.items()}


def test_a_rest_is_twice_as_long_each_time_up_to_a_day() -> None:
    """10 minutes, 20, ... 1280 (21 h 20), then a day, however often."""
    minutes = [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]
    assert [length_of_rest(number) // MINUTE for number in range(10)] == minutes
    assert length_of_rest(100_000) == timedelta(days=1)


def test_a_file_rests_longer_each_time_and_its_company_only_as_often_as_itself(
    database: Database,
) -> None:
    """The broken one is put together with others each time."""
    clock = Clock()
    with database.begin() as tx:
        quarantine(tx, clock, "bad", "a")
        assert resting(tx, clock) == {"bad": 10 * MINUTE, "a": 10 * MINUTE}
        clock.passes(minutes=10)
        assert resting(tx, clock) == {}
        quarantine(tx, clock, "bad", "b")
        assert resting(tx, clock) == {"bad": 20 * MINUTE, "b": 10 * MINUTE}
        assert backoff.resting(tx, "lake.b", clock.now) == {}
        clock.passes(minutes=20)
        quarantine(tx, clock, "bad", "c")
        assert resting(tx, clock) == {"bad": 40 * MINUTE, "c": 10 * MINUTE}


def test_the_files_of_a_canceled_task_rest_for_a_day(database: Database) -> None:
    clock = Clock()
    with database.begin() as tx:
        (id,) = offer(tx, "lake.a", [planned("a", "b")], clock.now).taken
        task = control.locked_task(tx, id)
        control.cancel_task(tx, task, clock.now, Actor(name="a person"))
        assert resting(tx, clock) == {"a": timedelta(days=1), "b": timedelta(days=1)}


def test_a_commit_ends_the_rest_of_what_it_has_and_of_nothing_else(database: Database) -> None:
    """Another one of the same table leaves it as it is; the files that are gone are forgotten."""
    clock = Clock()
    with database.begin() as tx:
        quarantine(tx, clock, "bad", "a")
        for paths in (("x", "y"), ("a", "z")):
            offer(tx, "lake.a", [planned(*paths)], NOON, forced=True)
            claim = present(attempts.claim(tx, [], "w", table="lake.a", time=clock))
            attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
            commits.committed(tx, [claim.task.id], hash(paths) % 99, time=clock)
        assert resting(tx, clock) == {"bad": 10 * MINUTE}


def test_a_person_ends_rests(database: Database) -> None:
    """Of some files, or of all of a table; they are as new then."""
    clock = Clock()
    with database.begin() as tx:
        quarantine(tx, clock, "bad", "a", "b")
        assert backoff.end_rests(tx, "lake.b") == 0
        assert backoff.end_rests(tx, "lake.a", ["a", "other"]) == 1
        assert set(resting(tx, clock)) == {"bad", "b"}
        assert backoff.end_rests(tx, "lake.a") == 2
        quarantine(tx, clock, "bad")
        assert resting(tx, clock) == {"bad": 10 * MINUTE}


def test_an_old_rest_is_pruned(database: Database) -> None:
    """Its file may have gone long ago."""
    clock = Clock()
    with database.begin() as tx:
        quarantine(tx, clock, "bad")
        assert not backoff.has_rested(tx, "lake.a", NOON, NOON + 9 * MINUTE)
        assert backoff.has_rested(tx, "lake.a", NOON, NOON + 10 * MINUTE)
        assert not backoff.has_rested(tx, "lake.a", NOON + 10 * MINUTE, NOON + 99 * MINUTE)
        assert backoff.prune(tx, NOON + 10 * MINUTE) == 0
        assert backoff.prune(tx, NOON + 11 * MINUTE) == 1
