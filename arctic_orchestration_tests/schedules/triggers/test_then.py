"""``then``: a tick first, and then arrivals after it."""

from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import control, engine
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.simulated import MakeWorld, at
from arctic_orchestration_tests.schedules.simulator.test_simulator import (
    arrives,
    happens,
    schedule,
    simulated,
)

HOURLY = on.cron("0 * * * *")
BOTH = on.then(HOURLY, on.partitions("a") & on.partitions("b"))


def test_what_arrived_before_the_tick_has_to_arrive_again() -> None:
    """Both before the tick of 1:00 count for nothing; a before that of 2:00 neither at 3:00."""
    timeline = happens(
        (600, arrives("0", "a")),
        (600, arrives("0", "b")),
        (3700, arrives("1", "a")),
        (3800, arrives("1", "b")),
        (3900, arrives("2", "a")),
        (7300, arrives("2", "b")),
        (10810, arrives("3", "b")),
        (10820, arrives("3", "a")),
        (10830, arrives("4", "a")),
    )
    launched = [
        found[0]
        for found in simulated([schedule(trigger=BOTH.to_form())], timeline)
        if found[2] == "launched"
    ]
    assert launched == [3800, 10820]


def test_the_timeout_begins_with_the_tick() -> None:
    """An arrival at 0:10 waits for the tick of 1:00 without one; b does not come until 1:30."""
    form: dict[str, Any] = {"trigger": BOTH.to_form(), "timeout": "30m"}
    timeline = happens((600, arrives("1", "a")), (6000, {"do": "advance"}))
    assert [found for found in simulated([schedule(**form)], timeline) if found[0] < 6000] == [
        (5400, "s", "discarded")
    ]


def test_an_arrival_that_is_read_before_the_tick_is_judged_by_its_time(world: MakeWorld) -> None:
    """On both databases. One reading has the tick of 2:00, and b of five seconds after it, which
    would complete what the tick of 1:00 waits for: a has to arrive again."""
    here = world([Schedule(name="s", target="s", trigger=BOTH, enabled=True)])
    here.tick(3601)
    here.feed.arrive("a", "1", moment=at(3650))
    here.tick(3660)
    here.feed.arrive("b", "1", moment=at(7205))
    assert here.tick(7210) == []
    here.feed.arrive("a", "2", moment=at(7300))
    assert here.tick(7301) == ["run-1"]


def test_an_arrival_after_the_tick_fires_in_the_reading_that_has_both(world: MakeWorld) -> None:
    """The events of a reading are given before its ticks."""
    trigger = on.then(HOURLY, on.partitions("a"))
    here = world([Schedule(name="s", target="s", trigger=trigger, enabled=True)])
    here.feed.arrive("a", "0", moment=at(3599))
    here.feed.arrive("a", "1", moment=at(3605))
    assert here.tick(3610) == ["run-1"]
    here.feed.arrive("a", "2", moment=at(3620))
    assert here.tick(3621) == []


def test_an_arrival_after_the_next_tick_does_not_join_a_job_that_waits(world: MakeWorld) -> None:
    """Each tick has its own job, whatever ``coalesce`` says: the first one's run is held."""
    trigger = on.then(HOURLY, on.partitions("a"))
    held: Any = [{"concurrency": {"limit": 1}}]
    here = world([Schedule(name="s", target="s", trigger=trigger, constraints=held, enabled=True)])
    here.dagster.start("s", "manual")
    for hour in (1, 2):
        here.feed.arrive("a", str(hour), moment=at(3600 * hour + 10))
        assert here.tick(3600 * hour + 20) == []
    here.dagster.end("manual")
    assert here.tick(7300) == ["run-1"]
    here.dagster.end("run-1")
    assert here.tick(7400) == ["run-2"]


@pytest.mark.parametrize("fields", [{"catch_up": "none"}, {"grace": "5m"}])
@pytest.mark.parametrize("backlog", [0, 30])
def test_a_tick_that_is_not_made_up_does_not_come_first(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], backlog: int
) -> None:
    """The tick of 2:00 was missed: what arrives before that of 3:00 is after the one of 1:00."""
    monkeypatch.setattr(engine, "EVENTS_AT_ONCE", 20)
    trigger = on.then(on.cron("0 * * * *", **fields), on.partitions("a"))
    here = world([Schedule(name="s", target="s", trigger=trigger, enabled=True)])
    assert here.tick(3601) == []
    here.feed.arrive("a", "1", moment=at(7230))
    for number in range(backlog):
        here.feed.arrive("other", str(number), moment=at(7240))
    assert here.tick(7900) == ["run-1"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"trigger": BOTH | on.partitions("c")}, "Schedule(s).trigger.any_of[0]"),
        ({"trigger": BOTH, "partitions": "each"}, "Schedule(s).partitions"),
    ],
)
def test_a_then_that_cannot_be_evaluated_is_refused(fields: dict[str, Any], place: str) -> None:
    """Inside of another trigger, and for each partition of the target."""
    with pytest.raises(InvalidDefinition) as caught:
        Schedule(name="s", target="s", **fields)
    assert [problem.field for problem in caught.value.problems] == [place]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (on.partitions("a"), on.partitions("b"), "two triggers, of which the first is a cron"),
        (on.cron("H 4 * * *"), on.partitions("a"), "a cron without H"),
        (on.cron("h 4 * * *"), on.partitions("a"), "a cron without H"),
        (on.cron("H/20 4 * * *"), on.partitions("a"), "a cron without H"),
        (on.cron("0 4 * * H(1-5)"), on.partitions("a"), "a cron without H"),
        (HOURLY, on.partitions("a") | on.quiet("b", "5m"), "but not quiet"),
        (HOURLY, on.partitions("a", count=2), "but not partitions with count or complete"),
        (HOURLY, on.run("j", count=2), "but not run with a count"),
    ],
)
def test_what_the_last_arrival_does_not_decide_is_refused(
    first: Any, second: Any, expected: str
) -> None:
    """Of each leaf only the last arrival is compared with the tick."""
    with pytest.raises(InvalidDefinition, match=expected):
        on.then(first, second)


def test_a_job_that_outlives_a_suspension_does_not_wait_for_a_tick_that_was_ignored(
    world: MakeWorld,
) -> None:
    """Ticks come at each full hour; that of 2:00 fell into the suspension."""
    trigger = on.then(on.cron("0 * * * *"), on.partitions("a"))
    schedule = Schedule(name="s", target="s", trigger=trigger, suspend_mode="drain", enabled=True)
    here = world([schedule])
    assert here.tick(3_601) == []
    for change, second in ((control.suspend, 3_700), (control.enable, 9_000)):
        with here.database.begin() as tx:
            place = locations.locked(tx, "default", "here")
            assert change(tx, here.engine.store, place, "s", at(second))
    here.feed.arrive("a", "1", moment=at(9_600))
    assert here.tick(9_700) == ["run-1"]
