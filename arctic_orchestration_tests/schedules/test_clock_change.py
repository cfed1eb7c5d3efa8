"""A clock that jumps: ahead for one tick and back, and back by a little."""

from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import Trigger, on
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import events, jobs
from arctic_orchestration_tests.schedules.lake_of_partitions import MakeWorld as MakeLake
from arctic_orchestration_tests.schedules.lake_of_partitions import daily, end_runs, lake, runs
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at
from arctic_orchestration_tests.schedules.test_arrivals_of_partitions import arrive, evaluate

__all__ = ["lake"]

HOUR, DAY = 3600, 86_400


def schedule(**fields: Any) -> Schedule:
    return Schedule(**{"name": "s", "target": "rollup", "enabled": True, **fields})


def end_all(here: World) -> None:
    for run_id, run in list(here.dagster.runs.items()):
        if not run.status.ended:
            here.dagster.end(run_id)


def test_timers_of_a_clock_that_was_a_year_ahead_are_set_right(world: MakeWorld) -> None:
    """One tick in 2027 takes the latest tick of its catch-up; then the days go on as they are."""
    here = world([schedule(trigger=on.cron("0 4 * * *"))])
    here.tick(365 * DAY)
    end_all(here)
    made = len(here.dagster.requests)
    assert made == 1
    for day in range(3):
        here.tick(day * DAY + 3 * HOUR)
        here.tick(day * DAY + 5 * HOUR)
        end_all(here)
    assert len(here.dagster.requests) - made == 3
    with here.database.read() as tx:
        query = sa.select(events.c.at).where(events.c.kind == "tick").order_by(events.c.number)
        ticks = list(tx.execute(query).scalars())
    assert ticks == [
        at(364 * DAY + 4 * HOUR),
        at(4 * HOUR),
        at(DAY + 4 * HOUR),
        at(2 * DAY + 4 * HOUR),
    ]


def test_the_tick_that_was_delivered_ahead_of_time_does_not_come_again(world: MakeWorld) -> None:
    """A clock a day ahead delivered the 4 o'clock of the second day: it is not due twice."""
    here = world([schedule(trigger=on.cron("0 4 * * *"))])
    here.tick(DAY + 5 * HOUR)
    end_all(here)
    for hours in (5, 24 + 5, 48 + 5):
        here.tick(hours * HOUR)
        end_all(here)
    with here.database.read() as tx:
        query = sa.select(events.c.at).where(events.c.kind == "tick").order_by(events.c.at)
        ticks = list(tx.execute(query).scalars())
    assert ticks == [at(DAY + 4 * HOUR), at(2 * DAY + 4 * HOUR)]


def test_a_step_of_some_minutes_back_repeats_no_tick(world: MakeWorld) -> None:
    """The clock says 10:05, then 09:50: the 10 o'clock that was delivered is not due again."""
    here = world([schedule(trigger=on.cron("0 * * * *"))])
    here.tick(10 * HOUR + 300)
    end_all(here)
    made = len(here.dagster.requests)
    for seconds in (-600, -60, 0, 60, 600):
        here.tick(10 * HOUR + seconds)
    assert len(here.dagster.requests) == made
    here.tick(11 * HOUR)
    assert len(here.dagster.requests) == made + 1


def test_jobs_made_ahead_of_time_wait_and_time_out_from_now(world: MakeWorld) -> None:
    """A delay of ten minutes that began next year ends ten minutes after the clock was set."""
    here = world(
        [schedule(trigger=on.partitions("raw/a"), constraints=[only.delay("10m")], timeout="1h")]
    )
    here.feed.arrive("raw/a", "1")
    assert here.tick(365 * DAY) == []
    assert here.tick(100) == []
    with here.database.read() as tx:
        assert tx.execute(sa.select(jobs.c.deadline_at)).scalar_one() == at(100 + HOUR)
    assert here.tick(100 + 599) == []
    assert here.tick(100 + 600) == ["run-1"]


def test_rates_and_intervals_do_not_wait_for_what_was_ahead(world: MakeWorld) -> None:
    """A launch and an end of next year count from the moment the clock was set back."""
    here = world(
        [
            schedule(
                trigger=on.partitions("raw/a"),
                constraints=[only.rate(1, per="1h"), only.minimum_interval("30m")],
            )
        ]
    )
    here.feed.arrive("raw/a", "1")
    assert here.tick(365 * DAY) == ["run-1"]
    here.dagster.end("run-1", ended_at=at(365 * DAY))
    here.tick(365 * DAY + 1)
    here.feed.arrive("raw/a", "2")
    assert here.tick(0) == []
    assert here.tick(HOUR - 1) == []
    assert here.tick(HOUR) == ["run-2"]


@pytest.mark.parametrize(
    "trigger",
    [
        on.quiet("raw/a", "10m"),
        on.data("raw/a", "1GB", max_wait="10m"),
        on.all_of(on.partitions("raw/a"), on.partitions("raw/b"), wait="10m"),
    ],
)
def test_what_arrived_ahead_of_time_is_waited_for_from_now(
    world: MakeWorld, trigger: Trigger
) -> None:
    """Ten minutes that began next year end ten minutes after the clock was set."""
    here = world([schedule(trigger=trigger)])
    here.feed.arrive("raw/a", "1")
    assert here.tick(365 * DAY) == []
    assert here.tick(100) == []
    assert here.tick(100 + 599) == []
    assert here.tick(100 + 600) == ["run-1"]


def test_a_month_ahead_nothing_is_too_old(lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the database's time. An arrival waits for its check, and the job of another has ended."""
    monkeypatch.setattr(dialect, "database_time", lambda tx: at(5 * DAY))
    here = lake(daily(trigger=on.partitions("raw/payments", checks="passed")))
    checked = arrive(here, "2026-01-01", checks=["no_nulls"])
    arrive(here, "2026-01-02")
    here.tick(5 * DAY)
    end_runs(here, 5 * DAY + 1)
    assert (runs(here), states(here)) == (["2026-01-02"], ["succeeded"])
    here.tick(40 * DAY)
    assert states(here) == ["succeeded"]
    here.tick(5 * DAY + 60)
    evaluate(here, checked, "no_nulls", passed=True)
    here.tick(5 * DAY + 61)
    assert sorted(runs(here)) == ["2026-01-01", "2026-01-02"]


def states(here: World) -> list[str]:
    """Of the jobs that are stored."""
    with here.database.read() as tx:
        return list(tx.execute(sa.select(jobs.c.state)).scalars())
