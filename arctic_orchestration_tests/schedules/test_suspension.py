"""What happens to events and jobs while a schedule is suspended, in each of the four modes."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.job_control import cancel_job, launch_job, launch_schedule
from arctic_orchestration.schedules.jobs import Job
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import history_of
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import job_events, jobs
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at


def schedule(mode: str, **fields: Any) -> Schedule:
    fields = {"target": "rollup", "trigger": on.partitions("raw/a", count=2), **fields}
    return Schedule(name="s", enabled=True, suspend_mode=mode, **fields)


def arrive(here: World, *keys: str) -> None:
    for key in keys:
        here.feed.arrive("raw/a", key)


def standing(here: World) -> list[tuple[str, str]]:
    """State and reason of each job, the oldest first."""
    with here.database.read() as tx:
        query = sa.select(jobs.c.state, jobs.c.reason).order_by(jobs.c.created_at, jobs.c.id)
        return [(row.state, row.reason) for row in tx.execute(query)]


def partitions_of_runs(here: World) -> list[list[str]]:
    """The partitions that each requested run was given."""
    with here.database.read() as tx:
        return [
            sorted(
                tx.execute(
                    sa.select(job_events.c.partition).where(job_events.c.job_id == request.job_id)
                ).scalars()
            )
            for request in here.dagster.requests
        ]


def test_drop_ignores_events_and_discards_what_waits(world: MakeWorld) -> None:
    """One of two partitions waits; after a suspension two new ones are needed."""
    here = world([schedule("drop")])
    arrive(here, "1")
    here.tick(1)
    assert here.suspend(2)
    arrive(here, "2", "3")
    here.tick(3)
    assert standing(here) == [("discarded", "the schedule was suspended")]
    assert here.resume(4)
    arrive(here, "4")
    assert here.tick(5) == []
    arrive(here, "5")
    here.tick(6)
    assert partitions_of_runs(here) == [["4", "5"]]


def test_drain_launches_what_waits_and_takes_nothing_new(world: MakeWorld) -> None:
    """A job that waits for a delay is launched while suspended; what arrives is ignored."""
    here = world([schedule("drain", constraints=[only.delay("10s")])])
    arrive(here, "1", "2")
    here.tick(1)
    here.suspend(2)
    arrive(here, "3", "4")
    here.tick(3)
    here.tick(11)
    assert partitions_of_runs(here) == [["1", "2"]]
    here.resume(20)
    here.tick(40)
    assert len(here.dagster.requests) == 1


def test_drain_keeps_a_job_whose_trigger_wants_more(world: MakeWorld) -> None:
    """It is neither completed by what arrives meanwhile nor lost: it goes on after the resume."""
    here = world([schedule("drain")])
    arrive(here, "1")
    here.tick(1)
    here.suspend(2)
    arrive(here, "2")
    here.tick(3)
    assert here.dagster.requests == []
    here.resume(4)
    arrive(here, "3")
    here.tick(5)
    assert partitions_of_runs(here) == [["1", "3"]]


@pytest.mark.parametrize("act", [cancel_job, launch_job])
def test_the_time_of_a_drained_job_that_has_gone_makes_no_other(
    world: MakeWorld, act: Callable[..., Job]
) -> None:
    """An hour after an arrival it would have had its tick; a user cancels or launches it."""
    elapsed = on.elapsed("1h", since=on.partitions("raw/a"))
    here = world([schedule("drain", trigger=elapsed)])
    here.feed.arrive("raw/a", "1", moment=at(10))
    here.tick(10)
    here.suspend(20)
    with here.database.begin() as tx:
        (job_id,) = tx.execute(sa.select(jobs.c.id)).scalars()
        act(tx, locked(tx, "default", "here"), job_id, at(30))
    here.tick(40)
    here.tick(3610)
    assert len(standing(here)) == 1


def test_backlog_makes_whole_jobs_and_launches_them_on_resume(world: MakeWorld) -> None:
    """Five partitions at a count of two: two whole jobs, and one that waits for its second."""
    here = world([schedule("backlog")])
    here.suspend(1)
    arrive(here, "1", "2", "3", "4", "5")
    here.tick(2)
    here.tick(60)
    assert here.dagster.requests == []
    kept = "the schedule is suspended, and launches what it collects when it is resumed"
    assert standing(here) == [
        ("waiting_constraints", kept),
        ("waiting_constraints", kept),
        ("waiting_trigger", "1 of 2 partitions of raw/a have arrived"),
    ]
    here.resume(90)
    here.tick(91)
    assert partitions_of_runs(here) == [["1", "2"], ["3", "4"]]
    arrive(here, "6")
    here.tick(92)
    assert partitions_of_runs(here)[2:] == [["5", "6"]]


def test_a_job_that_waits_at_the_suspension_is_whole_in_a_backlog(world: MakeWorld) -> None:
    """Enabled, it would have taken more; what arrives while suspended is another job."""
    here = world([schedule("backlog", constraints=[only.delay("10s")])])
    arrive(here, "1", "2")
    here.tick(1)
    here.suspend(2)
    arrive(here, "3", "4")
    here.tick(3)
    here.resume(20)
    here.tick(21)
    assert partitions_of_runs(here) == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize("coalesce", [True, False])
def test_collect_fills_one_job_and_launches_it_on_resume(world: MakeWorld, coalesce: bool) -> None:
    """Five partitions at a count of two are one job of five, whether firings coalesce or not."""
    here = world([schedule("collect", coalesce=coalesce)])
    here.suspend(1)
    arrive(here, "1", "2", "3")
    here.tick(2)
    arrive(here, "4", "5")
    here.tick(3)
    assert [state for state, _ in standing(here)] == ["waiting_constraints"]
    here.resume(4)
    here.tick(5)
    assert partitions_of_runs(here) == [["1", "2", "3", "4", "5"]]
    arrive(here, "6", "7")
    here.tick(6)
    assert partitions_of_runs(here)[1:] == [["6", "7"]]


def test_what_follows_a_resume_has_jobs_of_its_own_where_each_tick_has_one(
    world: MakeWorld,
) -> None:
    """A window holds what was collected; the next tick of the ``then`` does not join it."""
    then = on.then(on.cron("0 * * * *"), on.partitions("raw/a"))
    window = only.window("02:30", "23:00")
    here = world([schedule("collect", trigger=then, constraints=[window])])
    here.suspend(1)
    here.tick(3600)
    here.feed.arrive("raw/a", "1", moment=at(3700))
    here.tick(3700)
    here.resume(3800)
    here.tick(3801)
    here.tick(7200)
    here.feed.arrive("raw/a", "2", moment=at(7300))
    here.tick(7300)
    here.tick(9000)
    assert partitions_of_runs(here) == [["", "1"], ["", "2"]]


def test_a_tick_does_not_delay_a_launch_of_what_a_suspended_schedule_collects(
    world: MakeWorld,
) -> None:
    """It is launched manually just before the tick of its ``then``."""
    then = on.then(on.cron("0 * * * *"), on.partitions("raw/a"))
    here = world([schedule("collect", trigger=then)])
    here.suspend(1)
    with here.database.begin() as tx:
        launch_schedule(tx, here.engine.store, locked(tx, "default", "here"), "s", at(3599))
    assert len(here.tick(3600)) == 1


def test_a_backlog_passes_its_constraints_one_by_one(world: MakeWorld) -> None:
    """Three whole jobs under a limit of one run one after another, in the order they fired."""
    here = world([schedule("backlog", constraints=[only.concurrency(1)])])
    here.suspend(1)
    arrive(here, *"123456")
    here.tick(2)
    here.resume(3)
    assert here.tick(4) == ["run-1"]
    here.dagster.end("run-1")
    assert here.tick(5) == ["run-2"]
    here.dagster.end("run-2")
    assert here.tick(6) == ["run-3"]
    assert partitions_of_runs(here) == [["1", "2"], ["3", "4"], ["5", "6"]]


@pytest.mark.parametrize("mode", ["drain", "backlog", "collect"])
def test_the_timeout_stands_still_while_suspended(world: MakeWorld, mode: str) -> None:
    """A timeout of 60 s, suspended from second 20 to 500: it ends at 540."""
    here = world([schedule(mode, timeout="60s")])
    arrive(here, "1")
    here.tick(0)
    here.suspend(20)
    here.tick(21)
    here.tick(100)
    here.tick(400)
    here.resume(500)
    here.tick(539)
    assert [state for state, _ in standing(here)] == ["waiting_trigger"]
    here.tick(540)
    assert standing(here) == [
        (
            "discarded",
            "its trigger was not satisfied in time: 1 of 2 partitions of raw/a have arrived",
        )
    ]


def test_a_job_begun_while_suspended_has_all_its_time_after_the_resume(world: MakeWorld) -> None:
    """It was made at second 30 of a suspension that ends at 500: its 60 s begin then."""
    here = world([schedule("collect", timeout="60s")])
    here.suspend(1)
    arrive(here, "1")
    here.tick(30)
    here.resume(500)
    here.tick(559)
    assert [state for state, _ in standing(here)] == ["waiting_trigger"]
    here.tick(560)
    assert [state for state, _ in standing(here)] == ["discarded"]


@pytest.mark.parametrize(
    ("mode", "runs"), [("drop", 0), ("drain", 0), ("backlog", 3), ("collect", 1)]
)
def test_ticks_of_time_are_events_too(world: MakeWorld, mode: str, runs: int) -> None:
    """Three minutes of cron while suspended: ignored, three jobs, or one."""
    here = world([schedule(mode, trigger=on.cron("* * * * *"))])
    here.suspend(1)
    for seconds in (60, 120, 180):
        here.tick(seconds)
    here.resume(190)
    here.tick(191)
    assert len(here.dagster.requests) == runs


def test_each_partition_collects_for_its_own_run(world: MakeWorld) -> None:
    """``partitions: each`` splits as usual; both runs start on resume, one for each key."""
    here = world([schedule("collect", trigger=on.partitions("raw/a"), partitions="each")])
    here.suspend(1)
    arrive(here, "1", "2", "1")
    here.tick(2)
    assert here.dagster.requests == []
    here.resume(3)
    here.tick(4)
    assert sorted(str(r.partition_start) for r in here.dagster.requests) == ["1", "2"]


def test_suspending_twice_changes_nothing_and_each_change_is_history(world: MakeWorld) -> None:
    """The second suspension says it was none; resuming twice likewise."""
    here = world([schedule("collect")])
    assert here.suspend(1)
    assert not here.suspend(2)
    assert here.resume(3)
    assert not here.resume(4)
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        history = history_of(tx, location, "s")
    assert [(row["at"], row["action"], row["reason"]) for row in history] == [
        (at(0), "created", "deployed"),
        (at(1), "suspended", "a test"),
        (at(3), "enabled", "a test"),
    ]


def test_an_update_while_suspended_goes_by_the_new_mode(world: MakeWorld) -> None:
    """From collect to drop: the waiting job is discarded, ticks of time are no longer taken."""
    here = world([schedule("collect", trigger=on.cron("* * * * *"))])
    here.suspend(1)
    here.tick(60)
    here.schedules = [schedule("drop", trigger=on.cron("* * * * *"))]
    here.engine = here.new_engine()
    here.tick(61)
    here.tick(300)
    assert standing(here) == [("discarded", "the schedule was updated")]
    here.resume(301)
    assert here.tick(302) == []
    assert here.tick(360) == ["run-1"]
