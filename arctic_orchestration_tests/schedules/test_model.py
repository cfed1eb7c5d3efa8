"""Any sequence of events, ticks, crashes and suspensions launches what a small model says.

The model knows no database, no transactions and no jobs table: for each schedule it keeps what
has arrived and is not launched, and how many runs are active. Whatever the engine does between
two ticks, crashes included, must come out the same; in each of the four modes in which a schedule
may be suspended.
"""

import contextlib
import itertools
import os
from collections.abc import Sequence
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

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules import suspension
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.jobs import WAITING
from arctic_orchestration.schedules.launch_requests import LaunchRequest
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import job_events, jobs, metadata, schedules
from arctic_orchestration_tests.schedules.model import MODES, SHAPES, SIZES, Arrival, Model
from arctic_orchestration_tests.schedules.simulated import World, at

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

_FULL = os.environ.get("HYPOTHESIS_PROFILE") == "ci"
_EXAMPLES = {"sqlite": 400 if _FULL else 30, "postgresql": 60 if _FULL else 10}


_arrivals = st.builds(
    Arrival,
    asset=st.sampled_from("ab"),
    key=st.sampled_from("123456"),
    size=st.sampled_from(SIZES),
)


class Crash(BaseException):
    """The process ends here; what was not committed is gone."""


class Machine(RuleBasedStateMachine):
    """Drives the engine and the model side by side."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        with self.database.begin() as tx:
            for table in reversed(metadata.sorted_tables):
                tx.execute(sa.delete(table))
        self.clock = itertools.count(1)
        self.unseen: list[Arrival] = []
        self.stored: list[LaunchRequest] = []

    @initialize(modes=st.tuples(*[st.sampled_from(MODES)] * len(SHAPES)))
    def first_tick(self, modes: Sequence[str]) -> None:
        self.models = {
            name: Model(shape, mode)
            for (name, shape), mode in zip(SHAPES.items(), modes, strict=True)
        }
        declared = [_schedule(name, model) for name, model in self.models.items()]
        self.world = World(self.database, declared)
        self.world.tick(0)

    @rule(arrivals=st.lists(_arrivals, min_size=1, max_size=4))
    def events_arrive(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.world.feed.arrive(arrival.asset, arrival.key, size=arrival.size)
        self.unseen += arrivals

    @rule()
    def a_tick(self) -> None:
        self._evaluate()

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
        self._evaluate()

    @rule(status=st.sampled_from([RunStatus.SUCCESS, RunStatus.FAILURE, RunStatus.CANCELED]))
    def a_run_ends(self, status: RunStatus) -> None:
        self._evaluate()
        active = [id for id, run in self.world.dagster.runs.items() if not run.status.ended]
        if active:
            run = self.world.dagster.runs[active[0]]
            self.world.dagster.end(active[0], status)
            self.models[run.tags["arctic/schedule"]].active -= 1
            self._evaluate()

    @rule(names=st.sets(st.sampled_from(sorted(SHAPES)), min_size=1))
    def schedules_are_suspended_or_resumed(self, names: set[str]) -> None:
        self._evaluate()
        for name in sorted(names):
            self._switch(name)

    def _switch(self, name: str) -> None:
        model, engine = self.models[name], self.world.engine
        with self.database.begin() as tx:
            location = locations.locked(tx, engine.cluster, engine.location)
            stored = {s.name: s for s in engine.store.in_location(tx, location.id)}[name]
            now = at(next(self.clock))
            if model.enabled:
                suspension.suspend(tx, engine.store, location, stored, now)
                model.suspend()
            else:
                suspension.resume(tx, engine.store, location, stored, now)
                model.resume()

    @invariant()
    def the_limits_hold(self) -> None:
        for name, model in self._known():
            if model.shape.limit is not None:
                assert len(self._active(name)) <= model.shape.limit

    @invariant()
    def no_event_is_in_two_jobs_of_a_schedule(self) -> None:
        """Whatever the model thinks of it."""
        of = job_events.join(jobs, jobs.c.id == job_events.c.job_id)
        twice = (
            sa.select(jobs.c.schedule_id, job_events.c.number)
            .select_from(of)
            .group_by(jobs.c.schedule_id, job_events.c.number)
            .having(sa.func.count(job_events.c.job_id.distinct()) > 1)
        )
        with self.database.read() as tx:
            assert tx.execute(twice).all() == []

    def teardown(self) -> None:
        """In the end all are resumed, all runs end: only what lacks company was not launched."""
        for name, model in self._known():
            if not model.enabled:
                self._switch(name)
        self._evaluate()
        while any(model.ready for _, model in self._known()):
            self.a_run_ends(RunStatus.SUCCESS)
        for name, model in self._known():
            assert self._waiting(name) == [arrival.key for arrival in model.pending], name

    def _evaluate(self) -> None:
        """Ticks until nothing new is launched, and compares."""
        for _, model in self._known():
            model.tick(self.unseen)
        self.unseen = []
        self.world.tick(next(self.clock))
        self.world.dagster.submit(self.stored)
        self.stored = []
        self.world.tick(next(self.clock))
        for name, model in self._known():
            assert self._launched(name) == model.launched, name

    def _known(self) -> list[tuple[str, Model]]:
        return list(self.models.items())

    def _active(self, name: str) -> list[str]:
        """The active runs of a schedule."""
        return [
            id
            for id, run in self.world.dagster.runs.items()
            if not run.status.ended and run.tags["arctic/schedule"] == name
        ]

    def _waiting(self, name: str) -> list[str]:
        """The partitions in the jobs of a schedule that wait, in the order of their arrival."""
        query = (
            sa.select(job_events.c.number, job_events.c.partition)
            .distinct()
            .join(jobs, jobs.c.id == job_events.c.job_id)
            .join(schedules, schedules.c.id == jobs.c.schedule_id)
            .where(schedules.c.name == name, jobs.c.state.in_([state.value for state in WAITING]))
            .order_by(job_events.c.number)
        )
        with self.database.read() as tx:
            return [row.partition for row in tx.execute(query)]

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


def _schedule(name: str, model: Model) -> Schedule:
    limit = model.shape.limit
    return Schedule(
        name=name,
        target=name,
        trigger=model.shape.trigger,
        constraints=[only.concurrency(limit)] if limit else [],
        coalesce=model.shape.coalesce,
        suspend_mode=model.mode,
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
            max_examples=_EXAMPLES[database.engine.name],
        ),
    )


def test_the_model_notices_a_double(database: Database) -> None:
    """The control: where Dagster forgets run keys, a resumed tick launches a job twice."""

    class Forgetful(Machine):
        pass

    Forgetful.database = database
    machine = Forgetful()
    machine.first_tick(["drop"] * len(SHAPES))
    machine.world.dagster.dedupe = False
    machine.events_arrive([Arrival("a", "1", 10)])
    with pytest.raises(AssertionError, match="single"):
        machine.a_tick_that_crashes("_hand_out", True, True)
