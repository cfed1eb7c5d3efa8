"""An event that cannot be stored, whatever the reason, is set aside; everything else is taken."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.narrowing import Narrowing
from arctic_orchestration.schedules import engine as engines
from arctic_orchestration.schedules import timers
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events
from arctic_orchestration_tests.schedules.simulated import World

SCHEDULES = [
    Schedule(name=asset, target="j", trigger=on.partitions(asset), enabled=True)
    for asset in ("a", "b")
]


def break_events(world: World, ids: Sequence[int]) -> None:
    """Gives events metadata that no serialiser takes."""
    for id in ids:
        world.feed.events[id - 1] = replace(
            world.feed.events[id - 1], metadata={"broken": object()}
        )


def arrive(world: World, count: int) -> None:
    for number in range(count):
        world.feed.arrive("ab"[number % 2], str(number))


def taken(database: Database) -> set[str]:
    with database.read() as tx:
        return set(tx.execute(sa.select(events.c.partition)).scalars())


@pytest.mark.parametrize("broken", [[1], [100], [37, 38], [1, 50, 51, 100], list(range(20, 60))])
def test_only_what_cannot_be_stored_is_left_out(
    broken: list[int],
    world: Callable[[Sequence[Schedule]], World],
    database: Database,
) -> None:
    """Of a hundred events, at both ends, side by side, and forty in a row, in one tick."""
    made = world(SCHEDULES)
    first = len(made.feed.events)
    arrive(made, 100)
    break_events(made, [first + id for id in broken])
    result = made.engine.tick(made.feed.events[0].at)
    assert taken(database) == {str(n) for n in range(100) if n + 1 not in broken}
    assert result.counts["unreadable"] == len(broken)
    assert result.counts["events"] == 100 - len(broken)
    with database.read() as tx:
        found = unreadable_events.listed(tx, "default", limit=200)
        assert unreadable_events.count(tx, "default") == len(broken)
    assert sorted(one.event_id for one in found) == [first + id for id in broken]
    assert {one.reader for one in found} == {"location here"}
    assert "partition b 99" in {one.event for one in found} or 100 not in broken
    assert all("PydanticSerializationError" in one.reason for one in found)


def test_a_tick_sets_aside_so_many_and_the_next_goes_on(
    world: Callable[[Sequence[Schedule]], World],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three a tick of eight: three ticks, and the ordinary event behind them is taken."""
    monkeypatch.setattr(engines, "_ASIDE_PER_TICK", 3)
    made = world(SCHEDULES)
    first = len(made.feed.events)
    arrive(made, 9)
    break_events(made, [first + n for n in range(1, 9)])
    counts = [made.engine.tick(made.feed.events[0].at).counts["unreadable"] for _ in range(3)]
    assert counts == [3, 3, 2]
    assert taken(database) == {"8"}


def test_an_error_that_no_event_causes_sets_none_aside(
    world: Callable[[Sequence[Schedule]], World],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ticks of time that fail, events or not: the error stands, and nothing moves."""

    def fail(*_: object) -> None:
        raise ValueError("on purpose")

    made = world(SCHEDULES)
    arrive(made, 10)
    with monkeypatch.context() as patched:
        patched.setattr(timers, "due", fail)
        with pytest.raises(ValueError, match="on purpose"):
            made.engine.tick(made.feed.events[0].at)
    with database.read() as tx:
        assert unreadable_events.count(tx, "default") == 0
    made.engine.tick(made.feed.events[0].at)
    assert len(taken(database)) == 10


def test_without_narrowing_the_location_would_stand_still(
    world: Callable[[Sequence[Schedule]], World],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: one event that cannot be stored keeps all others from being taken."""
    monkeypatch.setattr(Narrowing, "narrow", lambda self, error: False)
    made = world(SCHEDULES)
    first = len(made.feed.events)
    arrive(made, 10)
    break_events(made, [first + 5])
    for _ in range(2):
        with pytest.raises(Exception, match="serialize"):
            made.engine.tick(made.feed.events[0].at)
    assert taken(database) == set()
