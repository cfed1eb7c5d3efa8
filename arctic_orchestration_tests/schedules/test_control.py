"""What a person may do to schedules and jobs, on both databases."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import InvalidDefinition, NotFound, TransitionRefused
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import history_of
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import job_events, job_history, jobs, schedules
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule


@contextmanager
def changing(world: World) -> Iterator[tuple[sa.Connection, ScheduleStore, Location]]:
    """A transaction of the location, as the command begins it."""
    with world.database.begin() as tx:
        yield tx, ScheduleStore(), locations.locked(tx, "default", world.location)


def apply(world: World, wanted: Sequence[Schedule], seconds: float = 0, **options: Any) -> Any:
    with changing(world) as (tx, store, here):
        return control.apply(tx, store, here, wanted, at(seconds), **options)


def schedule_rows(world: World) -> dict[str, tuple[int, str, str]]:
    """Version, origin and status by name."""
    with world.database.read() as tx:
        return {
            row.name: (row.version, row.origin, row.status)
            for row in tx.execute(sa.select(schedules))
        }


def job_rows(world: World) -> list[Any]:
    with world.database.read() as tx:
        return list(tx.execute(sa.select(jobs).order_by(jobs.c.created_at, jobs.c.id)))


def history(world: World, name: str) -> list[tuple[str, int, str]]:
    with changing(world) as (tx, _, here):
        lines = history_of(tx, here, name)
    return [(str(line["action"]), line["version"], line["reason"]) for line in lines]


def test_an_applied_schedule_runs_and_belongs_to_no_deployment(world: MakeWorld) -> None:
    """Origin api; the dispatcher, which goes on, finds it by its events."""
    here = world([])
    difference = apply(here, [schedule("a"), schedule("b", enabled=False)], 1)
    assert [made.name for made in difference.created] == ["a", "b"]
    assert schedule_rows(here) == {"a": (1, "api", "enabled"), "b": (1, "api", "suspended")}
    here.feed.arrive("raw/a", "1")
    assert here.tick(2) == ["run-1"]
    here.schedules = [schedule("declared")]
    here.engine = here.new_engine()
    here.tick(3)
    assert set(schedule_rows(here)) == {"a", "b", "declared"}
    assert history(here, "a") == [("created", 1, "manually")]


def test_what_does_not_differ_is_left_alone(world: MakeWorld) -> None:
    """Neither a new version nor a discarded job."""
    wanted = [schedule("a", trigger=on.partitions("raw/a", count=2))]
    here = world([])
    apply(here, wanted)
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    difference = apply(here, wanted, 2)
    assert (difference.is_empty, difference.unchanged) == (True, ("a",))
    here.feed.arrive("raw/a", "2")
    assert here.tick(3) == ["run-1"]


def test_an_update_restarts_the_count_and_keeps_the_status(world: MakeWorld) -> None:
    """One of two had arrived; after the update to three, three more are needed."""
    here = world([])
    apply(here, [schedule("a", trigger=on.partitions("raw/a", count=2))])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    apply(here, [schedule("a", trigger=on.partitions("raw/a", count=3), enabled=False)], 2)
    assert schedule_rows(here) == {"a": (2, "api", "enabled")}
    assert [(row.state, row.reason) for row in job_rows(here)] == [
        ("discarded", "the schedule was updated")
    ]
    for key in ("2", "3"):
        here.feed.arrive("raw/a", key)
        assert here.tick(3) == []
    here.feed.arrive("raw/a", "4")
    assert here.tick(4) == ["run-1"]
    assert history(here, "a") == [
        ("created", 1, "manually"),
        ("updated", 2, "manually; 1 waiting job with 1 event was discarded"),
    ]


def test_a_schedule_of_the_code_changed_manually_keeps_its_origin(world: MakeWorld) -> None:
    """The next deployment that updates schedules sets it back."""
    here = world([schedule("a")])
    apply(here, [schedule("a", priority=7)], 1)
    assert schedule_rows(here) == {"a": (2, "code", "enabled")}
    here.schedules = [schedule("a"), schedule("b")]
    here.engine = here.new_engine()
    here.tick(2)
    assert schedule_rows(here)["a"] == (3, "code", "enabled")


def test_an_apply_that_fails_half_way_has_done_nothing(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update stands before the creation that breaks, in one transaction."""
    here = world([])
    apply(here, [schedule("a")])

    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("no more space")

    monkeypatch.setattr(ScheduleStore, "add", broken)
    with pytest.raises(RuntimeError):
        apply(here, [schedule("a", priority=7), schedule("b")], 1)
    assert schedule_rows(here) == {"a": (1, "api", "enabled")}
    with pytest.raises(InvalidDefinition, match="name: got 'c', expected a name used once"):
        apply(here, [schedule("c"), schedule("c", priority=1)])


def test_prune_deletes_what_was_created_manually_only(world: MakeWorld) -> None:
    """What the code declares stays; without prune nothing goes."""
    here = world([schedule("declared")])
    apply(here, [schedule("a"), schedule("b")])
    assert apply(here, [schedule("a")]).deleted == ()
    assert apply(here, [schedule("a")], prune=True).deleted == ("b",)
    assert set(schedule_rows(here)) == {"a", "declared"}
    assert history(here, "b")[-1] == ("deleted", 1, "manually")


def test_a_schedule_that_cannot_be_read_is_created_again_or_deleted(world: MakeWorld) -> None:
    """It cannot be enabled, and the message says why."""
    here = world([])
    apply(here, [schedule("a"), schedule("b")])
    with here.database.begin() as tx:
        tx.execute(sa.update(schedules).values(spec='{"name": "a", "sundial": 1}'))
    with (
        pytest.raises(TransitionRefused, match="another version of the package"),
        changing(here) as (tx, store, place),
    ):
        control.enable(tx, store, place, "a", at(1))
    difference = apply(here, [schedule("a")], 2)
    assert [change.name for change in difference.updated] == ["a"]
    assert difference.updated[0].problem is not None
    with changing(here) as (tx, store, place):
        control.delete(tx, store, place, "b", at(3))
    assert set(schedule_rows(here)) == {"a"}
    here.feed.arrive("raw/a", "1")
    assert here.tick(4) == ["run-1"]


def test_enable_and_suspend_say_whether_they_changed_anything(world: MakeWorld) -> None:
    """What arrives while it is suspended is ignored; each change is a line of history."""
    here = world([schedule("a", enabled=False)])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == []
    with changing(here) as (tx, store, place):
        assert control.enable(tx, store, place, "a", at(2))
    with changing(here) as (tx, store, place):
        assert not control.enable(tx, store, place, "a", at(3))
    here.feed.arrive("raw/a", "2")
    assert here.tick(4) == ["run-1"]
    with changing(here) as (tx, store, place):
        assert control.suspend(tx, store, place, "a", at(5), reason="maintenance")
    here.feed.arrive("raw/a", "3")
    assert here.tick(6) == []
    assert history(here, "a")[1:] == [("enabled", 1, "manually"), ("suspended", 1, "maintenance")]


def test_unknown_names_are_refused_with_those_that_are_near(world: MakeWorld) -> None:
    """And where none is near, with what there is."""
    here = world([schedule("hourly_rollup"), schedule("x")])
    with (
        pytest.raises(NotFound, match=r"no schedule hourly_rolup; did you mean hourly_rollup\?"),
        changing(here) as (tx, store, place),
    ):
        control.suspend(tx, store, place, "hourly_rolup", at(1))
    with (
        pytest.raises(NotFound, match="has no schedule zzzz; it has: hourly_rollup, x"),
        changing(here) as (tx, store, place),
    ):
        control.delete(tx, store, place, "zzzz", at(1))
    with pytest.raises(NotFound), changing(here) as (tx, store, place):
        control.update(tx, store, place, schedule("new"), at(1))
    assert set(schedule_rows(here)) == {"hourly_rollup", "x"}


def test_after_a_delete_one_more_arrival_starts_nothing(world: MakeWorld) -> None:
    """Four of five had arrived, and their job went with the schedule."""
    here = world([schedule("a", trigger=on.partitions("raw/a", count=5))])
    for key in "1234":
        here.feed.arrive("raw/a", key)
    here.tick(1)
    with changing(here) as (tx, store, place):
        control.delete(tx, store, place, "a", at(2))
    assert job_rows(here) == []
    here.feed.arrive("raw/a", "5")
    assert here.tick(3) == []


def launch(world: World, job_id: str, seconds: float) -> Any:
    with changing(world) as (tx, _, place):
        return job_control.launch_job(tx, place, job_id, at(seconds))


def cancel(world: World, job_id: str, seconds: float) -> Any:
    with changing(world) as (tx, _, place):
        return job_control.cancel_job(tx, place, job_id, at(seconds))


def test_a_job_launched_manually_goes_past_its_delay(world: MakeWorld) -> None:
    """With the next tick; the reason says that it was launched manually."""
    here = world([schedule("a", constraints=[only.delay("1h")])])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == []
    (job,) = job_rows(here)
    launch(here, job.id, 2)
    launch(here, job.id, 2)
    assert here.tick(3) == ["run-1"]
    with here.database.read() as tx:
        reasons = tx.execute(sa.select(job_history.c.reason).order_by(job_history.c.id)).scalars()
        assert list(reasons)[1:] == [
            "launched manually",
            "launched manually",
            "admitted past its constraints: launched manually",
        ]


def test_a_job_launched_manually_waits_for_its_slot(world: MakeWorld) -> None:
    """A limit on concurrency is a promise to others; when the slot is free, it goes."""
    limits = [only.concurrency(1), only.delay("1h")]
    here = world([schedule("a", constraints=limits)])
    here.dagster.start("rollup", "manual")
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job,) = job_rows(here)
    launch(here, job.id, 2)
    assert here.tick(3) == []
    (job,) = job_rows(here)
    assert (job.state, job.reason) == (
        "waiting_constraints",
        "1 of 1 runs of this target are active",
    )
    here.dagster.end("manual")
    assert here.tick(4) == ["run-1"]


def test_a_job_that_is_collected_for_the_resume_can_be_launched_before_it(
    world: MakeWorld,
) -> None:
    """Its schedule stays suspended."""
    here = world([schedule("a", enabled=False, suspend_mode="collect")])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == []
    (job,) = job_rows(here)
    launch(here, job.id, 2)
    assert here.tick(3) == ["run-1"]
    here.feed.arrive("raw/a", "2")
    assert here.tick(4) == []
    assert schedule_rows(here)["a"][2] == "suspended"


@pytest.mark.parametrize("mode", ["drop", "drain", "backlog", "collect"])
def test_a_suspended_schedule_is_launched_manually(world: MakeWorld, mode: str) -> None:
    """One job without events is launched, and the schedule stays suspended."""
    here = world([schedule("s", suspend_mode=mode, enabled=False)])
    here.tick(1)
    with changing(here) as (tx, store, place):
        job_control.launch_schedule(tx, store, place, "s", at(2))
    assert here.tick(3) == ["run-1"]
    assert schedule_rows(here)["s"][2] == "suspended"


def test_a_job_that_waits_for_its_trigger_goes_with_what_has_arrived(world: MakeWorld) -> None:
    """Two of five; the third, that comes later, is of the next job."""
    here = world([schedule("a", trigger=on.partitions("raw/a", count=5))])
    for key in "12":
        here.feed.arrive("raw/a", key)
    here.tick(1)
    (job,) = job_rows(here)
    launch(here, job.id, 2)
    assert here.tick(3) == ["run-1"]
    here.feed.arrive("raw/a", "3")
    here.tick(4)
    first, second = job_rows(here)
    assert (first.state, second.state) == ("launched", "waiting_trigger")
    with here.database.read() as tx:
        had = sa.select(job_events.c.partition).where(job_events.c.job_id == first.id)
        assert sorted(tx.execute(had).scalars()) == ["1", "2"]


def test_a_launch_takes_each_partition_along(world: MakeWorld) -> None:
    """Also the one that joins a job which waits for that partition already."""
    each = schedule(
        "a",
        trigger=on.partitions("raw/a", count=2),
        partitions="each",
        constraints=[only.delay("1h")],
    )
    here = world([each])
    for key in "12":
        here.feed.arrive("raw/a", key)
    here.tick(1)
    here.feed.arrive("raw/a", "2")
    here.tick(2)
    waiting = [row for row in job_rows(here) if row.state == "waiting_trigger"]
    launch(here, waiting[0].id, 3)
    assert len(here.tick(4)) == 1
    assert here.dagster.requests[0].partition_start == "2"
    left = [row for row in job_rows(here) if row.state == "waiting_constraints"]
    assert [row.partition_start for row in left] == ["1"]


def test_a_canceled_job_is_discarded_and_the_next_arrival_begins_another(
    world: MakeWorld,
) -> None:
    """What it had is not given to another job."""
    here = world([schedule("a", trigger=on.partitions("raw/a", count=2))])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job,) = job_rows(here)
    cancel(here, job.id, 2)
    here.feed.arrive("raw/a", "2")
    assert here.tick(3) == []
    first, second = job_rows(here)
    assert (first.state, first.reason, first.ended_at) == ("discarded", "canceled manually", at(2))
    assert second.state == "waiting_trigger"


def test_a_job_with_a_run_names_what_to_terminate(world: MakeWorld) -> None:
    """When it runs, and when it has ended."""
    here = world([schedule("a")])
    here.feed.arrive("raw/a", "1")
    assert here.tick(3) == ["run-1"]
    here.tick(4)
    (job,) = job_rows(here)
    with pytest.raises(TransitionRefused, match="launched as run run-1. Terminate that run in D"):
        cancel(here, job.id, 5)
    with pytest.raises(TransitionRefused, match="cannot be launched manually: it is launched as"):
        launch(here, job.id, 5)
    here.dagster.end("run-1")
    here.tick(6)
    with pytest.raises(TransitionRefused, match="it has ended at 2026-01-01 00:00:06Z, succeeded"):
        cancel(here, job.id, 7)


def test_jobs_of_another_location_are_not_found(world: MakeWorld, database: Database) -> None:
    """Each location has its own."""
    here = world([schedule("a", constraints=[only.delay("1h")])])
    there = World(database, [], location="there")
    there.tick(0)
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job,) = job_rows(here)
    for act in (launch, cancel):
        with pytest.raises(NotFound, match="location there has no job"):
            act(there, job.id, 2)
