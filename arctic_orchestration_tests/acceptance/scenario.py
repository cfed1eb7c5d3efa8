"""A code location whose time is set: its runs are simulated, its engine and database are real."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from arctic_orchestration import Schedule, on
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import Constraint
from arctic_orchestration.schedules.dagster.resource import RunCause
from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.schedules.simulated import AnyTargets, World, at

MINUTE = 60.0


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A run: when it began, in seconds, and what it was given."""

    seconds: float
    schedule: str
    partitions: Sequence[str]
    properties: Mapping[str, Any]


@dataclass
class TargetsWithout(AnyTargets):
    """Targets that exist, but for jobs that the code has no more."""

    gone: set[str] = field(default_factory=set)

    def exists(self, target: Target) -> bool:
        return target.job not in self.gone


@dataclass
class Story:
    """A code location whose time is set: :meth:`until` lets it pass, tick by tick."""

    database: Database
    step: float = 10.0
    seconds: float = 0.0
    #: how long a run takes
    run_seconds: float = 10.0
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.database, [])
        self.targets = TargetsWithout()
        self._ends_at: dict[str, float] = {}
        self.deploy()

    def deploy(self, *schedules: Schedule, update_schedules: bool = True) -> None:
        """The code location is loaded again, and declares these schedules."""
        self.world.schedules = schedules
        engine = self.world.new_engine()
        engine.update_schedules = update_schedules
        engine.targets = self.targets
        engine.surroundings = self.world.engine.surroundings
        self.world.engine = engine
        self.tick()

    def arrive(self, *partitions: str) -> None:
        """Partitions of ``raw/a`` arrive now, and are seen."""
        for partition in partitions:
            self.world.feed.arrive("raw/a", partition, moment=at(self.seconds))
        self.tick()

    def tick(self) -> None:
        """What is to happen now, happens."""
        for run_id in [id for id, ends_at in self._ends_at.items() if ends_at <= self.seconds]:
            self.world.dagster.end(run_id, ended_at=at(self._ends_at.pop(run_id)))
        for run_id in self.world.tick(self.seconds):
            cause = RunCause(self.world.dagster.runs[run_id].tags)
            self.launches.append(
                Launch(
                    seconds=self.seconds,
                    schedule=cause.schedule or "",
                    partitions=cause.partitions,
                    properties=cause.properties,
                )
            )
            self._ends_at[run_id] = self.seconds + self.run_seconds

    def until(self, seconds: float) -> None:
        """Time passes to here, and no tick is left out."""
        while self.seconds < seconds:
            self.seconds = round(min(self.seconds + self.step, seconds), 3)
            self.tick()

    def do(self, act: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """What a person does to schedules, in a transaction of its own."""
        engine = self.world.engine
        with self.database.begin() as tx:
            location = locations.locked(tx, engine.cluster, engine.location)
            return act(tx, engine.store, location, *args, at(self.seconds), **named)

    def declare(self, one: Schedule) -> None:
        """The schedule is made in the usual way: the code declares it."""
        self.deploy(one)

    def apply(self, *schedules: Schedule) -> None:
        """A person makes or changes schedules manually."""
        self.do(control.apply, list(schedules))

    def update(self, changed: Schedule) -> None:
        """A person changes a schedule."""
        self.do(control.update, changed)

    def delete(self, name: str) -> None:
        """A person deletes a schedule."""
        self.do(control.delete, name)

    def stored(self) -> dict[str, StoredSchedule]:
        """The schedules of the store, by name."""
        engine = self.world.engine
        with self.database.begin() as tx:
            location = locations.locked(tx, engine.cluster, engine.location)
            return {found.name: found for found in engine.store.in_location(tx, location.id)}

    def job_states(self) -> list[str]:
        """The states of all jobs, oldest first."""
        with self.database.read() as tx:
            return list(tx.execute(sa.select(jobs.c.state).order_by(jobs.c.id)).scalars())


def schedule(
    name: str = "collector",
    *,
    count: int = 1,
    constraints: Sequence[Constraint] = (),
    properties: Mapping[str, Any] | None = None,
    target: str = "rollup",
    enabled: bool = True,
) -> Schedule:
    """A schedule for partitions of ``raw/a``."""
    return Schedule(
        name=name,
        target=target,
        trigger=on.partitions("raw/a", count=count),
        constraints=tuple(constraints),
        properties=properties or {},
        enabled=enabled,
    )
