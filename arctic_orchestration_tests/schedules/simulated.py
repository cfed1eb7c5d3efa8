"""A feed, runs and targets in memory, for tests of the engine without Dagster."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules import suspension
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.launch_requests import LaunchRequest
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.simulator.event_list import EventList
from arctic_orchestration.schedules.targets import PartitionMap, TargetPartitions, Targets
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
#: Later than any tick: the engine takes such an event as one that happens at its tick.
SEEN_AT_ONCE = EPOCH + timedelta(days=36_500)


def at(seconds: float) -> datetime:
    """A moment, in seconds after the epoch of the tests."""
    return EPOCH + timedelta(seconds=seconds)


def schedule(name: str = "s", **fields: Any) -> Schedule:
    """A schedule that runs the job ``rollup`` for each partition, unless ``fields`` differ."""
    fields = {"target": "rollup", "trigger": on.partitions("raw/a"), "enabled": True, **fields}
    return Schedule(name=name, **fields)


@dataclass(kw_only=True)
class ListFeed(EventList):
    """A feed over a list, to which things happen one by one."""

    def arrive(
        self,
        asset: str,
        partition: str | None = None,
        *,
        moment: datetime | None = None,
        size: int = 0,
    ) -> None:
        """A partition of an asset arrives; without a moment just before the tick that sees it."""
        self.events.append(
            Event(
                kind=EventKind.PARTITION,
                subject=asset,
                at=moment or SEEN_AT_ONCE,
                storage_id=len(self.events) + 1,
                partition=partition,
                bytes=size,
            )
        )


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """A run in :class:`SimulatedDagster`."""

    run_id: str
    job: str
    status: RunStatus
    started: bool
    tags: Mapping[str, str]
    ended_at: datetime | None = None
    submitted: bool = True


@dataclass
class SimulatedDagster:
    """Runs by run key, as Dagster makes them: a key that was seen makes no second run."""

    feed: ListFeed
    dedupe: bool = True
    retries_enabled: bool = False
    location: str = "here"
    runs: dict[str, SimulatedRun] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    requests: list[LaunchRequest] = field(default_factory=list)

    def submit(self, requests: Sequence[LaunchRequest]) -> list[str]:
        """Makes a run of each request whose key is new; returns the new run ids."""
        made = []
        for request in requests:
            if request.run_key in self.keys and self.dedupe:
                continue
            run_id = f"run-{len(self.requests) + 1}"
            self.keys[request.run_key] = run_id
            self.requests.append(request)
            job = request.target.job or "__ASSET_JOB"
            self.start(job, run_id, tags={**request.tags, "dagster/run_key": request.run_key})
            made.append(run_id)
        return made

    def start(self, job: str, run_id: str, tags: Mapping[str, str] | None = None) -> None:
        """A run begins, whoever requested it."""
        self.runs[run_id] = SimulatedRun(
            run_id=run_id, job=job, status=RunStatus.STARTED, started=True, tags=tags or {}
        )
        self._report(self.runs[run_id])

    def end(
        self,
        run_id: str,
        status: RunStatus = RunStatus.SUCCESS,
        *,
        started: bool = True,
        tags: Mapping[str, str] | None = None,
        ended_at: datetime | None = None,
    ) -> None:
        """A run ends; ``tags`` are added to its own."""
        run = self.runs[run_id]
        self.runs[run_id] = SimulatedRun(
            run_id=run_id,
            job=run.job,
            status=status,
            started=started,
            tags={**run.tags, **(tags or {})},
            ended_at=ended_at,
        )
        self._report(self.runs[run_id])

    def delete(self, run_id: str) -> None:
        """A person deletes a run. Dagster finds run keys in the tags of runs."""
        del self.runs[run_id]
        self.keys = {key: run for key, run in self.keys.items() if run != run_id}

    def _report(self, run: SimulatedRun) -> None:
        self.feed.events.append(
            Event(
                kind=EventKind.RUN,
                subject=run.job,
                at=run.ended_at or EPOCH,
                storage_id=len(self.feed.events) + 1,
                run_id=run.run_id,
                status=run.status,
                location=self.location,
                tags=run.tags,
                started=run.started,
            )
        )

    def run_statuses(self, run_ids: Sequence[str]) -> dict[str, SimulatedRun]:
        return {id: self.runs[id] for id in run_ids if id in self.runs}

    def runs_by_tag(self, key: str, values: Sequence[str]) -> dict[str, list[SimulatedRun]]:
        found: dict[str, list[SimulatedRun]] = {}
        for run in self.runs.values():
            if run.tags.get(key) in values:
                found.setdefault(run.tags[key], []).append(run)
        return found


class AnyTargets:
    """Targets that all exist, whose partitions are numbers."""

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        return "there is no such partition" if start == "missing" else None

    def exists(self, target: Target) -> bool:
        return target.job != "gone"

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        groups: list[list[str]] = []
        for key in sorted(partitions, key=int):
            if groups and int(groups[-1][-1]) + 1 == int(key):
                groups[-1].append(key)
            else:
                groups.append([key])
        return groups

    def partitions(self, target: Target) -> TargetPartitions | None:
        return None

    def blocking_checks(self, asset: str) -> Collection[str] | None:
        return None

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        raise AssertionError("no schedule of these tests groups partitions")


@dataclass
class World:
    """An engine with everything around it; :meth:`tick` also gives its requests to Dagster."""

    database: Database
    schedules: Sequence[Schedule]
    feed: ListFeed = field(default_factory=ListFeed)
    location: str = "here"
    targets: Targets = field(default_factory=AnyTargets)
    cluster: str = "default"

    def __post_init__(self) -> None:
        self.dagster = SimulatedDagster(self.feed)
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        return Engine(
            database=self.database,
            cluster=self.cluster,
            location=self.location,
            feed=self.feed,
            lookup=self.dagster,
            targets=self.targets,
            declared=list(self.schedules),
        )

    def tick(self, seconds: float) -> list[str]:
        """One tick at a moment, and Dagster's part of it; returns the ids of new runs."""
        return self.dagster.submit(self.engine.tick(at(seconds)).requests)

    def tick_without_submitting(self, seconds: float) -> None:
        """One tick whose requests never reach Dagster."""
        self.engine.tick(at(seconds))

    def suspend(self, seconds: float) -> bool:
        """The schedule ``s`` is suspended; returns whether it was enabled."""
        return self._change(suspension.suspend, seconds)

    def resume(self, seconds: float) -> bool:
        """The schedule ``s`` is enabled; returns whether it was suspended."""
        return self._change(suspension.resume, seconds)

    def _change(self, change: Callable[..., bool], seconds: float) -> bool:
        store = self.engine.store
        with self.database.begin() as tx:
            location = locked(tx, self.cluster, self.location)
            (stored,) = (one for one in store.in_location(tx, location.id) if one.name == "s")
            return change(tx, store, location, stored, at(seconds), reason="a test")


#: Makes a world of schedules; see the fixture ``world``.
MakeWorld = Callable[[Sequence[Schedule]], World]
