"""What is easily got wrong: downtimes, late events, lookups that fail, clocks, deletions."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules import engine as engines
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.facts import Surroundings
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.triggers import Trigger, on
from arctic_orchestration.state import tables
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import (
    AnyTargets,
    MakeWorld,
    SimulatedRun,
    World,
    at,
)

M, H = 60, 3600
HOUR, TEN = timedelta(hours=1), timedelta(minutes=10)
GROUP = [only.concurrency(1, group="g")]


def schedule(trigger: Trigger, **fields: Any) -> Schedule:
    given = {"name": "s", "target": "rollup", "enabled": True, "trigger": trigger, **fields}
    return Schedule(**given)


def change(here: World, what: Callable[..., Any], seconds: float) -> None:
    """A person does something to schedule ``s``."""
    store = here.engine.store
    with here.database.begin() as tx:
        location = locked(tx, "default", "here")
        what(tx, store, location, "s", at(seconds))


def rows(here: World, table: sa.Table) -> list[dict[str, Any]]:
    with here.database.read() as tx:
        return [dict(row) for row in tx.execute(sa.select(table)).mappings()]


class Flaky(AnyTargets):
    """Targets that cannot be looked up while they are ``bad``."""

    bad = False

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        if self.bad:
            raise OSError("the instance did not answer")
        return None


def two_of_a_group(world: MakeWorld) -> tuple[World, Flaky]:
    """Two schedules that share a group of one, and their targets."""
    here = world(
        [
            schedule(on.partitions("raw/a"), name="s", constraints=GROUP),
            schedule(on.partitions("raw/b"), name="b", target="other", constraints=GROUP),
        ]
    )
    targets = Flaky()
    here.engine.targets = targets
    return here, targets


def active(here: World) -> list[SimulatedRun]:
    return [run for run in here.dagster.runs.values() if not run.status.ended]


def test_a_lookup_that_fails_does_not_end_a_job_whose_request_is_out(world: MakeWorld) -> None:
    """The request may still become a run: the job goes on, and holds its slot."""
    here, targets = two_of_a_group(world)
    here.feed.arrive("raw/a", "1")
    out = here.engine.tick(at(1)).requests
    targets.bad = True
    here.engine.tick(at(31))
    targets.bad = False
    here.dagster.submit(out)
    here.feed.arrive("raw/b", "1")
    here.tick(61)
    assert len(active(here)) == 1  # limit of the group


def test_a_lookup_that_fails_once_does_not_lose_the_events_of_a_job(world: MakeWorld) -> None:
    """It is looked up again, and its events are kept."""
    here, targets = two_of_a_group(world)
    targets.bad = True
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    targets.bad = False
    assert here.tick(62) == ["run-1"]


def test_a_deleted_schedule_whose_request_is_out_still_counts(world: MakeWorld) -> None:
    """The run that comes of the request holds the group, though no job is left."""
    here, _ = two_of_a_group(world)
    here.feed.arrive("raw/a", "1")
    out = here.engine.tick(at(1)).requests
    change(here, control.delete, 2)
    here.dagster.submit(out)
    here.feed.arrive("raw/b", "1")
    here.tick(3)
    assert len(active(here)) == 1


def test_elapsed_does_not_fire_early_when_an_event_came_while_nothing_ticked(
    world: MakeWorld,
) -> None:
    """Events at 10 and 50 minutes, read at 80: an hour after the last is 1 h 50."""
    here = world([schedule(on.elapsed(HOUR, since=on.partitions("raw/a")))])
    here.feed.arrive("raw/a", "1", moment=at(10 * M))
    here.tick(10 * M)
    here.feed.arrive("raw/a", "2", moment=at(50 * M))
    assert here.tick(80 * M) == []  # 30 minutes after the last event
    assert here.tick(111 * M) == ["run-1"]


def test_quiet_without_coalescing_makes_the_same_jobs_after_a_downtime(world: MakeWorld) -> None:
    """1, 5 and 9 minutes are one quiet; after a downtime it is one as well."""
    here = world([schedule(on.quiet("raw/a", TEN), coalesce=False)])
    for minute in (1, 5, 9):
        here.feed.arrive("raw/a", str(minute), moment=at(minute * M))
    assert len(here.tick(60 * M)) == 1


def test_quiet_does_not_fire_on_the_first_part_of_a_backlog(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not read yet is not quiet."""
    monkeypatch.setattr(engines, "EVENTS_AT_ONCE", 2)
    here = world([schedule(on.quiet("raw/a", TEN))])
    for minute in range(1, 41):
        here.feed.arrive("raw/a", str(minute), moment=at(minute * M))
    assert here.tick(41 * M) == []


def test_a_draining_job_gets_the_time_it_waits_for(world: MakeWorld) -> None:
    """Suspended to drain, it still fires an hour after its event; and never again."""
    here = world([schedule(on.elapsed(HOUR, since=on.partitions("raw/a")), suspend_mode="drain")])
    here.feed.arrive("raw/a", "1", moment=at(10 * M))
    here.tick(10 * M)
    change(here, control.suspend, 20 * M)
    assert here.tick(71 * M) == ["run-1"]


def test_a_launch_takes_back_the_tick_of_a_job_that_waits(world: MakeWorld) -> None:
    """The tick came before the launch; an hour after the launch has not passed."""
    here = world(
        [
            schedule(
                on.all_of(on.elapsed(HOUR), on.partitions("raw/a")),
                partitions="each",
                constraints=[only.window("03:00", "04:00")],
            )
        ]
    )
    here.feed.arrive("raw/a", "1", moment=at(10 * M))
    for minute in (10, 61, 122):
        here.tick(minute * M)
    assert here.tick(180 * M) == ["run-1"]
    here.feed.arrive("raw/a", "2", moment=at(181 * M))
    assert here.tick(181 * M) == []  # a minute after the last launch


def test_wait_counts_from_the_first_firing_of_a_quiet(world: MakeWorld) -> None:
    """The quiet was broken by an arrival each 55 minutes; it fired all the same."""
    here = world([schedule(on.all_of(on.quiet("raw/a", TEN), on.partitions("raw/b"), wait=HOUR))])
    here.feed.arrive("raw/a", "0", moment=at(0))
    here.tick(1)
    here.tick(11 * M)  # it fired at 10 minutes
    here.feed.arrive("raw/a", "1", moment=at(65 * M))
    assert here.tick(65 * M) + here.tick(71 * M) == ["run-1"]


def test_within_counts_from_the_tick_of_elapsed_not_from_a_later_event(world: MakeWorld) -> None:
    """Elapsed fired at 1 h; an event of its own at 90 minutes is no firing."""
    trigger = on.all_of(
        on.elapsed(HOUR, since=on.partitions("raw/a")), on.partitions("raw/b"), within=TEN
    )
    here = world([schedule(trigger)])
    here.feed.arrive("raw/a", "1", moment=at(0))
    here.tick(1)
    here.tick(61 * M)  # elapsed fires
    here.feed.arrive("raw/a", "2", moment=at(90 * M))
    here.tick(90 * M)
    here.feed.arrive("raw/b", "1", moment=at(95 * M))
    assert here.tick(95 * M) == []


def test_an_event_that_is_reported_late_does_not_move_elapsed_back(world: MakeWorld) -> None:
    """The event of minute 5 arrives after that of minute 30."""
    here = world([schedule(on.elapsed(HOUR, since=on.partitions("raw/a")))])
    here.feed.arrive("raw/a", "2", moment=at(30 * M))
    here.tick(30 * M)
    here.feed.arrive("raw/a", "1", moment=at(5 * M))
    here.tick(31 * M)
    assert here.tick(66 * M) == []  # 36 minutes after the last


def test_an_unreadable_schedule_that_was_suspended_stays_so(world: MakeWorld) -> None:
    """Written by a later version, deployed by this one."""
    here = world([schedule(on.partitions("raw/a"))])
    change(here, control.suspend, 1)
    with here.database.begin() as tx:
        tx.execute(sa.update(tables.schedules).values(spec='{"name": "s", "later": 1}'))
    here.schedules = [schedule(on.partitions("raw/a"), description="new")]
    here.engine = here.new_engine()
    here.tick(10)
    assert [r["status"] for r in rows(here, tables.schedules)] == ["suspended"]


def test_a_cron_leaf_that_moves_keeps_its_missed_tick(world: MakeWorld) -> None:
    """The four o'clock that was due while the update was on its way is made up."""
    here = world([schedule(on.any_of(on.cron("0 4 * * *"), on.partitions("raw/a", count=9)))])
    here.tick(3 * H)
    here.schedules = [schedule(on.any_of(on.partitions("raw/a", count=9), on.cron("0 4 * * *")))]
    here.engine = here.new_engine()
    assert here.tick(5 * H) + here.tick(5 * H + 30) == ["run-1"]


def test_load_is_not_spent_by_all_jobs_at_once(world: MakeWorld) -> None:
    """Ten slots, below one half: five."""
    here = world(
        [
            schedule(
                on.partitions("raw/a"),
                name=f"s{n}",
                target=f"t{n}",
                constraints=[only.load(below=0.5)],
            )
            for n in range(20)
        ]
    )
    here.engine.surroundings = Surroundings(
        measure=lambda probe: len(active(here)) / 10, one_more=lambda probe: 0.1
    )
    here.feed.arrive("raw/a", "1")
    assert len(here.tick(1)) == 5


def test_a_manual_run_counts_for_a_rate_from_when_it_began(world: MakeWorld) -> None:
    """It began at 1 minute; after five hours of downtime it is no hour ago."""
    here = world([schedule(on.partitions("raw/a"), constraints=[only.rate(1, per=HOUR)])])
    here.dagster.start("rollup", "hand")
    here.feed.events[-1] = dataclasses.replace(here.feed.events[-1], at=at(60))
    here.dagster.end("hand", ended_at=at(120))
    here.feed.arrive("raw/a", "1", moment=at(5 * H - 1))
    assert here.tick(5 * H) == ["run-1"]


def test_a_manual_run_noted_while_the_clock_was_ahead_does_not_block_a_rate(
    world: MakeWorld,
) -> None:
    """Its launch was noted in the next year."""
    here = world([schedule(on.partitions("raw/a"), constraints=[only.rate(1, per=HOUR)])])
    here.dagster.start("rollup", "hand")
    here.tick(365 * 24 * H)
    here.dagster.end("hand")
    here.tick(365 * 24 * H + 1)
    here.tick(10)
    here.feed.arrive("raw/a", "1")
    assert here.tick(3 * H) == ["run-1"]


def test_a_manual_re_execution_counts_for_a_rate(world: MakeWorld) -> None:
    """Dagster gives it the tags of the run it repeats."""
    here = world([schedule(on.partitions("raw/a"), constraints=[only.rate(1, per=HOUR)])])
    here.feed.arrive("raw/a", "1")
    (run,) = here.tick(1)
    here.dagster.end(run)
    here.tick(2)
    tags = {**here.dagster.runs[run].tags, "dagster/parent_run_id": run, "dagster/root_run_id": run}
    here.dagster.start("rollup", "again", tags=tags)
    here.feed.events[-1] = dataclasses.replace(here.feed.events[-1], at=at(2 * H))
    here.tick(2 * H)
    here.dagster.end("again")
    here.tick(2 * H + 1)
    here.feed.arrive("raw/a", "2")
    assert here.tick(2 * H + 60) == []


def test_one_run_is_counted_once_whatever_statuses_it_reaches(world: MakeWorld) -> None:
    """It started and succeeded: one run."""
    here = world([schedule(on.run("up", status=["started", "success"], count=2))])
    here.dagster.start("up", "u1")
    here.dagster.end("u1")
    assert here.tick(1) == []


def test_a_resume_after_the_clock_went_back_takes_nothing_from_the_timeout(
    world: MakeWorld,
) -> None:
    """Ten minutes of suspension that the clock says were minus 45."""
    here = world([schedule(on.partitions("raw/a", count=2), suspend_mode="drain", timeout=HOUR)])
    here.feed.arrive("raw/a", "1", moment=at(0))
    here.tick(1)
    change(here, control.suspend, 50 * M)
    change(here, control.enable, 5 * M)
    here.tick(16 * M)
    assert [r["state"] for r in rows(here, tables.jobs)] == ["waiting_trigger"]


def test_a_job_canceled_by_a_person_is_news(world: MakeWorld) -> None:
    """A person canceled it; others may want to know."""
    here = world([schedule(on.partitions("raw/a", count=2))])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job,) = rows(here, tables.jobs)
    with here.database.begin() as tx:
        job_control.cancel_job(tx, locked(tx, "default", "here"), job["id"], at(2))
    assert [r["event"] for r in rows(here, tables.notices)] == ["job_discarded"]


def test_a_cluster_that_is_gone_holds_a_shared_group_for_a_week(database: Database) -> None:
    """Its runs cannot be requested; nothing of it ticked for seven days."""
    shared = schedule(on.partitions("raw/a"), constraints=GROUP)
    gone = World(database, [shared], location="there")
    gone.engine.cluster = "gone"
    here = World(database, [shared])
    for world in (gone, here):
        world.tick(0)
        world.feed.arrive("raw/a", "1")
    assert gone.tick(1) == ["run-1"]
    here.tick(2)
    days = 24 * H
    for day in range(1, 7):
        here.feed.arrive("raw/a", str(day + 1))
        assert here.tick(day * days) == []
    here.feed.arrive("raw/a", "8")
    assert here.tick(8 * days) == ["run-1"]
