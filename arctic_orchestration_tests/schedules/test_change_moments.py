"""What arrived before a change counts for the schedule as it was, whenever the next tick comes."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from arctic_orchestration.schedules import control, event_intake, location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator.scratch_database import PrivateDatabase
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, job_events, jobs
from arctic_orchestration_tests.schedules.simulated import World, at

STEPS = st.lists(
    st.sampled_from(["arrive", "arrive", "tick", "enable", "suspend", "update", "deploy"]),
    min_size=1,
    max_size=14,
)


def of(mode: str, version: int) -> Schedule:
    """A schedule that wants three partitions; versions differ in what describes them."""
    return Schedule.parse(
        {
            "name": "s",
            "target": {"job": "j"},
            "trigger": {"partitions": {"asset": "a", "count": 3}},
            "suspend_mode": mode,
            "description": f"version {version}",
        },
        field="s",
    )


def change(world: World, what: str, seconds: float, wanted: Schedule, *, catches_up: bool) -> None:
    """A command of a person, at a moment."""
    now, store = at(seconds), world.engine.store
    with world.database.begin() as tx:
        here = location.locked(tx, "default", "here")
        if catches_up:
            ticks = what == "suspend"
            event_intake.catch_up(tx, here, world.feed, world.dagster, store, now, ticks=ticks)
        if what == "update":
            control.update(tx, store, here, wanted, now)
        else:
            deed = control.enable if what == "enable" else control.suspend
            deed(tx, store, here, "s", now)


def counted_for(database: Database) -> dict[str, int]:
    """The version of the schedule that each partition counted for."""
    query = (
        sa.select(events.c.partition, jobs.c.schedule_version)
        .join(job_events, job_events.c.number == events.c.number)
        .join(jobs, jobs.c.id == job_events.c.job_id)
    )
    with database.read() as tx:
        return {row.partition: row.schedule_version for row in tx.execute(query)}


def play(
    database: Database, mode: str, steps: list[str], *, catches_up: bool = True
) -> tuple[dict[str, int], dict[str, int]]:
    """What each arrival counted for, and what it was to count for."""
    world = World(database, [of(mode, 1)])
    world.tick(0)
    expected: dict[str, int] = {}
    enabled, version, declared = False, 1, 1
    for number, step in enumerate(steps, 1):
        seconds = float(number)
        if step == "arrive":
            world.feed.arrive("a", str(number), moment=at(seconds))
            if enabled or mode in ("backlog", "collect"):
                expected[str(number)] = version
        elif step == "tick":
            world.tick(seconds)
        elif step == "deploy":
            # The first tick of new code is the moment of its deployment.
            version, declared = version + 1, number + 1
            world.schedules = [of(mode, declared)]
            world.engine = world.new_engine()
            world.tick(seconds)
        else:
            if step == "update":
                version += 1
            enabled = {"enable": True, "suspend": False}.get(step, enabled)
            wanted = of(mode, 1_000 + number)
            change(world, step, seconds, wanted, catches_up=catches_up)
    world.tick(len(steps) + 1.0)
    return counted_for(database), expected


@settings(max_examples=40)
@given(mode=st.sampled_from(["drop", "drain", "backlog", "collect"]), steps=STEPS)
def test_each_arrival_counts_for_the_version_of_its_moment(mode: str, steps: list[str]) -> None:
    """Or for none, where the schedule was suspended and ignores events."""
    database = PrivateDatabase()
    try:
        counted, expected = play(database, mode, steps)
        assert counted == expected
    finally:
        database.close()


EXAMPLES = {
    "before enable": ["arrive", "enable", "arrive"],
    "before an update": ["enable", "arrive", "update", "arrive", "arrive", "arrive", "arrive"],
    "before a suspension": ["enable", "arrive", "suspend", "arrive"],
    "before a deployment": ["enable", "arrive", "deploy", "arrive"],
}


@pytest.mark.parametrize("mode", ["drop", "drain"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_on_both_databases(database: Database, example: str, mode: str) -> None:
    """No tick came between the arrival and the change."""
    counted, expected = play(database, mode, EXAMPLES[example])
    assert counted == expected


@pytest.mark.parametrize("example", ["before enable", "before an update", "before a suspension"])
def test_the_control_shows_what_was_wrong(database: Database, example: str) -> None:
    """Without catching up, the next tick's state of the schedule decides."""
    counted, expected = play(database, "drain", EXAMPLES[example], catches_up=False)
    assert counted != expected


def test_one_of_five_an_update_and_four_do_not_fire(database: Database) -> None:
    """Five after the update do."""
    wanted: dict[str, Any] = {"count": 5, "asset": "a"}

    def five(description: str) -> Schedule:
        return Schedule(
            name="s", target="j", trigger=on.partitions(**wanted), description=description,
            enabled=True,
        )  # fmt: skip

    world = World(database, [five("old")])
    world.tick(0)
    world.feed.arrive("a", "0")
    change(world, "update", 1, five("new"), catches_up=True)
    for number in range(1, 5):
        world.feed.arrive("a", str(number))
    assert world.tick(2) == []
    world.feed.arrive("a", "5")
    assert world.tick(3) == ["run-1"]


def test_a_cron_tick_that_is_due_survives_an_update(database: Database) -> None:
    """It belongs to the leaf, which stays: catching up leaves it to the new version."""

    def hourly(description: str) -> Schedule:
        return Schedule(
            name="s", target="j", trigger=on.cron("0 * * * *"), description=description,
            enabled=True,
        )  # fmt: skip

    world = World(database, [hourly("old")])
    world.tick(0)
    change(world, "update", 3_601, hourly("new"), catches_up=True)
    assert world.tick(3_602) == ["run-1"]


def test_where_the_log_cannot_be_read_the_moments_of_events_decide(database: Database) -> None:
    """From before the change: not taken; from after it: taken, though read in one tick."""
    world = World(database, [of("drop", 1)])
    world.tick(0)
    world.feed.arrive("a", "early", moment=at(1))
    change(world, "enable", 2, of("drop", 1), catches_up=False)
    with database.begin() as tx:
        here = location.locked(tx, "default", "here")
        world.engine.store.count_from(tx, here, ["s"], at(2))
    world.feed.arrive("a", "late", moment=at(2) + timedelta(milliseconds=1))
    world.tick(3)
    assert counted_for(database) == {"late": 1}


def test_a_long_backlog_is_read_before_a_deployment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve events, two at a time, three times a tick: the second tick deploys."""
    from arctic_orchestration.schedules import engine as engines

    monkeypatch.setattr(engines, "EVENTS_AT_ONCE", 2)
    made: Any = [Schedule(name="s", target="j", trigger=on.partitions("a", count=20), enabled=True)]
    world = World(database, made)
    world.tick(0)
    for number in range(12):
        world.feed.arrive("a", str(number))
    world.schedules = [made[0].model_copy(update={"description": "new"})]
    world.engine = world.new_engine()
    world.engine.readings_per_tick = 3
    assert world.engine.tick(at(1)).counts["updated"] == 0
    assert world.engine.tick(at(2)).counts["updated"] == 1
    world.feed.arrive("a", "last")
    world.tick(3)
    assert counted_for(database) == {**{str(n): 1 for n in range(12)}, "last": 2}
