"""Why a job is where it is, on both databases."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, NotFound, TransitionRefused
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.lookup import job_by_id_part, location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import Arrivals, Partitions, on
from arctic_orchestration.schedules.views.documents import explanation_document
from arctic_orchestration.schedules.views.explanation import Explanation, explain, explain_schedule
from arctic_orchestration.schedules.views.forecast import Moment, upcoming
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.schedules.views.trigger_tree import tree
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.schedules.simulated import EPOCH, MakeWorld, World, at, schedule


def of_schedule(world: World, seconds: float, name: str = "s") -> Explanation:
    with world.database.read() as tx:
        here = location_by_name(tx, "default", None)
        return explain_schedule(tx, ScheduleStore(), here, name, at(seconds))


def of_job(world: World, job_id: str, seconds: float) -> Explanation:
    with world.database.read() as tx:
        here = location_by_name(tx, "default", None)
        return explain(tx, ScheduleStore(), here, job_id, at(seconds))


def job_ids(world: World) -> list[str]:
    with world.database.read() as tx:
        return list(
            tx.execute(sa.select(jobs.c.id).order_by(jobs.c.created_at, jobs.c.id)).scalars()
        )


def test_each_child_of_a_trigger_says_what_has_arrived_and_what_is_missing(
    world: MakeWorld,
) -> None:
    """One of three partitions, and a cron whose next tick is at four."""
    trigger = on.partitions("raw/a", count=3) | on.cron("0 4 * * *")
    here = world([schedule(trigger=trigger, constraints=[only.concurrency(1)])])
    for _ in range(2):
        here.feed.arrive("raw/a", "1", moment=at(10), size=500)
    here.tick(10)
    found = of_schedule(here, 20)
    assert found.job is not None
    assert found.trigger is not None
    root = found.trigger
    assert (root.form, root.satisfied, root.arrivals) == ({"any_of": {}}, False, None)
    partitions, cron = root.children
    assert partitions.form == {"partitions": {"asset": "raw/a", "count": 3}}
    assert (partitions.satisfied, partitions.next_tick_at) == (False, None)
    assert partitions.reason == "1 of 3 partitions of raw/a have arrived"
    assert partitions.arrivals is not None
    assert (partitions.arrivals.events, partitions.arrivals.bytes) == (2, 1000)
    assert (partitions.arrivals.first_at, partitions.arrivals.last_at) == (at(10), at(10))
    assert cron.next_tick_at == EPOCH + timedelta(hours=4)
    (constraint,) = found.constraints
    assert (constraint.form, constraint.decision) == ({"concurrency": {"limit": 1}}, None)
    assert constraint.reason == "checked when the trigger is satisfied"
    assert found.timeout == "at 2026-01-02 00:00:10Z it is discarded"
    assert (found.events, found.partitions, found.others_waiting) == (2, ("1",), 0)
    assert found.summary.startswith("its trigger is not satisfied yet: 1 of 3 partitions of raw/a")


def test_each_constraint_has_its_verdict_and_its_next_check(world: MakeWorld) -> None:
    """The delay holds until an hour after the trigger, the limit admits."""
    limits = [only.delay("1h"), only.concurrency(2, group="spark")]
    here = world([schedule(constraints=limits, on_timeout="launch", priority=3)])
    here.feed.arrive("raw/a", "1")
    here.tick(10)
    found = of_schedule(here, 20)
    delay, concurrency = found.constraints
    assert (delay.decision, delay.recheck_at) == ("hold", at(3610))
    assert delay.reason == "1h after the trigger, at 2026-01-01 01:00:10Z"
    assert (concurrency.decision, concurrency.recheck_at) == ("admit", None)
    assert concurrency.reason == "0 of 2 runs of group spark are active"
    assert found.trigger is not None
    assert found.trigger.satisfied
    assert found.timeout == (
        "at 2026-01-02 00:00:10Z it is launched past its constraints, all but limits on concurrency"
    )
    assert found.summary == f"its constraints hold it: {delay.reason}"
    assert [(move.before, move.state) for move in found.history] == [
        ("waiting_trigger", "waiting_constraints")
    ]


def test_a_schedule_without_a_job_says_what_it_waits_for(world: MakeWorld) -> None:
    """Nothing has arrived; or it is suspended, and the message says how to enable it."""
    clock = schedule("clock", trigger=on.cron("0 4 * * *") | on.run("x"))
    here = world([schedule(), schedule("asleep", enabled=False), clock])
    assert of_schedule(here, 1, "clock").summary == (
        "nothing has arrived yet; its next tick is at 2026-01-01 04:00:00Z"
    )
    found = of_schedule(here, 1)
    assert (found.job, found.summary) == (None, "nothing has arrived yet")
    assert found.trigger is not None
    assert found.trigger.reason == "0 of 1 partitions of raw/a have arrived"
    assert of_schedule(here, 1, "asleep").summary == (
        "suspended, and takes no events (arctic schedules enable asleep)"
    )
    here.feed.arrive("raw/a", "1")
    assert here.tick(2) == ["run-1"]
    assert of_schedule(here, 3).summary == (
        "nothing has arrived since its last job; 1 of its jobs are active"
    )
    here.tick(4)
    here.dagster.end("run-1", RunStatus.FAILURE)
    here.tick(5)
    assert of_schedule(here, 6).summary == (
        "nothing has arrived since its last job, which failed: run run-1 ended: failure"
    )


def test_what_collects_for_the_resume_says_so_and_its_timeout_stands_still(
    world: MakeWorld,
) -> None:
    """Suspended with collect: the job waits, whatever its constraints say."""
    here = world([schedule(enabled=False, suspend_mode="collect")])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    found = of_schedule(here, 2)
    assert found.summary.startswith("suspended; its constraints hold it: ")
    assert found.timeout == "stands still while the schedule is suspended; at its end discarded"


def test_a_job_with_a_run_names_it_and_how_it_ended(world: MakeWorld) -> None:
    """With each move, and without a timeout."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.tick(2)
    (job_id,) = job_ids(here)
    assert of_job(here, job_id, 3).summary.startswith("launched as run run-1: ")
    here.dagster.end("run-1")
    here.tick(3)
    found = of_job(here, job_id, 4)
    assert found.summary.startswith("succeeded as run run-1: ")
    assert found.timeout is None
    assert found.trigger is not None
    assert found.trigger.satisfied
    assert [move.state for move in found.history] == [
        "waiting_constraints",
        "launching",
        "launched",
        "succeeded",
    ]


def test_a_job_of_an_older_version_has_no_tree(world: MakeWorld) -> None:
    """The trigger of today says nothing about what it waited for."""
    here = world([schedule(constraints=[only.delay("1h")])])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job_id,) = job_ids(here)
    with here.database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        other = schedule(trigger=on.run("x"))
        control.apply(tx, ScheduleStore(), place, [other], at(2))
    found = of_job(here, job_id, 3)
    assert found.trigger is None
    assert [(node.form, node.decision) for node in found.constraints] == [({"delay": {}}, "hold")]
    assert found.summary == "discarded: the schedule was updated"


def test_a_manually_launched_job_has_that_reason(world: MakeWorld) -> None:
    """Its trigger is not satisfied, and it goes nevertheless."""
    trigger = on.partitions("raw/a", count=2)
    here = world([schedule(trigger=trigger, constraints=[only.concurrency(1)])])
    here.dagster.start("rollup", "manual")
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job_id,) = job_ids(here)
    with here.database.begin() as tx:
        job_control.launch_job(tx, locations.locked(tx, "default", "here"), job_id, at(2))
    here.tick(3)
    found = of_job(here, job_id, 4)
    assert found.trigger is not None
    assert not found.trigger.satisfied
    assert found.summary == (
        "launched manually; its constraints hold it: 1 of 1 runs of this target are active"
    )


def test_an_explanation_is_json_with_moments_in_utc(world: MakeWorld) -> None:
    """Every part of it; partitions beyond the twentieth are counted."""
    trigger = on.partitions("raw/a", count=30) | on.cron("0 4 * * *")
    here = world([schedule(trigger=trigger, constraints=[only.delay("1h")])])
    for key in range(23):
        here.feed.arrive("raw/a", str(key))
    here.tick(10)
    document = explanation_document(of_schedule(here, 20)).to_json()
    assert document["job"]["state"] == "waiting_trigger"
    assert document["job"]["deadline_at"] == "2026-01-02T00:00:10Z"
    assert document["trigger"]["children"][1]["next_tick_at"] == "2026-01-01T04:00:00Z"
    assert document["trigger"]["children"][0]["arrived"]["partitions"] == 23
    assert document["constraints"] == [
        {
            "form": {"delay": {"duration": "1h"}},
            "decision": None,
            "reason": "checked when the trigger is satisfied",
            "recheck_at": None,
        }
    ]
    assert document["partitions"] == [str(key) for key in range(20)]
    assert document["more_partitions"] == 3


def test_a_trigger_that_cannot_be_decided_is_explained_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One child's error is that child's reason."""

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("by nothing")

    trigger = on.partitions("raw/a") & on.cron("0 4 * * *")
    monkeypatch.setattr(Partitions, "evaluate", broken)
    node = tree(trigger, [Arrivals(), Arrivals()], {1: at(9)}, at(1))
    first, second = node.children
    assert first.reason == "it could not be decided: ZeroDivisionError('by nothing')"
    assert second.next_tick_at == at(9)


def test_a_tree_within_a_tree_gives_each_leaf_its_own_arrivals() -> None:
    """The leaves are numbered from left to right, whatever the nesting."""
    trigger = on.partitions("a") | (on.partitions("b", count=2) & on.partitions("c"))
    arrivals = [Arrivals(partitions=count, events=count) for count in (0, 1, 4)]
    node = tree(trigger, arrivals, {}, at(1))
    first, both = node.children
    assert first.arrivals == arrivals[0]
    assert [child.arrivals for child in both.children] == arrivals[1:]
    assert [child.satisfied for child in both.children] == [False, True]


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ({"partitions": {"asset": "a", "count": 3}}, "partitions asset a, count 3"),
        ({"concurrency": {}}, "concurrency"),
        (
            {"any_of": [{"run": {"job": "a"}}, {"cron": {"expression": "0 4 * * *"}}]},
            "any_of (run job a; cron expression 0 4 * * *)",
        ),
        (
            {"all_of": {"of": [{"run": {"job": "a"}}], "wait": "5m"}},
            "all_of (run job a), wait 5m",
        ),
        (
            {"elapsed": {"duration": "4h", "since": {"run": {"job": "a"}}}},
            "elapsed duration 4h, since (run job a)",
        ),
        ({"fresh": {"parents": {"a": 2, "b": 3}}}, "fresh parents {a 2, b 3}"),
        ({"run": {"job": "a", "status": ["failure"]}}, "run job a, status [failure]"),
    ],
)
def test_a_rule_is_written_on_one_line(form: dict[str, Any], line: str) -> None:
    """Its kind, its fields, and in brackets the rules that it is made of."""
    assert one_line(form) == line


def test_the_forecast_has_ticks_looks_and_timeouts_in_order(world: MakeWorld) -> None:
    """A cron every 20 minutes, a job held for an hour, and that job's end after two."""
    ticking = schedule("ticking", trigger=on.cron("*/20 * * * *"))
    held = schedule("held", constraints=[only.delay("1h")], timeout="2h")
    here = world([ticking, held, schedule("asleep", trigger=on.cron("* * * * *"), enabled=False)])
    here.feed.arrive("raw/a", "1")
    here.tick(10)
    with here.database.read() as tx:
        place = location_by_name(tx, "default", "here")
        found = upcoming(tx, ScheduleStore(), place, count=8)
        only_held = upcoming(tx, ScheduleStore(), place, name="held")
    assert [(moment.at, moment.schedule, moment.moment) for moment in found] == [
        (at(1200), "ticking", Moment.TICK),
        (at(2400), "ticking", Moment.TICK),
        (at(3600), "ticking", Moment.TICK),
        (at(3610), "held", Moment.LOOK),
        (at(4800), "ticking", Moment.TICK),
        (at(6000), "ticking", Moment.TICK),
        (at(7200), "ticking", Moment.TICK),
        (at(7210), "held", Moment.TIMEOUT),
    ]
    assert [moment.moment for moment in only_held] == [Moment.LOOK, Moment.TIMEOUT]


def test_a_job_is_named_by_any_part_that_no_other_has(world: MakeWorld) -> None:
    """Four characters at least; several that have it are listed."""
    here = world([schedule("a"), schedule("b")])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    first, second = job_ids(here)
    assert first[:20] == second[:20]
    with here.database.read() as tx:
        place = location_by_name(tx, "default", None)
        assert job_by_id_part(tx, place, first) == first
        assert job_by_id_part(tx, place, second[-6:].upper()) == second
        with pytest.raises(InvalidInput, match=f"several have it: {second}, {first}"):
            job_by_id_part(tx, place, first[:10])
        with pytest.raises(InvalidInput, match="ID: got 'abc', expected a job's id, or 4 or more"):
            job_by_id_part(tx, place, "abc")
        with pytest.raises(InvalidInput, match="4 or more"):
            job_by_id_part(tx, place, "%%%%")
        with pytest.raises(NotFound, match="location here has no job zzzzzzzz"):
            job_by_id_part(tx, place, "zzzzzzzz")
        with pytest.raises(NotFound):
            explain(tx, ScheduleStore(), place, "zzzzzzzz", at(2))


def test_a_location_is_required_only_where_there_are_several(world: MakeWorld) -> None:
    """And what there is is named."""
    here = world([])
    with here.database.begin() as tx:
        assert location_by_name(tx, "default", None).name == "here"
        locations.locked(tx, "default", "there")
        with pytest.raises(InvalidInput, match="--location: got None, expected one of here, there"):
            location_by_name(tx, "default", None)
        assert location_by_name(tx, "default", "there").name == "there"
        with pytest.raises(NotFound, match="has no location nowhere; it has: here, there"):
            location_by_name(tx, "default", "nowhere")
        with pytest.raises(NotFound, match="cluster other has no location yet"):
            location_by_name(tx, "other", None)


def test_a_schedule_that_cannot_be_read_is_not_explained(world: MakeWorld) -> None:
    """The message says what to do."""
    here = world([schedule()])
    with here.database.begin() as tx:
        tx.execute(sa.update(schedules).values(spec="{}"))
    with pytest.raises(TransitionRefused, match="update or delete it"):
        of_schedule(here, 1)
