"""Clusters over one state database whose runs are imagined: nothing runs until a test says so."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import ownership, submissions
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.lifecycle import Lifecycle, TaskRequest, TickResult
from arctic_orchestration.freshness.owned_run import Running
from arctic_orchestration.freshness.ownership import TaskRow
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.run_requests import TOKEN_TAG
from arctic_orchestration.freshness.run_start import acquired_manually, begun
from arctic_orchestration.freshness.status import Step, events_of
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, tasks
from arctic_orchestration_tests.standing_clock import Clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIFE = timedelta(seconds=60)


def spec(
    name: str,
    parents: Mapping[str, float | None] | Sequence[str] = (),
    **fields: Any,
) -> TaskSpec:
    """A task that is an asset of its own name; parents in a list are needed of today."""
    needs = parents if isinstance(parents, Mapping) else dict.fromkeys(parents)
    form = {
        "name": name,
        "target": name,
        "parents": [{"name": parent, "hours": hours} for parent, hours in needs.items()],
        **fields,
    }
    return TaskSpec.parse(form)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as Dagster's storage would show it."""

    run_id: str
    request: TaskRequest
    tags: Mapping[str, str]
    status: RunStatus = RunStatus.QUEUED
    started: bool = False
    ended_at: datetime | None = None
    submitted: bool = True


@dataclass
class Runs:
    """The runs of one cluster."""

    prefix: str
    known: dict[str, Run] = field(default_factory=dict)
    #: why runs failed, by id
    why: dict[str, str] = field(default_factory=dict)

    def request_run(self, request: TaskRequest) -> None:
        """Makes one run of a run key, as Dagster does."""
        if not any(run.request.run_key == request.run_key for run in self.known.values()):
            id = f"{self.prefix}-{len(self.known) + 1}"
            tags = {**request.tags, "dagster/run_key": request.run_key}
            self.known[id] = Run(run_id=id, request=request, tags=tags)

    def becomes(
        self, run_id: str, status: RunStatus, *, started: bool = True, why: str | None = None
    ) -> None:
        self.known[run_id] = replace(self.known[run_id], status=status, started=started)
        if why is not None:
            self.why[run_id] = why

    def why_failed(self, run_id: str) -> str | None:
        return self.why.get(run_id)

    def run_statuses(self, run_ids: Sequence[str]) -> Mapping[str, Run]:
        return {id: self.known[id] for id in run_ids if id in self.known}

    def runs_by_tag(self, key: str, values: Sequence[str]) -> Mapping[str, Sequence[Run]]:
        found: dict[str, list[Run]] = {}
        for run in self.known.values():
            if run.tags.get(key) in values:
                found.setdefault(run.tags[key], []).append(run)
        return found


@dataclass
class KnownAssets:
    """Assets that are no tasks, with their last materialization."""

    made: dict[str, datetime | None] = field(default_factory=dict)

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        return {name: at for name in assets if (at := self.made.get(name)) is not None}

    def known(self, assets: Sequence[str]) -> frozenset[str]:
        return frozenset(assets) & frozenset(self.made)


class Place:
    """One code location of one cluster."""

    def __init__(self, world: "World", cluster: str, location: str, tasks: Sequence[TaskSpec]):
        self.world = world
        self.cluster, self.location = cluster, location
        self.runs = Runs(prefix=f"{cluster}-{location}")
        self.assets = KnownAssets()
        #: of another Dagster instance, if a test says so
        self.storage_id = f"storage of {cluster}"
        self.lifecycle = self.deployed(tasks)

    def deployed(self, tasks: Sequence[TaskSpec] | None) -> Lifecycle:
        """Its code server, started again with these definitions."""
        self.lifecycle = Lifecycle(
            database=self.world.state,
            cluster=self.cluster,
            location=self.location,
            declared=tasks,
            runs=self.runs,
            assets=self.assets,
            storage_id=self.storage_id,
            time=self.world.clock,
            life=LIFE,
        )
        return self.lifecycle

    def tick(self) -> TickResult:
        """A tick, whose requests Dagster takes."""
        result = self.lifecycle.tick()
        for request in result.requests:
            self.runs.request_run(request)
        return result

    def submit(self, *names: str, **how: Any) -> list[Submission]:
        """Submits tasks as a person of this cluster."""
        with self.world.state.begin() as tx:
            how = {"by": "ann", "cluster": self.cluster, **how}
            return submissions.submit(tx, list(names), time=self.world.clock, **how)

    def waiting_runs(self) -> list[Run]:
        """Runs that nobody has started yet."""
        return [run for run in self.runs.known.values() if run.status is RunStatus.QUEUED]

    def begin(self, run: Run, stack: ExitStack) -> Running:
        """The process of a run begins, and has the task until the stack is left."""
        self.runs.becomes(run.run_id, RunStatus.STARTED)
        return stack.enter_context(
            begun(
                self.world.state,
                task=run.request.task,
                submission=run.request.submission,
                token=int(run.tags[TOKEN_TAG]),
                run_id=run.run_id,
                outcomes=self.world.outcomes,
            )
        )

    def make(self, run: Run) -> None:
        """A run from its beginning to its success."""
        with ExitStack() as stack:
            self.begin(run, stack).publish()
        self.runs.becomes(run.run_id, RunStatus.SUCCESS)

    def make_all(self) -> list[str]:
        """All runs that wait; returns their tasks."""
        made = []
        for run in self.waiting_runs():
            self.make(run)
            made.append(run.request.task)
        return made


class World:
    """Clusters that share a state database."""

    def __init__(self, state: Database) -> None:
        self.state = state
        self.clock = Clock()
        self.places: list[Place] = []

    @property
    def outcomes(self) -> Outcomes:
        """By the clock, and with short leases."""
        return Outcomes(life=LIFE, time=self.clock)

    def place(self, *tasks: TaskSpec, cluster: str = "east", location: str = "lake") -> Place:
        """Another code location, whose tasks are registered by its first tick."""
        made = Place(self, cluster, location, tasks)
        self.places.append(made)
        made.tick()
        return made

    def run_all(self) -> list[str]:
        """Ticks and runs, until nothing happens any more without time passing.

        Returns:
            the tasks, in the order in which they were made.
        """
        made: list[str] = []
        while True:
            for place in self.places:
                place.tick()
            new = [task for place in self.places for task in place.make_all()]
            if not new and not self._some_are_due():
                return made
            made += new

    def started_manually(
        self, task: str, *, cluster: str = "east", location: str = "lake"
    ) -> AbstractContextManager[Running]:
        """The run ``r`` that a user started in Dagster."""
        return acquired_manually(
            self.state,
            task=task,
            cluster=cluster,
            location=location,
            run_id="r",
            outcomes=self.outcomes,
        )

    def _some_are_due(self) -> bool:
        """Whether a tick has left something to the next, as it took too long."""
        here = task_submissions.c
        with self.state.read() as tx:
            due = sa.select(here.id).where(
                is_live, here.next_check_at <= self.clock(tx), here.state.not_in(["acquired"])
            )
            return tx.execute(due.limit(1)).first() is not None

    def row(self, task: str) -> TaskRow:
        with self.state.read() as tx:
            return ownership.row_of(tx, task)

    def again(self, submission: Submission) -> Submission:
        """A submission as it is now."""
        with self.state.read() as tx:
            found = submissions.by_id(tx, submission.id)
        assert found is not None
        return found

    def state_of(self, submission: Submission) -> SubmissionState:
        return self.again(submission).state

    def steps(self, submission: Submission) -> list[Step]:
        """The history of a submission."""
        with self.state.read() as tx:
            return [event.step for _, event in events_of(tx, submission=submission.id)]

    def made(self, task: str, **ago: float) -> None:
        """A success of a task, so long ago, by nobody here."""
        at = self.clock.now - timedelta(**ago)
        with self.state.begin() as tx:
            tx.execute(sa.delete(tasks).where(tasks.c.task == task))
            tx.execute(sa.insert(tasks).values(
                task=task, token=1, last_success_at=at, last_acquired_at=at, last_token=1,
                last_success_run="before", last_success_cluster="east"))  # fmt: skip
