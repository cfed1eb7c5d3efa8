"""A process that dispatches a location of its own, whose jobs all want slots of one group."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from typing import Any, Literal

import sqlalchemy as sa

from arctic_orchestration import Schedule, on, only
from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.schedules import resources
from arctic_orchestration.schedules.constraints import Constraint
from arctic_orchestration.schedules.constraints.concurrency import Concurrency
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs as arctic_jobs
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.proofs.processes import end_with_the_parent
from arctic_orchestration_tests.schedules.simulated import AnyTargets, ListFeed, SimulatedDagster

LIMIT = 3
GROUP = "spark"

metadata = sa.MetaData()
#: the runs that are active now, of all locations
active = sa.Table("proof_active", metadata, sa.Column("run", sa.Text, primary_key=True))


class Place:
    """A location with one schedule, which its constraints hold; its Dagster is simulated."""

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        constraints: Sequence[Constraint],
        partitions: Literal["none", "each"] = "none",
    ) -> None:
        self.feed = ListFeed()
        self.dagster = SimulatedDagster(self.feed)
        schedule = Schedule(
            name="constrained",
            target="rollup",
            trigger=on.partitions("raw/a"),
            constraints=constraints,
            partitions=partitions,
            enabled=True,
        )
        self.engine = Engine(
            database=database,
            cluster="default",
            location=name,
            feed=self.feed,
            lookup=self.dagster,
            targets=AnyTargets(),
            declared=[schedule],
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one location did."""

    location: str
    #: how often a run began while so many runs, itself counted, were active
    together: Counter[int]
    states: Mapping[str, int]
    #: ticks that the database did not let through
    refused: int


@dataclass
class ActiveRuns:
    """Counts the runs of all locations, under a lock of its own."""

    engine: sa.Engine
    together: Counter[int] = field(default_factory=Counter)

    def begin(self, run: str) -> None:
        """A run has begun, after its job was admitted."""
        with self._locked() as tx:
            tx.execute(sa.insert(active).values(run=run))
            self.together[
                tx.execute(sa.select(sa.func.count()).select_from(active)).scalar_one()
            ] += 1

    def end(self, run: str) -> None:
        """A run ends, before any scheduler hears of it."""
        with self._locked() as tx:
            tx.execute(sa.delete(active).where(active.c.run == run))

    @contextmanager
    def _locked(self) -> Iterator[sa.Connection]:
        with self.engine.begin() as tx:
            tx.execute(sa.text("lock table proof_active in exclusive mode"))
            yield tx


def of_the_group(limit: int) -> Concurrency:
    """At most so many runs of the group."""
    return only.concurrency(limit, group=GROUP)


def tick_until_done(
    url: str,
    number: int,
    all_together: Barrier,
    reports: Any,
    turns: object,
    *,
    jobs: int,
    with_lock: bool,
) -> None:
    """Runs ``jobs`` jobs of one location past the group's limit, one after the other or at once.

    A run ends at the tick after the one at which it began, so that slots are taken and given back
    all the time.
    """
    end_with_the_parent()
    if not with_lock:
        resources.lock = lambda tx, names: None
        resources.holders_of = count_together(resources.holders_of, all_together.wait)
    database = Database(url)
    location = f"location{number}"
    place = Place(database, location, constraints=[of_the_group(LIMIT)], partitions="each")
    feed, dagster, engine = place.feed, place.dagster, place.engine
    engine.tick(utc_now())
    counted = ActiveRuns(database.engine)
    for number in range(jobs):
        feed.arrive("raw/a", str(number))
    all_together.wait()
    running: list[str] = []
    ended = 0
    refused = 0
    while ended < jobs:
        try:
            requests = engine.tick(utc_now()).requests
        except DatabaseUnavailable:
            # What was committed stands, and the next tick goes on from there.
            refused += 1
            continue
        for run in running:
            counted.end(f"{location}/{run}")
            dagster.end(run)
        ended += len(running)
        running = dagster.submit(requests)
        for run in running:
            counted.begin(f"{location}/{run}")
    ticked = False
    while not ticked:
        try:
            engine.tick(utc_now())
            ticked = True
        except DatabaseUnavailable:
            refused += 1
    states = job_states(database, location)
    reports.put(
        Report(location=location, together=counted.together, states=states, refused=refused)
    )
    database.close()


def job_states(database: Database, location: str) -> Counter[str]:
    """How many jobs of a location are in each state."""
    here = sa.select(locations.c.id).where(locations.c.name == location).scalar_subquery()
    query = sa.select(arctic_jobs.c.state).where(arctic_jobs.c.location_id == here)
    with database.read() as tx:
        return Counter(tx.execute(query).scalars())


def count_together(count: Callable[..., Any], counted: Callable[[], object]) -> Callable[..., Any]:
    """``count``, which after the first time waits until everybody has counted."""
    first = True

    def counting(*args: Any) -> Any:
        nonlocal first
        found = count(*args)
        if first:
            first = False
            counted()
        return found

    return counting
