"""A process that dispatches a location of its own, whose jobs share a rate with other locations.

All processes go through the same rounds, each a quarter of a second of virtual time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Event as Flag
from typing import Any

from arctic_orchestration import only
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.schedules import resources
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.proofs.group_tickers import Place, count_together, job_states
from arctic_orchestration_tests.proofs.processes import end_with_the_parent
from arctic_orchestration_tests.schedules.simulated import at

LIMIT = 5
GROUP = "landing"
ROUNDS_A_SPAN = 4
SPAN = timedelta(seconds=1)
ROUND = SPAN / ROUNDS_A_SPAN


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one location did."""

    location: str
    #: the rounds in which its runs began
    begun: Sequence[int]
    states: Mapping[str, int]
    #: ticks that the database did not let through
    refused: int


def tick_through_rounds(
    url: str,
    number: int,
    all_together: Barrier,
    reports: Any,
    turns: Sequence[Flag],
    *,
    jobs: int,
    rounds: int,
    with_lock: bool,
) -> None:
    """Ticks once in each round; all jobs of the location are there from the first on."""
    end_with_the_parent()
    if not with_lock:
        resources.lock = lambda tx, names: None
        resources.launches_of = count_together(resources.launches_of, all_together.wait)
    database = Database(url)
    name = f"location{number}"
    rate = only.rate(LIMIT, per=SPAN, group=GROUP)
    place = Place(database, name, constraints=[rate], partitions="each")
    place.engine.tick(at(0))
    for partition in range(jobs):
        place.feed.arrive("raw/a", str(partition))
    begun: list[int] = []
    running: list[str] = []
    refused = 0
    for round in range(1, rounds + 1):
        all_together.wait()
        now = at(0) + round * ROUND
        try:
            requests = place.engine.tick(now).requests
        except DatabaseUnavailable:
            # What was committed stands, and the next tick goes on from there.
            refused += 1
            continue
        for run in running:
            place.dagster.end(run, ended_at=now)
        running = place.dagster.submit(requests)
        begun += [round] * len(running)
    states: Counter[str] = job_states(database, name)
    reports.put(Report(location=name, begun=begun, states=states, refused=refused))
    database.close()
