"""Any sequence of events, ticks, crashes and suspensions launches what a small model says.

The model knows no database, no transactions and no jobs table: for each schedule it keeps what
has arrived and is not launched, and how many runs are active. Whatever the engine does between
two ticks, crashes included, must come out the same.
"""

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from arctic_orchestration.constraints import only
from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.tables import job_events, metadata
from arctic_orchestration.events.event import RunStatus
from arctic_orchestration.scheduling import location as locations
from arctic_orchestration.scheduling import suspension
from arctic_orchestration.scheduling.launcher import LaunchRequest
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration.triggers import on
from arctic_orchestration_tests.scheduling.simulated import World, at

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

#: name → asset, count, limit on concurrency, coalesce
SHAPES = {
    "single": ("a", 1, None, True),
    "triple": ("a", 3, None, True),
    "limited": ("a", 2, 1, True),
    "piecewise": ("b", 2, 1, False),
    # Both leaves take some of the events; each event is one firing all the same.
    "either": ("a", 1, None, False),
}


class Crash(BaseException):
    """The process ends here; what was not committed is gone."""


@dataclass
class Model:
    """One schedule: arrivals that wait, whole firings that wait, and active runs."""

    count: int
    limit: int | None
    coalesce: bool
    enabled: bool = True
    pending: list[str] = field(default_factory=list)
    ready: list[list[str]] = field(default_factory=list)
    launched: list[list[str]] = field(default_factory=list)
    active: int = 0

    def tick(self, arrived: list[str]) -> None:
        """What the engine owes after one tick that saw these arrivals."""
        for key in arrived if self.enabled else []:
            if self.ready and self.coalesce:
                self.ready[0].append(key)
                continue
            self.pending.append(key)
            if len(set(self.pending)) >= self.count:
                self.ready.append(self.pending)
                self.pending = []
        while self.ready and (self.limit is None or self.active < self.limit):
            self.launched.append(self.ready.pop(0))
            self.active += 1


class Machine(RuleBasedStateMachine):
    """Drives the engine and the model side by side."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        with self.database.begin() as tx:
            for table in reversed(metadata.sorted_tables):
                tx.execute(sa.delete(table))
        self.world = World(self.database, [_schedule(name) for name in SHAPES])
        self.models = {
            name: Model(count=count, limit=limit, coalesce=coalesce)
            for name, (_, count, limit, coalesce) in SHAPES.items()
        }
        self.clock = itertools.count(1)
        self.unseen: list[tuple[str, str]] = []
        self.stored: list[LaunchRequest] = []

    @initialize()
    def first_tick(self) -> None:
        self.world.tick(0)

    @rule(asset=st.sampled_from("ab"), key=st.sampled_from("123456"))
    def an_event_arrives(self, asset: str, key: str) -> None:
        self.world.feed.arrive(asset, key)
        self.unseen.append((asset, key))

    @rule()
    def a_tick(self) -> None:
        self._settle()

    @rule(
        step=st.sampled_from(["_subscribe", "_look_up", "_check", "_hand_out"]),
        committed=st.booleans(),
        resumed=st.booleans(),
    )
    def a_tick_that_crashes(self, step: str, committed: bool, resumed: bool) -> None:
        """The process dies in one of the three steps, before or after its commit."""
        engine: Any = self.world.engine
        original = getattr(engine, step)

        def dies(*args: Any, **named: Any) -> Any:
            if not committed:
                with _failing_commit(self.database):
                    original(*args, **named)
            result = original(*args, **named)
            if step == "_hand_out" and resumed:
                # Dagster had stored the requests; its daemon resumes that tick, late.
                self.stored.extend(result)
            raise Crash

        setattr(engine, step, dies)
        with contextlib.suppress(Crash):
            engine.tick(at(next(self.clock)))
        self.world.engine = self.world.new_engine()
        self._settle()

    @rule(status=st.sampled_from([RunStatus.SUCCESS, RunStatus.FAILURE, RunStatus.CANCELED]))
    def a_run_ends(self, status: RunStatus) -> None:
        self._settle()
        active = [id for id, run in self.world.dagster.runs.items() if not run.status.ended]
        if active:
            run = self.world.dagster.runs[active[0]]
            self.world.dagster.end(active[0], status)
            self.models[run.tags["arctic/schedule"]].active -= 1
            self._settle()

    @rule(name=st.sampled_from(sorted(SHAPES)))
    def a_schedule_is_suspended_or_resumed(self, name: str) -> None:
        self._settle()
        model = self.models[name]
        engine = self.world.engine
        with self.database.begin() as tx:
            location = locations.locked(tx, engine.cluster, engine.location)
            stored = {s.name: s for s in engine.store.in_location(tx, location.id)}[name]
            now = at(next(self.clock))
            if model.enabled:
                suspension.suspend(tx, engine.store, location, stored, now)
                model.pending, model.ready = [], []
            else:
                suspension.resume(tx, engine.store, location, stored, now)
        model.enabled = not model.enabled

    @invariant()
    def the_limits_hold(self) -> None:
        for name, model in self.models.items():
            if model.limit is not None:
                active = [
                    run
                    for run in self.world.dagster.runs.values()
                    if not run.status.ended and run.tags["arctic/schedule"] == name
                ]
                assert len(active) <= model.limit

    def _settle(self) -> None:
        """Ticks until nothing new is launched, and compares."""
        for name, model in self.models.items():
            asset = SHAPES[name][0]
            model.tick([key for other, key in self.unseen if other == asset])
        self.unseen = []
        self.world.tick(next(self.clock))
        self.world.dagster.submit(self.stored)
        self.stored = []
        self.world.tick(next(self.clock))
        for name, model in self.models.items():
            assert self._launched(name) == model.launched, name

    def _launched(self, name: str) -> list[list[str]]:
        """The partitions of each launched job of a schedule, in the order of their launches."""
        found = []
        with self.database.read() as tx:
            for request in self.world.dagster.requests:
                if request.tags["arctic/schedule"] == name:
                    query = (
                        sa.select(job_events.c.number, job_events.c.partition)
                        .distinct()
                        .where(job_events.c.job_id == request.job_id)
                        .order_by(job_events.c.number)
                    )
                    found.append([row.partition for row in tx.execute(query)])
        return found


def _schedule(name: str) -> Schedule:
    asset, count, limit, coalesce = SHAPES[name]
    return Schedule(
        name=name,
        target=name,
        trigger=(
            on.partitions(asset) | on.partitions(asset, where="[1-3]")
            if name == "either"
            else on.partitions(asset, count=count)
        ),
        constraints=[only.concurrency(limit)] if limit else [],
        coalesce=coalesce,
        timeout="365d",
        enabled=True,
    )


class _failing_commit:
    """Lets the next transaction do its work and die before its commit."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine

    def __enter__(self) -> None:
        sa.event.listen(self._engine, "commit", self._die)

    def __exit__(self, *details: object) -> None:
        sa.event.remove(self._engine, "commit", self._die)

    @staticmethod
    def _die(connection: sa.Connection) -> None:
        raise Crash


def test_the_engine_agrees_with_the_model(database: Database) -> None:
    """Events, ticks, crashes before and after each commit, suspensions: the same launches."""

    class Here(Machine):
        pass

    Here.database = database
    run_state_machine_as_test(
        Here,
        settings=settings(
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
            deadline=None,
            max_examples=settings().max_examples if database.engine.name == "sqlite" else 30,
        ),
    )


def test_the_model_notices_a_double(database: Database) -> None:
    """The control: where Dagster forgets run keys, a resumed tick launches a job twice."""

    class Forgetful(Machine):
        pass

    Forgetful.database = database
    machine = Forgetful()
    machine.world.dagster.dedupe = False
    machine.first_tick()
    machine.an_event_arrives("a", "1")
    with pytest.raises(AssertionError, match="single"):
        machine.a_tick_that_crashes("_hand_out", True, True)
