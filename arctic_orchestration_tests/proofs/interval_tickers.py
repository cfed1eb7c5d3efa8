"""A process that dispatches one location beside others of the same, whose jobs share a target.

All processes go through the same rounds, each a quarter of a second of virtual time: what they
do within one happens at the same moment, in any order.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Event as Flag
from typing import Any

from arctic_orchestration import Schedule, on, only
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.schedules import location, resources
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.proofs.dispatchers import read_without_lock
from arctic_orchestration_tests.proofs.group_tickers import count_together
from arctic_orchestration_tests.proofs.processes import end_with_the_parent
from arctic_orchestration_tests.proofs.shared_dagster import SharedDagster, TimedRun
from arctic_orchestration_tests.schedules.simulated import AnyTargets, at

LOCATION = "here"
INTERVAL = timedelta(seconds=1)
ROUND = timedelta(seconds=0.25)
#: how long a run takes
RUN = timedelta(seconds=0.5)
#: rounds from the beginning of a run to that of the next, when there is always one that waits
ROUNDS_A_RUN = (RUN + INTERVAL) // ROUND
#: a process announces a partition once in so many rounds, twice as many as could each be a run
_ARRIVES_EVERY = 24


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one dispatcher saw."""

    dispatcher: int
    counts: Counter[str]
    #: all runs, in the order in which they began, as dispatcher 0 saw them in the end
    runs: Sequence[TimedRun]
    #: ticks that the database did not let through
    refused: int


def schedules(count: int) -> list[Schedule]:
    """Schedules of one target, each for an asset of its own."""
    return [
        Schedule(
            name=f"schedule{number}",
            target="rollup",
            trigger=on.partitions(f"raw/a{number}"),
            constraints=[only.minimum_interval(INTERVAL)],
            priority=number,
            enabled=True,
        )
        for number in range(count)
    ]


def tick_through_rounds(
    url: str,
    number: int,
    all_together: Barrier,
    reports: Any,
    turns: Sequence[Flag],
    *,
    rounds: int,
    with_lock: bool,
) -> None:
    """Ticks once in each round; announces partitions for one schedule, and ends its own runs."""
    end_with_the_parent()
    database = Database(url)
    dagster = SharedDagster(database.engine, location=LOCATION, dispatcher=number)
    kind = Engine if with_lock else EngineWithoutLocks
    engine = kind(
        database=database,
        cluster="default",
        location=LOCATION,
        feed=dagster,
        lookup=dagster,
        targets=AnyTargets(),
        declared=schedules(all_together.parties),
    )
    if number == 0:
        engine.tick(at(0))
    if not with_lock:
        take_turns_once(number, turns, all_together)
    all_together.wait()
    counts: Counter[str] = Counter()
    refused = 0
    for round in range(rounds):
        now = at(0) + (round + 1) * ROUND
        if round or with_lock:
            all_together.wait()
        else:
            turns[number].wait(PATIENCE_SECONDS)
            # Ids then ascend as turns do, and nobody waits for a job's row that waits for him.
            now += number * timedelta(milliseconds=1)
        dagster.finish(now - RUN, now)
        if round % _ARRIVES_EVERY == number * _ARRIVES_EVERY // len(turns) or not with_lock:
            dagster.arrive(f"raw/a{number}", str(round), now)
        try:
            result = engine.tick(now)
        except DatabaseUnavailable:
            # What was committed stands, and the next tick goes on from there.
            refused += 1
            continue
        counts.update(result.counts)
        dagster.submit(result.requests, now)
    all_together.wait()
    seen = dagster.found() if number == 0 else ()
    reports.put(Report(dispatcher=number, counts=counts, runs=seen, refused=refused))
    database.close()


class EngineWithoutLocks(Engine):
    """Checks constraints without having locked the location."""

    def _check(self, *args: Any, **named: Any) -> tuple[int, int]:
        with _location_unlocked():
            return super()._check(*args, **named)


@contextmanager
def _location_unlocked() -> Iterator[None]:
    locked = location.locked
    location.locked = read_without_lock
    try:
        yield
    finally:
        location.locked = locked


def take_turns_once(number: int, turns: Sequence[Flag], all_together: Barrier) -> None:
    """Resources are not locked; at first each counts before the next one's job is there.

    Then all have counted nothing, and each has a job of its own that is the most urgent it sees.
    """

    def counted() -> None:
        if number + 1 < len(turns):
            turns[number + 1].set()
        all_together.wait()

    resources.lock = lambda tx, names: None
    resources.holders_of = count_together(resources.holders_of, counted)
