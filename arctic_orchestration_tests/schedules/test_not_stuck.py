"""Nothing is doubled, and nothing waits for ever, where several things go wrong at once."""

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import ConfigurationError, InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state import dialect
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.schedules.simulated import (
    AnyTargets,
    MakeWorld,
    World,
    at,
    schedule,
)

DAY = 86_400


def job_rows(world: World) -> list[Any]:
    with world.database.read() as tx:
        return list(tx.execute(sa.select(jobs).order_by(jobs.c.created_at, jobs.c.id)).all())


def test_one_event_at_two_leaves_is_one_firing(world: MakeWorld) -> None:
    """Without coalescing too: the leaves overlap, the event is one."""
    trigger = on.partitions("raw/a") | on.partitions("raw/a", where="x*")
    here = world([schedule(trigger=trigger, coalesce=False)])
    here.feed.arrive("raw/a", "x1")
    assert here.tick(1) == ["run-1"]
    here.feed.arrive("raw/a", "x2")
    here.feed.arrive("raw/a", "y")
    assert here.tick(2) == ["run-2", "run-3"]


def test_a_run_that_dagster_would_refuse_by_now_fails_alone(world: MakeWorld) -> None:
    """Its target changed while its request was on the way; the others go on.

    The request that is out may still become a run, so the job ends when its lease is over.
    """
    here = world([schedule(partitions="each"), schedule("other", target="other")])
    here.feed.arrive("raw/a", "1")
    here.engine.tick(at(1))

    class Fewer(AnyTargets):
        def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
            return "partition '1' is gone" if start == "1" else None

    here.engine.targets = Fewer()
    assert here.tick(2) == ["run-1"]
    assert here.dagster.requests[0].tags["arctic/schedule"] == "other"
    assert {row.reason for row in job_rows(here) if row.state == "launching"} == {
        "partition '1' is gone",
        "its run was requested 2 times and is not seen yet",
    }
    here.tick(120)
    assert not [row for row in job_rows(here) if row.state == "failed"]
    here.tick(121)
    assert {row.reason for row in job_rows(here) if row.state == "failed"} == {
        "partition '1' is gone"
    }


def test_targets_that_cannot_be_looked_up_stop_no_other(world: MakeWorld) -> None:
    """An exception while a target is looked up is why the job waits, not the tick's end."""
    here = world([schedule("bad", target="bad", partitions="range"), schedule("good")])

    class Broken(AnyTargets):
        def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
            if target.job == "bad":
                raise ZeroDivisionError("no such thing")
            return None

        def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
            raise ZeroDivisionError("no such thing")

    here.engine.targets = Broken()
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    reasons = {row.state: row.reason for row in job_rows(here)}
    assert "ZeroDivisionError('no such thing')" in reasons["waiting_constraints"]
    here.engine.targets = AnyTargets()
    assert here.tick(31) == ["run-2"]


def test_a_retry_that_never_comes_ends_the_job(world: MakeWorld) -> None:
    """Dagster said it would retry, and gave up silently: ten minutes later the slot is free."""
    here = world([schedule(constraints=[only.concurrency(1)])])
    here.dagster.retries_enabled = True
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end(
        "run-1", RunStatus.FAILURE, tags={"dagster/will_retry": "true"}, ended_at=at(10)
    )
    here.feed.arrive("raw/a", "2")
    assert here.tick(10) == []
    assert here.tick(600) == []
    assert here.tick(626) == ["run-2"]
    assert [row.state for row in job_rows(here)] == ["failed", "launching"]


def test_a_late_retry_is_found_and_kept(world: MakeWorld) -> None:
    """The retry exists, though there was no event of it: the job goes on with it."""
    here = world([schedule()])
    here.dagster.retries_enabled = True
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end(
        "run-1", RunStatus.FAILURE, tags={"dagster/will_retry": "true"}, ended_at=at(10)
    )
    here.tick(10)
    first = here.dagster.runs["run-1"]
    silent = len(here.feed.events)
    here.dagster.start("rollup", "retry", {**first.tags, "dagster/parent_run_id": "run-1"})
    del here.feed.events[silent:]
    here.tick(626)
    assert job_rows(here)[0].run_id == "retry"
    here.dagster.end("retry", tags={"dagster/will_retry": "false"})
    here.tick(700)
    assert job_rows(here)[0].state == "succeeded"


def test_a_silent_location_gives_its_group_back(database: Database) -> None:
    """A location was renamed: its launched job is looked up, one that is launching has a day."""
    two = [only.concurrency(2, group="g")]
    old = World(
        database,
        [schedule("a", target="x", constraints=two), schedule("b", target="y", constraints=two)],
    )
    old.tick(0)
    old.feed.arrive("raw/a", "1")
    first, *lost = old.engine.tick(at(1)).requests
    assert len(lost) == 1
    old.dagster.submit([first])
    old.tick_without_submitting(2)
    new = World(database, [schedule("c", constraints=two)])
    new.feed, new.dagster.feed = old.feed, old.feed
    new.dagster.runs = old.dagster.runs
    new.location = "renamed"
    new.engine = new.new_engine()
    new.tick(3)
    new.feed.arrive("raw/a", "2")
    new.tick(4)
    assert new.dagster.requests == []
    old.dagster.end("run-1")
    assert [new.tick(seconds) for seconds in (1200, 1201, 1700, 1701)] != [[], [], [], []]
    new.tick(2 * DAY)
    states = {row.reason for row in job_rows(new) if row.state == "failed"}
    assert states == {"location here has not ticked since 2026-01-01"}


@pytest.mark.parametrize("cluster", ["default", "another"])
def test_a_clock_ahead_gives_up_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    """One host's clock is a month ahead of the database's; the job of another has its run."""
    monkeypatch.setattr(dialect, "database_time", lambda tx: at(10))
    here = World(database, [schedule()])
    here.tick(0)
    here.feed.arrive("raw/a", "1")
    (request,) = here.engine.tick(at(1)).requests
    ahead = World(database, [], location="ahead", cluster=cluster)
    for second in range(3):
        ahead.tick(30 * DAY + second)
    here.dagster.submit([request])
    here.tick(11)
    assert [row.state for row in job_rows(here)] == ["launched"]


def test_another_dagster_under_the_same_name_is_refused(database: Database) -> None:
    """Two instances that share a database need different cluster names; the message says so."""
    here = World(database, [schedule()])
    here.tick(0)
    other = World(database, [schedule()])
    other.feed.storage_id = "another"
    with pytest.raises(ConfigurationError, match="ARCTIC_CLUSTER"):
        other.tick(1)
    here.feed.arrive("raw/a", "1")
    assert here.tick(2) == ["run-1"]


def test_a_priority_that_no_database_holds_is_refused() -> None:
    """It would be an error of every tick."""
    with pytest.raises(InvalidDefinition, match="priority"):
        schedule(priority=10**12)


def test_a_deployment_of_something_else_discards_nothing(world: MakeWorld) -> None:
    """Properties equal themselves after they were stored: tuples, and keys that are numbers."""
    first = schedule(trigger=on.partitions("raw/a", count=2), properties={"k": (1, 2), "n": {1: 2}})
    here = world([first])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.schedules = [first, schedule("new", target="new")]
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "2")
    # The new schedule counts from its deployment on, which this tick makes.
    assert here.tick(2) == ["run-1"]
    with here.database.read() as tx:
        assert list(tx.execute(sa.select(schedules.c.version)).scalars()) == [1, 1]


def test_what_was_admitted_does_not_change_with_the_schedule(world: MakeWorld) -> None:
    """A request that is handed out again after an update requests what was admitted."""
    here = world([schedule(target="old", run_config={"v": 1})])
    here.feed.arrive("raw/a", "1")
    (lost,) = here.engine.tick(at(1)).requests
    here.schedules = [schedule(target="new", run_config={"v": 2})]
    here.engine = here.new_engine()
    assert here.tick(2) == ["run-1"]
    (request,) = here.dagster.requests
    assert (request.target.job, request.run_config) == ("old", {"v": 1})
    assert request.run_key == lost.run_key


def test_a_run_counts_for_the_assets_it_makes(world: MakeWorld) -> None:
    """A scheduled job that makes an asset holds it, as one that was started manually does."""
    here = world(
        [
            schedule("by_job", target="makes_x"),
            schedule(
                "by_asset",
                target={"assets": ["x"]},
                trigger=on.partitions("raw/b"),
                constraints=[only.concurrency(1)],
            ),
        ]
    )
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    run = here.dagster.runs["run-1"]
    here.feed.events.append(
        Event(
            kind=EventKind.RUN,
            subject="makes_x",
            at=at(1),
            run_id="run-1",
            status=RunStatus.STARTED,
            location="here",
            assets=("x",),
            tags=run.tags,
            started=True,
        )
    )
    here.feed.arrive("raw/b", "1")
    assert here.tick(2) == []
    here.dagster.end("run-1")
    assert here.tick(3) == ["run-2"]


def test_a_trigger_is_checked_again_at_the_moment_it_named(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time alone can satisfy a trigger: its job is asked when the moment has come."""
    from arctic_orchestration.schedules.triggers import Arrivals, Firing, Partitions

    def after_a_minute(self: Partitions, arrivals: Sequence[Arrivals], now: Any) -> Firing:
        return Firing(satisfied=now >= at(60), reason="a minute", recheck_at=at(60))

    monkeypatch.setattr(Partitions, "evaluate", after_a_minute)
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == []
    assert here.tick(59) == []
    assert here.tick(60) == ["run-1"]
