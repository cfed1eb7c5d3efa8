"""Why a schedule did not launch at a moment, on both databases."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import AnyTrigger, on
from arctic_orchestration.schedules.views.why_not import why_not
from arctic_orchestration.schedules.views.why_not_answer import WhyNot
from arctic_orchestration.state.audit import Actor
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    MakeWorld as MakeWorldOfPartitions,
)
from arctic_orchestration_tests.schedules.lake_of_partitions import daily, lake
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule

__all__ = ["lake"]

HOUR = 3600.0


def answer_at(world: World, seconds: float, name: str = "s", now: float = 48 * HOUR) -> WhyNot:
    with world.database.read() as tx:
        place = location_by_name(tx, "default", None)
        found = why_not(tx, ScheduleStore(), place, name, at(seconds), at(now))
    json.dumps(found.to_json())
    return found


def changed(world: World, what: Callable[..., object], seconds: float, name: str = "s") -> None:
    with world.database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        what(tx, ScheduleStore(), place, name, at(seconds), actor=Actor(name="ada"))


def test_a_window_that_held_it_is_simulated_again(world: MakeWorld) -> None:
    """The job launched when the window opened, which overwrote the verdict of two o'clock."""
    here = world([schedule(constraints=[only.window("04:00", "05:00")])])
    here.feed.arrive("raw/a", "monday", moment=at(HOUR))
    here.tick(HOUR)
    (run,) = here.tick(4 * HOUR) + here.tick(4 * HOUR + 1)
    here.dagster.end(run)
    here.tick(4 * HOUR + 2)

    found = answer_at(here, 2 * HOUR)
    assert (found.source, found.cause) == ("simulation", "window")
    assert found.answer == (
        "its constraints held it: the window 04:00-05:00 (UTC) opens at 2026-01-01 04:00:00Z"
    )
    launched = answer_at(here, 4 * HOUR)
    assert launched.cause == "launched"
    assert launched.answer.startswith("it did launch: job ")


@pytest.mark.parametrize(
    "trigger",
    [
        on.run("load"),
        on.run("load", assets=["m"]),
        on.run(assets=["m"]),
        on.run("load", tags={"dagster/schedule_name": "nightly"}),
        on.run("load", tags={"arctic/schedule": "loads"}),
    ],
)
def test_a_run_of_a_job_that_makes_assets_is_simulated_again(
    world: MakeWorld, trigger: AnyTrigger
) -> None:
    """By its job, its assets and its tags; its own job, of the recording, is not simulated."""
    here = world([schedule(trigger=trigger, constraints=[only.window("04:00", "05:00")])])
    tags = {"dagster/schedule_name": "nightly", "arctic/schedule": "loads", "arctic/job": "x"}
    run = Event(
        kind=EventKind.RUN, subject="load", at=at(HOUR), storage_id=1, run_id="r",
        status=RunStatus.SUCCESS, location="here", assets=("m",), tags=tags, started=True,
    )  # fmt: skip
    here.feed.events.append(run)
    here.tick(HOUR)
    here.tick(4 * HOUR)

    found = answer_at(here, 2 * HOUR)
    assert (found.source, found.cause) == ("simulation", "window")


def test_a_run_of_the_target_that_was_active_held_it(world: MakeWorld) -> None:
    """The first job runs from one to three; the second waits for it from two on."""
    here = world([schedule(constraints=[only.concurrency(1)])])
    here.feed.arrive("raw/a", "monday", moment=at(HOUR))
    (first,) = here.tick(HOUR) + here.tick(HOUR + 1)
    here.feed.arrive("raw/a", "tuesday", moment=at(2 * HOUR))
    here.tick(2 * HOUR)
    here.tick(2 * HOUR + 1)
    here.dagster.end(first, ended_at=at(3 * HOUR))
    (second,) = here.tick(3 * HOUR) + here.tick(3 * HOUR + 1)
    here.dagster.end(second, ended_at=at(4 * HOUR))
    here.tick(4 * HOUR)

    found = answer_at(here, 2.5 * HOUR)
    assert (found.source, found.answer) == (
        "simulation", "its constraints held it: 1 of 1 runs of this target are active",
    )  # fmt: skip


def test_a_group_that_another_schedule_filled_is_read_from_history(world: MakeWorld) -> None:
    here = world(
        [
            schedule("a", target="a", priority=1, constraints=[only.concurrency(1, group="g")]),
            schedule("b", target="b", constraints=[only.concurrency(1, group="g")]),
        ]
    )
    here.feed.arrive("raw/a", "monday", moment=at(HOUR))
    (run,) = here.tick(HOUR) + here.tick(HOUR + 1)
    here.dagster.end(run, ended_at=at(2 * HOUR))
    here.tick(2 * HOUR)
    here.tick(2 * HOUR + 1)

    found = answer_at(here, 1.5 * HOUR, "b")
    assert (found.cause, found.source) == ("concurrency:group:g", "history")
    assert found.answer == "its constraints held it: 1 of 1 runs of group g were active"


def test_what_a_trigger_missed_then_is_told_by_the_events_that_were_read(world: MakeWorld) -> None:
    """One of three partitions at one, two at two; the reason of today is another one."""
    here = world([schedule(trigger=on.partitions("raw/a", count=3))])
    for hour, day in ((1, "monday"), (2, "tuesday")):
        here.feed.arrive("raw/a", day, moment=at(hour * HOUR))
        here.tick(hour * HOUR)
    first, second = answer_at(here, 1.5 * HOUR), answer_at(here, 2.5 * HOUR)
    assert (first.cause, first.source) == ("trigger", "history")
    assert first.answer.endswith("1 of 3 partitions of raw/a have arrived")
    assert second.answer.endswith("2 of 3 partitions of raw/a have arrived")


@pytest.mark.parametrize("of", [{"partitions": "each"}, {"target": "report", "per": "date"}])
@pytest.mark.parametrize("complete", [False, True])
def test_what_all_partitions_missed_then(
    lake: MakeWorldOfPartitions, of: dict[str, Any], complete: bool
) -> None:
    """Which ones, while nothing has arrived since; else how many, also once the job has fired."""
    trigger = on.partitions("raw/orders", count="all", per=of.get("per"), complete=complete)
    fields = {"partitions": "none", **of}
    fields.pop("per", None)
    here = lake(daily(**fields, trigger=trigger))
    for hour, region in enumerate(("emea", "amer", "apac"), start=24):
        here.feed.arrive("raw/orders", f"2026-01-01|{region}")
        here.tick(hour * HOUR)
        if region == "emea":
            of_all = "partitions of raw/orders have arrived"
            found = answer_at(here, 24.5 * HOUR, "daily").answer
            assert found.endswith(f"1 of 3 {of_all}, missing 2026-01-01|amer, 2026-01-01|apac")
    for have in (1, 2):
        found = answer_at(here, (have + 23.5) * HOUR, "daily").answer
        assert found == f"its trigger was not satisfied: {have} of 3 {of_all}"


def test_arrivals_without_a_partition_are_counted_one_by_one(world: MakeWorld) -> None:
    here = world([schedule(trigger=on.partitions("raw/a", count=3))])
    for hour in (1, 2):
        here.feed.arrive("raw/a", None, moment=at(hour * HOUR))
        here.tick(hour * HOUR)
    assert answer_at(here, 3 * HOUR).answer == (
        "its trigger was not satisfied: 2 of 3 partitions of raw/a have arrived"
    )


def test_nothing_had_arrived_or_it_was_read_late(world: MakeWorld) -> None:
    """A partition of one o'clock is read at three: no dispatcher had ticked in between."""
    here = world([schedule(trigger=on.partitions("raw/a") | on.cron("0 9 * * *"))])
    here.feed.arrive("raw/a", "monday", moment=at(HOUR))
    (run,) = here.tick(3 * HOUR) + here.tick(3 * HOUR + 1)
    here.dagster.end(run, ended_at=at(4 * HOUR))
    here.tick(4 * HOUR)

    late = answer_at(here, 2 * HOUR)
    assert late.cause == "read_late"
    assert late.answer == (
        "partition raw/a monday of 2026-01-01 01:00:00Z was read at 2026-01-01 03:00:00Z only"
    )
    assert answer_at(here, 0.5 * HOUR).answer == "nothing had arrived yet"
    later = answer_at(here, 4.1 * HOUR)
    assert later.cause == "nothing_arrived"
    assert later.answer.startswith("nothing had arrived since its last job ")
    assert [one.at for one in later.evidence] == [at(9 * HOUR)]
    assert answer_at(here, 40 * HOUR).cause == "dispatcher"


def test_suspended_discarded_deleted_and_not_created(world: MakeWorld) -> None:
    """Each by the line of history that says it, with the person."""
    here = world([schedule(), schedule("half", trigger=on.partitions("raw/a", count=2))])
    changed(here, control.suspend, HOUR)
    changed(here, control.enable, 2 * HOUR)
    found = answer_at(here, 1.5 * HOUR)
    assert found.cause == "suspended"
    assert found.answer == (
        "it was suspended at 2026-01-01 01:00:00Z by ada: manually (suspend_mode drop)"
    )
    assert [one.text for one in found.evidence] == [
        "it was enabled at 2026-01-01 02:00:00Z by ada: manually"
    ]

    here.feed.arrive("raw/a", "monday", moment=at(3 * HOUR))
    here.tick(3 * HOUR)
    # The timeout of a day ends at three of the next day.
    here.tick(27 * HOUR)
    discarded = answer_at(here, 27.1 * HOUR, "half")
    assert discarded.cause == "discarded"
    assert "its trigger was not satisfied in time" in discarded.answer

    assert answer_at(here, -HOUR).cause == "not_created"
    changed(here, control.delete, 30 * HOUR)
    gone = answer_at(here, 31 * HOUR)
    assert (gone.cause, gone.source) == ("deleted", "history")
    assert "2026-01-02 06:00:00Z by ada" in gone.answer
    before = answer_at(here, 1.5 * HOUR)
    assert before.cause == "suspended"
    assert answer_at(here, 28 * HOUR).source == "unknown"


def test_bad_questions_are_refused(world: MakeWorld) -> None:
    here = world([schedule()])
    with pytest.raises(InvalidInput, match="a moment that has passed; it is 2026-01-03"):
        answer_at(here, 49 * HOUR)
    with pytest.raises(NotFound, match="no schedule t; it has: s|did you mean"):
        answer_at(here, HOUR, "t")


def test_a_suspension_of_an_earlier_schedule_of_the_name_does_not_count(world: MakeWorld) -> None:
    """It was deleted, and one of the same name was created enabled."""
    here = world([schedule("other", trigger=on.partitions("raw/b"))])
    with here.database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        control.apply(tx, ScheduleStore(), place, [schedule()], at(1))
    changed(here, control.suspend, 2)
    changed(here, control.delete, 3)
    with here.database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        control.apply(tx, ScheduleStore(), place, [schedule()], at(4))
    assert answer_at(here, 60).cause != "suspended"
    assert answer_at(here, 2.5).cause in ("suspended", "not_created")


def test_a_tick_that_an_outage_of_the_dispatcher_missed(world: MakeWorld) -> None:
    """Later ticks of the dispatcher do not hide that it was away at four o'clock."""
    nightly = on.cron("0 4 * * *", catch_up="none", grace="5m")
    here = world([schedule(trigger=nightly)])
    here.tick(3 * HOUR)
    here.tick(5 * HOUR)
    found = answer_at(here, 4 * HOUR, now=5 * HOUR)
    assert (found.cause, found.answer) == (
        "dispatcher",
        "no dispatcher delivered its tick of 2026-01-01 04:00:00Z in time",
    )


def test_a_moment_before_1970_is_refused(world: MakeWorld) -> None:
    """So that no arithmetic with it fails."""
    here = world([schedule()])
    with pytest.raises(InvalidInput, match="a moment since 1970"):
        answer_at(here, -400_000 * 24 * HOUR)
