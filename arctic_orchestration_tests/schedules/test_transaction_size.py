"""What one transaction writes: a flood must not make a tick longer than Dagster allows."""

import pytest
import sqlalchemy as sa

from arctic_orchestration import on
from arctic_orchestration.schedules import event_intake, subscriber
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.state.tables import job_events
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    DAY,
    MakeWorld,
    daily,
    lake,
    runs,
)
from arctic_orchestration_tests.schedules.simulated import World, at

__all__ = ["lake"]

#: The target's days: January has 31.
DAYS = [f"2026-01-{day:02}" for day in range(1, 31)]
#: all of them have ended
_NOW = 31 * DAY
#: Each day takes over ten events and its own: two of them are too much for one transaction.
_COMMON, _ROWS = 10, 20
#: Five readings, each of at most two events of eleven rows.
_MOST_IN_A_TICK = 5 * 2 * 11


def _whole() -> Schedule:
    return daily(trigger=on.partitions("raw/payments") & on.partitions("config"))


def _rows(here: World) -> int:
    with here.database.read() as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(job_events)).scalar_one())


def _ticks(here: World) -> list[int]:
    """Ticks until all days were requested; returns the rows that each one added."""
    added: list[int] = []
    while len(runs(here)) < len(DAYS):
        before = _rows(here)
        here.tick(_NOW + len(added))
        added.append(_rows(here) - before)
        assert len(added) < 100
    return added


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "ROWS_AT_ONCE", _ROWS)


@pytest.mark.parametrize("by_a_command", [False, True])
def test_many_partitions_that_take_over_common_events(lake: MakeWorld, by_a_command: bool) -> None:
    """Also where a command read their arrivals, and the dispatcher maps them later."""
    here = lake(_whole())
    for _ in range(_COMMON):
        here.feed.arrive("config")
    here.tick(_NOW)
    for day in DAYS:
        here.feed.arrive("raw/payments", day)
    if by_a_command:
        event_intake.read_on(
            here.database, "default", "here", here.feed, here.dagster, here.engine.store, at(_NOW)
        )
    added = _ticks(here)
    assert max(added) <= _MOST_IN_A_TICK
    assert sum(added) == len(DAYS) * (_COMMON + 1)
    assert runs(here) == DAYS


def test_a_common_event_joins_all_partitions_that_wait(lake: MakeWorld) -> None:
    """One alone is more than a transaction should write, and is stored all the same."""
    here = lake(_whole())
    for day in DAYS:
        here.feed.arrive("raw/payments", day)
    here.tick(_NOW)
    for _ in range(3):
        here.feed.arrive("config")
    added = _ticks(here)
    assert added == [3 * (len(DAYS) + 1)]
    assert runs(here) == DAYS
