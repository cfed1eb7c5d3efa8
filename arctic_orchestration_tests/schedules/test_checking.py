"""What the checker does with jobs, and what a schedule's failure or suspension leaves alone."""

import json
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules import due_work, resources
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import Delay, only
from arctic_orchestration.schedules.constraints.base import Facts, Verdict
from arctic_orchestration.schedules.facts import Gathered, Surroundings
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at


def schedule(name: str = "s", **fields: Any) -> Schedule:
    form = {"target": name, "trigger": on.partitions("raw/a"), "enabled": True, **fields}
    return Schedule(name=name, **form)


def job_of(world: World, name: str) -> dict[str, Any]:
    """The newest job of a schedule."""
    query = (
        sa.select(jobs)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(schedules.c.name == name)
        .order_by(jobs.c.id.desc())
        .limit(1)
    )
    with world.database.read() as tx:
        return dict(tx.execute(query).mappings().one())


def test_otherwise_cancel_discards_the_job_with_the_reason(world: MakeWorld) -> None:
    """What arrives while a run is active makes no second one, now or later."""
    here = world([schedule(constraints=[only.concurrency(1, otherwise="cancel")])])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    here.feed.arrive("raw/a", "2")
    assert here.tick(2) == []
    job = job_of(here, "s")
    assert (job["state"], job["reason"]) == ("discarded", "1 of 1 runs of this target are active")
    here.dagster.end("run-1")
    assert here.tick(3) == []
    here.feed.arrive("raw/a", "3")
    assert here.tick(4) == ["run-2"]


def test_a_job_keeps_the_verdict_of_each_constraint(world: MakeWorld) -> None:
    """The one that holds and the one that admits, with their reasons and the moment to look."""
    here = world([schedule(constraints=[only.concurrency(2), only.delay("1h")])])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    assert json.loads(job_of(here, "s")["verdicts"]) == [
        {
            "constraint": "concurrency",
            "decision": "admit",
            "reason": "0 of 2 runs of this target are active",
            "recheck_at": None,
        },
        {
            "constraint": "delay",
            "decision": "hold",
            "reason": "1h after the trigger, at 2026-01-01 01:00:01Z",
            "recheck_at": "2026-01-01T01:00:01+00:00",
        },
    ]


def test_the_most_urgent_job_takes_the_last_slot(world: MakeWorld) -> None:
    """By priority, then by age, whatever their names."""
    group = only.concurrency(1, group="g")
    here = world(
        [
            schedule("a", constraints=[group], priority=-1),
            schedule("b", constraints=[group], trigger=on.partitions("raw/b")),
            schedule("c", constraints=[group], priority=5),
            schedule("d", constraints=[group]),
        ]
    )
    here.feed.arrive("raw/b", "1")
    here.dagster.start("x", "manual")
    here.tick(1)
    here.feed.arrive("raw/a", "1")
    here.tick(2)
    for number in range(1, 4):
        here.dagster.end(f"run-{number}")
        here.tick(2 + number)
    order = [request.tags["arctic/schedule"] for request in here.dagster.requests]
    assert order == ["b", "c", "d", "a"]


def test_the_runs_of_urgent_jobs_are_requested_first(world: MakeWorld) -> None:
    """Nothing holds them: Dagster creates the runs of a tick in the order of the requests."""
    here = world([schedule("a"), schedule("b", priority=-1), schedule("c", priority=5)])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    order = [request.tags["arctic/schedule"] for request in here.dagster.requests]
    assert order == ["c", "a", "b"]


def test_a_rule_that_breaks_holds_its_own_job_alone(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job waits and says why, and goes on once the rule works again."""
    decide = Delay.decide

    def broken(self: Delay, facts: Facts, now: datetime) -> Verdict:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(Delay, "decide", broken)
    here = world([schedule("bad", constraints=[only.delay("1s")]), schedule("good")])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    assert here.dagster.requests[0].tags["arctic/schedule"] == "good"
    reason = job_of(here, "bad")["reason"]
    assert reason == "delay could not be decided: ZeroDivisionError('on purpose')"
    monkeypatch.setattr(Delay, "decide", decide)
    assert here.tick(30) == []
    assert here.tick(61) == ["run-2"]


def test_a_suspended_schedule_ignores_what_arrives(world: MakeWorld) -> None:
    """Its waiting job is discarded, an admitted one runs; resumed, it begins again."""
    here = world([schedule("s", trigger=on.partitions("raw/a", count=2)), schedule("other")])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    here.suspend(2)
    assert (job_of(here, "s")["state"], job_of(here, "s")["reason"]) == (
        "discarded",
        "the schedule was suspended",
    )
    here.feed.arrive("raw/a", "2")
    assert here.tick(3) == ["run-2"], "the other schedule goes on"
    here.resume(4)
    here.feed.arrive("raw/a", "3")
    here.tick(5)
    assert job_of(here, "s")["state"] == "waiting_trigger"
    here.feed.arrive("raw/a", "4")
    here.tick(6)
    assert job_of(here, "s")["state"] == "launching"


def test_ticks_of_a_suspended_schedule_are_not_made_up(world: MakeWorld) -> None:
    """Suspended from 00:01 to 00:16, a five-minute cron goes on at 00:20, also with catch-up."""
    here = world([schedule(trigger=on.cron("*/5 * * * *", catch_up="all"))])
    here.suspend(60)
    assert here.tick(900) == []
    here.resume(960)
    assert here.tick(1199) == []
    assert here.tick(1200) == ["run-1"]


def test_a_deployment_leaves_alone_what_was_created_manually(world: MakeWorld) -> None:
    """A schedule of another origin stays when the code declares others or none."""
    here = world([schedule("of_code")])
    by_hand = schedule("by_hand", target="rollup")
    with here.database.begin() as tx:
        place = locations.locked(tx, "default", "here")
        here.engine.store.add(tx, place, [by_hand], Origin.API, at(1))
    here.schedules = []
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "1")
    assert here.tick(2) == ["run-1"]
    with here.database.read() as tx:
        assert tx.execute(sa.select(schedules.c.name)).scalars().all() == ["by_hand"]


def test_a_tick_of_requests_has_an_end(world: MakeWorld) -> None:
    """Dagster stores all requests of a tick in one row: a hundred now, the rest the next time."""
    here = world([schedule(partitions="each")])
    for key in range(250):
        here.feed.arrive("raw/a", str(key))
    assert [len(here.tick(second)) for second in (1, 2, 3, 4)] == [100, 100, 50, 0]


def _unchecked(world: World) -> int:
    never = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.verdicts.is_(None))
    with world.database.read() as tx:
        return int(tx.execute(never).scalar_one())


def test_many_due_jobs_do_not_keep_requests_waiting(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held jobs are due again in 30 s: a tick that checks 100,000 of them first may never end.

    Here one is admitted, and 1,599 wait for it.
    """
    monkeypatch.setattr(due_work, "CHECKS_PER_TICK", 2)
    here = world([schedule(coalesce=False, constraints=[only.concurrency(1, group="g")])])
    for partition in range(1_600):
        here.feed.arrive("raw/a", str(partition))
    result = here.engine.tick(at(1))
    # Of 500 jobs each: the most urgent, and those that are due the longest.
    assert (result.counts["checked"], len(result.requests)) == (1_000, 1)
    assert _unchecked(here) == 600
    # The first 1,000 are due again: the most urgent 499 come first, as they get the next slot.
    assert here.engine.tick(at(31)).counts["checked"] == 1_000
    assert _unchecked(here) == 100
    assert here.engine.tick(at(61)).counts["checked"] == 1_000
    assert _unchecked(here) == 0


def test_launches_are_counted_once_for_all_jobs_of_a_rate(world: MakeWorld) -> None:
    """For each of 20,000 jobs, 5,000 launches were sorted again: 12 to 15 s."""
    here = world([])
    group, since = ("group:g",), at(-3_600)
    with here.database.begin() as tx:
        location = locations.locked(tx, "default", "here")
        begun = [("group:g", f"run-{second}", at(second)) for second in (3, 1, 2)]
        resources.acquire(tx, location.id, begun)
        facts = Gathered(tx, location, Surroundings(), at(60))
        facts.gather([(only.rate(5, per="1h", group="g"), (), ())])
        first = facts.launches(group, since)
        assert first == [at(1), at(2), at(3)]
        assert facts.launches(group, since) is first
        facts.admitted("job", group)
        assert facts.launches(group, since) == [at(1), at(2), at(3), at(60)]
        assert facts.launches(group, at(1)) == [at(2), at(3), at(60)]
