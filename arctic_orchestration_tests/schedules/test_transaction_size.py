"""What one transaction writes: a flood must not make a tick longer than Dagster allows."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import on, only
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules import event_intake, retention, target_partitions
from arctic_orchestration.schedules import runs as tracker
from arctic_orchestration.schedules.jobs import Job
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import read_declared
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, job_events, job_history, jobs, launches
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    ASSETS,
    DAILY,
    DAY,
    Declared,
    MakeWorld,
    daily,
    lake,
    runs,
    waiting,
)
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.statements import statements_of

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


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_partitions, "ROWS_AT_ONCE", _ROWS)


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("few_rows")
def test_arrivals_that_each_concern_all_partitions(
    lake: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of them are mapped: 4,000 to 3,650 days were gigabytes and minutes."""
    here = lake(daily(trigger=on.partitions("raw/payments", mapping="all", count=len(DAYS))))
    mapped: list[int] = []
    place = target_partitions.Placing._scopes

    def noted(self: Any, matches: Any, deferred: Any) -> Any:
        mapped.append(len(matches))
        return place(self, matches, deferred)

    monkeypatch.setattr(target_partitions.Placing, "_scopes", noted)
    monkeypatch.setattr(target_partitions, "_FIRST_EVENTS", 4)
    for day in DAYS:
        here.feed.arrive("raw/payments", day)
    here.tick(_NOW)
    # Four are too many, and so is each one alone, of which a tick reads five.
    assert mapped == [4, 1, 1, 1, 1, 1]
    assert _rows(here) == 5 * 31


def test_slices_double() -> None:
    """Two matches of each event stay together."""
    events = [Event(kind=EventKind.TICK, subject="s", at=at(number)) for number in range(900)]
    matches: Any = [SimpleNamespace(event=event) for event in events for _ in range(2)]
    sizes = [len(some) for some in target_partitions._slices(matches)]
    assert sizes == [200, 200, 400, 800, 200]
    assert [len(some) for some in target_partitions._slices(matches[:2])] == [2]


@pytest.mark.parametrize("fields", [
    {"partitions": "each", "coalesce": False},
    {"partitions": "range"},
    {"trigger": on.elapsed("1d") | on.partitions("a"), "coalesce": False},
], ids=["a job for each event", "a job for each range", "restarted timers"])  # fmt: skip
def test_many_jobs_take_as_many_statements_as_few(
    database: Database, fields: dict[str, Any]
) -> None:
    """20,000 of them, one by one, were 27 to 45 s of statements on Postgres."""
    fields = {"trigger": on.partitions("a"), "enabled": True, **fields}
    here = World(database, [Schedule(name="s", target="s", **fields)])
    here.tick(0)
    counts = []
    for first, number in ((1, 3), (100, 3), (200, 40)):
        for key in range(number):
            # No two are adjacent.
            here.feed.arrive("a", str(first + 2 * key))
        with statements_of(database.engine) as statements:
            for tick in range(3):
                # The ranges that were split from one job are checked in the next tick.
                here.tick(first + tick)
        counts.append(len(statements))
    assert len(here.dagster.requests) == 46
    assert counts[1] == counts[2]


def _hourly(number: int, count: int) -> list[Schedule]:
    trigger = on.partitions("a", count=count) | on.cron("0 * * * *")
    return [
        Schedule(name=f"s{one}", target="s", trigger=trigger, enabled=True) for one in range(number)
    ]


def test_many_changed_schedules_take_as_many_statements_as_few(database: Database) -> None:
    """2,000 of them, one by one, were 25 s of statements on Postgres, in one tick."""
    counts = []
    for cluster, number in (("first", 3), ("few", 3), ("many", 40)):
        here = World(database, _hourly(number, count=2), cluster=cluster)
        here.tick(0)
        # Each schedule has a job that is discarded, and a timer that stays.
        here.feed.arrive("a", "1")
        here.tick(1)
        here.schedules = _hourly(number, count=3)
        here.engine = here.new_engine()
        with statements_of(database.engine) as statements:
            assert here.engine.tick(at(2)).counts["updated"] == number
        counts.append(len(statements))
        for partition in ("2", "3"):
            here.feed.arrive("a", partition)
        assert here.tick(3) == []
        here.feed.arrive("a", "4")
        assert len(here.tick(4)) == number
        assert len(here.tick(3600)) == number
    assert counts[1] == counts[2]


def test_a_tick_that_cannot_delete_all_is_followed_by_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round of 500 in five minutes is 144,000 jobs a day: with more, tables grew for ever."""
    monkeypatch.setattr(retention, "_AT_ONCE", 2)
    here = World(
        database, [Schedule(name="s", target="s", trigger=on.partitions("a"), enabled=True)]
    )
    here.tick(0)
    for partition in range(5):
        here.feed.arrive("a", str(partition))
        (run,) = here.tick(2 * partition + 1)
        here.dagster.end(run)
        here.tick(2 * partition + 2)
    month = 30 * 86_400 + 400
    left = []
    for second in range(4):
        here.tick(month + second)
        with database.read() as tx:
            tables = (jobs, events, launches)
            counts = [sa.select(sa.func.count()).select_from(table) for table in tables]
            left.append([tx.execute(count).scalar_one() for count in counts])
    assert left == [[3, 3, 3], [1, 1, 1], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("number", [3, 40])
def test_jobs_that_a_deployment_discards_are_not_read(
    database: Database, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """60,000 of them, read and moved one by one, took 9 s on Postgres, in one tick."""
    common: dict[str, Any] = {
        "name": "s", "target": "s", "trigger": on.partitions("a"), "enabled": True,
    }  # fmt: skip
    night = [only.window("03:00", "04:00")]
    here = World(database, [Schedule(**common, coalesce=False, constraints=night)])
    here.tick(0)
    for key in range(number):
        here.feed.arrive("a", str(key))
    here.tick(1)
    here.schedules = [Schedule(**common)]
    here.engine = here.new_engine()
    read: list[str] = []

    def from_row(row: Mapping[str, Any]) -> Job:
        read.append(row["id"])
        return parse(row)

    parse = Job.from_row
    monkeypatch.setattr(Job, "from_row", from_row)
    assert here.engine.tick(at(2)).remarks == (
        f"schedule s: the code location was deployed: {number} waiting jobs with {number} events "
        "were discarded",
    )
    assert read == []
    ended = ("discarded", "the schedule was updated", at(2))
    with database.read() as tx:
        col, moved = jobs.c, job_history.c
        rows = sa.select(col.state, col.reason, col.ended_at, col.next_check_at, col.held_by)
        assert tx.execute(rows).all() == [(*ended, None, None)] * number
        moves = sa.select(moved.from_state, moved.state, moved.reason, moved.at)
        assert (
            tx.execute(moves.where(moved.at == at(2))).all()
            == [("waiting_constraints", *ended)] * number
        )


def test_runs_of_launched_jobs_are_looked_up_some_in_each_tick(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause of five minutes those of 20,000 jobs were looked up in one tick."""
    monkeypatch.setattr(tracker, "_VERIFIED_AT_ONCE", 2)
    each = Schedule(
        name="s", target="s", trigger=on.partitions("a"), coalesce=False, enabled=True
    )  # fmt: skip
    here = World(database, [each])
    here.tick(0)
    for key in range(5):
        here.feed.arrive("a", str(key))
    started = here.tick(1)
    here.tick(2)
    for run in started:
        here.dagster.delete(run)
    ended = []
    for second in range(303, 307):
        here.tick(second)
        with database.read() as tx:
            failed = sa.select(sa.func.count()).where(jobs.c.state == "failed")
            ended.append(tx.execute(failed).scalar_one())
    assert ended == [2, 4, 5, 5]


@pytest.mark.parametrize("complete", [False, True])
def test_many_jobs_are_counted_again_in_as_many_statements_as_few(
    lake: MakeWorld, monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    """10,000 that waited for regions, of which the code then had others, took 10,033 statements."""
    all_: dict[str, Any] = {"complete": True} if complete else {"count": "all"}
    here = lake(daily(trigger=on.partitions("raw/orders", **all_)))
    arrived, look_ups = here.feed.arrived, []

    def look_up(*args: Any, **named: Any) -> Any:
        look_ups.append(args)
        return arrived(*args, **named)

    monkeypatch.setattr(here.feed, "arrived", look_up)
    counts = []
    for now, region, days in ((_NOW, "amer", DAYS[:3]), (_NOW + 2, "mars", DAYS[3:])):
        for day in days:
            here.feed.arrive("raw/orders", f"{day}|emea")
        here.tick(now)
        changed = {"multi": {"date": DAILY, "region": {"static": ["emea", region]}}}
        assets = {**ASSETS, "raw/orders": {"partitions": changed}}
        here.targets = Declared(read_declared({"assets": assets}))
        here.engine = here.new_engine()
        look_ups.clear()
        with statements_of(here.database.engine) as statements:
            here.tick(now + 1)
        counts.append((len(statements), len(look_ups)))
        assert set(waiting(here).values()) == {
            f"1 of 2 partitions of raw/orders have arrived, missing {day}|{region}"
            for day in DAYS[: len(waiting(here))]
        }
    assert len(waiting(here)) == len(DAYS)
    assert counts[0] == counts[1]
