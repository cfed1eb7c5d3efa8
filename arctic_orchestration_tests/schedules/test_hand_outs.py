"""A launch request belongs to one tick of Dagster's sensor at a time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.event_log.ticks import FailedTick
from arctic_orchestration.schedules import engine, launch_requests
from arctic_orchestration.schedules.request_hooks import Answer, Question
from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.schedules.simulated import (
    AnyTargets,
    MakeWorld,
    World,
    at,
    schedule,
)
from arctic_orchestration_tests.schedules.test_engine import job_rows, states

_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass
class SimulatedTicks:
    """Ticks of Dagster: which one is evaluated, and which have ended."""

    current: str | None = None
    over: set[str] = field(default_factory=set)

    failures: dict[str, FailedTick] = field(default_factory=dict)

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        return [tick for tick in ticks if tick in self.over]

    def failed(self, ticks: Collection[str]) -> dict[str, FailedTick]:
        return {tick: self.failures[tick] for tick in ticks if tick in self.failures}


def with_ticks(world: MakeWorld, *, arrivals: int = 1) -> tuple[World, SimulatedTicks]:
    """A world whose ticks have ids, and partitions that each ask for a run."""
    here = world([schedule(coalesce=False)])
    ticks = SimulatedTicks()
    here.engine.ticks = ticks
    for number in range(arrivals):
        here.feed.arrive("raw/a", str(number))
    return here, ticks


def expire(here: World) -> None:
    """Nothing was heard of any request for as long as its lease lasts."""
    with here.database.begin() as tx:
        tx.execute(sa.update(jobs).values(request_expires_at=_LONG_AGO))


def test_a_request_is_handed_to_one_of_two_daemons(world: MakeWorld) -> None:
    """The tick of the second daemon is given nothing while that of the first is open."""
    here, ticks = with_ticks(world)
    ticks.current = "1"
    (first,) = here.engine.tick(at(1)).requests
    assert job_rows(here)[0]["reason"] == "its run was requested in tick 1 and is not seen yet"
    ticks.current = "2"
    assert here.engine.tick(at(2)).requests == []
    here.dagster.submit([first])
    here.tick(3)
    assert states(here) == ["launched"]


def test_a_request_whose_tick_ended_without_its_run_is_handed_out_again(world: MakeWorld) -> None:
    """Under the same run key, and to the next tick only."""
    here, ticks = with_ticks(world)
    ticks.current = "1"
    (first,) = here.engine.tick(at(1)).requests
    ticks.current, ticks.over = "2", {"1"}
    (again,) = here.engine.tick(at(2)).requests
    assert again.run_key == first.run_key
    ticks.current = "3"
    assert here.engine.tick(at(3)).requests == []


def test_a_run_that_is_created_just_before_its_tick_ends_is_not_requested_again(
    world: MakeWorld,
) -> None:
    """The record of the tick is read before runs are looked up."""
    here, ticks = with_ticks(world)
    ticks.current = "1"
    lost = here.engine.tick(at(1)).requests

    class EndsMeanwhile(SimulatedTicks):
        def ended(self, ticks: Collection[str]) -> Collection[str]:
            here.dagster.submit(lost)
            return ticks

    here.engine.ticks = EndsMeanwhile(current="2")
    assert here.engine.tick(at(2)).requests == []
    assert states(here) == ["launched"]


def test_a_tick_that_launches_nothing_loses_its_requests(world: MakeWorld) -> None:
    """Its record stays open when its daemon was killed beside another one."""
    here, ticks = with_ticks(world)
    ticks.current = "1"
    (first,) = here.engine.tick(at(1)).requests
    expire(here)
    ticks.current = "2"
    (again,) = here.engine.tick(at(2)).requests
    assert again.run_key == first.run_key


def test_a_tick_that_launches_runs_keeps_its_other_requests(world: MakeWorld) -> None:
    """A daemon needs long for many runs: each one that is seen begins the lease again."""
    here, ticks = with_ticks(world, arrivals=2)
    ticks.current = "1"
    first, second = here.engine.tick(at(1)).requests
    expire(here)
    here.dagster.submit([first])
    ticks.current = "2"
    assert here.engine.tick(at(2)).requests == []
    assert sorted(states(here)) == ["launched", "launching"]
    expire(here)
    assert [request.run_key for request in here.engine.tick(at(3)).requests] == [second.run_key]


def test_a_second_attempt_waits_for_the_tick_of_the_first(world: MakeWorld) -> None:
    """The daemon that works on the tick may still enqueue the run that was given up."""
    here, ticks = with_ticks(world)
    ticks.current = "1"
    (run,) = here.dagster.submit(here.engine.tick(at(1)).requests)
    here.dagster.end(run, RunStatus.FAILURE, started=False)
    ticks.current = "2"
    assert here.engine.tick(at(2)).requests == []
    assert states(here) == ["launching"]
    ticks.current, ticks.over = "3", {"1"}
    (again,) = here.engine.tick(at(3)).requests
    assert again.run_key.endswith("-2")


@dataclass
class SlowHooks:
    """A clock, and hooks of which each call takes the time that a tick has for them."""

    names: Sequence[str] = ("s",)
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def ask(self, question: Question) -> Answer:
        self.now += engine._HOOK_SECONDS
        return Answer(tags={"asked": question.job_id})


def test_jobs_that_wait_for_a_slow_hook_take_no_places_of_others(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than a tick hands out, of which it asks about one; the other runs at once."""
    monkeypatch.setattr(launch_requests, "REQUESTED_AT_ONCE", 2)
    other = schedule("other", target="b", trigger=on.partitions("raw/b"))
    here = world([schedule(coalesce=False), other])
    here.engine.hooks = hooks = SlowHooks()
    monkeypatch.setattr(engine, "time", hooks)
    for number in range(5):
        here.feed.arrive("raw/a", str(number))
    assert here.tick(1) == ["run-1"]
    here.feed.arrive("raw/b", "1")
    here.tick(2)
    launched = [request.tags["arctic/schedule"] for request in here.dagster.requests]
    assert launched == ["s", "s", "other"]
    for second in range(3, 6):
        here.tick(second)
    assert len(here.dagster.requests) == 6


def test_a_schedule_with_a_slow_hook_keeps_no_hook_of_others_waiting(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more jobs than a tick hands out; each of two slow ones has its turn after that."""
    monkeypatch.setattr(launch_requests, "REQUESTED_AT_ONCE", 2)
    others = [schedule(name, target=name, trigger=on.partitions("raw/b")) for name in "tu"]
    here = world([schedule(coalesce=False), *others])
    here.engine.hooks = hooks = SlowHooks(("s", "t", "u"))
    monkeypatch.setattr(engine, "time", hooks)
    for number in range(5):
        here.feed.arrive("raw/a", str(number))
    here.tick(1)
    here.feed.arrive("raw/b", "1")
    for second in range(2, 5):
        here.tick(second)
    launched = [request.tags["arctic/schedule"] for request in here.dagster.requests]
    assert launched == ["s", "t", "u", "s"]


class Unanswered(AnyTargets):
    """Targets that cannot be looked up, once they are named."""

    named: Collection[str | None] = ()

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        if target.job in self.named:
            raise OSError("no answer")
        return super().problem(target, start, end)


@pytest.fixture
def six_admitted(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Unanswered]:
    """A tick requests two of them, and ``raw/b`` sets off another schedule."""
    monkeypatch.setattr(launch_requests, "REQUESTED_AT_ONCE", 2)
    other = schedule("other", target="b", trigger=on.partitions("raw/b"))
    here = world([schedule(coalesce=False), other])
    here.engine.targets = targets = Unanswered()
    for number in range(6):
        here.feed.arrive("raw/a", str(number))
    return here, targets


def requested(here: World) -> list[str | None]:
    return [request.target.job for request in here.dagster.requests]


def test_jobs_whose_target_cannot_be_looked_up_take_no_places_of_others(
    six_admitted: tuple[World, Unanswered],
) -> None:
    """More of them than a tick hands out were admitted before; they go on once it can."""
    here, targets = six_admitted
    assert len(here.tick(1)) == 2
    targets.named = ["rollup"]
    here.feed.arrive("raw/b", "1")
    for second in (2, 3, 4):
        here.tick(second)
    assert requested(here) == ["rollup"] * 2 + ["b"]
    targets.named = []
    here.tick(5)
    here.tick(6)
    assert len(here.dagster.requests) == 7


def test_of_jobs_whose_target_could_not_be_looked_up_each_has_its_turn(
    six_admitted: tuple[World, Unanswered],
) -> None:
    """More than a tick hands out still cannot; one behind them can again."""
    here, targets = six_admitted
    here.feed.arrive("raw/b", "1")
    assert len(here.tick(1)) == 2
    targets.named = ["rollup", "b"]
    for second in (2, 3, 4, 5):
        here.tick(second)
    targets.named = ["rollup"]
    for second in (6, 7, 8):
        here.tick(second)
    assert requested(here) == ["rollup"] * 2 + ["b"]
