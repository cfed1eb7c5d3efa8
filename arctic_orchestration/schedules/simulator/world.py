"""The world around a simulated scheduler: Dagster's event log and runs, targets and loads.

It decides nothing about schedules. It makes a run for each new run key, as Dagster does.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.run_tags import JOB_TAG, RUN_KEY_TAG
from arctic_orchestration.schedules.declared_assets import DeclaredAssets
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG, LaunchRequest
from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.simulator.event_list import EventList
from arctic_orchestration.schedules.targets import PartitionMap, TargetPartitions

#: The simulated code location; run events are of this one unless they name another.
LOCATION = "simulation"
#: Dagster's job of runs that were requested by their assets
ASSET_JOB = "__ASSET_JOB"


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedRun:
    """A run as in Dagster's storage."""

    run_id: str
    job: str
    assets: tuple[str, ...] = ()
    status: RunStatus
    started: bool
    location: str = LOCATION
    tags: Mapping[str, str] = field(default_factory=dict)
    #: the target partitions it makes
    partitions: tuple[str, ...] = ()
    ended_at: datetime | None = None
    submitted: bool = True


@dataclass(kw_only=True)
class World(EventList):
    """A feed, runs and targets in memory, with a set load."""

    run_duration: timedelta
    runs: dict[str, SimulatedRun] = field(default_factory=dict)
    #: jobs and assets that the code no longer has
    gone: frozenset[str] = frozenset()
    loads: dict[str, float] = field(default_factory=dict)
    location: str = LOCATION
    retries_enabled: bool = False
    #: the partitions of targets and assets
    declared: DeclaredAssets = field(default_factory=DeclaredAssets)
    _by_tag: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    #: the latest run of each schedule
    _latest: dict[str, str] = field(default_factory=dict)
    _ending: list[tuple[datetime, int, str]] = field(default_factory=list)
    _materialized: dict[str, datetime] = field(default_factory=dict)
    #: the storage id of the latest arrival of each asset partition
    _arrivals: dict[tuple[str, str | None], int] = field(default_factory=dict)
    #: the state of each freshness policy
    _freshness: dict[str, str] = field(default_factory=dict)
    _materialized_partitions: dict[str, set[str]] = field(default_factory=dict)
    _launches: int = 0

    # The feed.

    def arrive(
        self,
        at: datetime,
        asset: str,
        partition: str | None = None,
        *,
        size: int | None = None,
        rows: int | None = None,
        metadata: Mapping[str, object] | None = None,
        data_version: str | None = None,
        run_id: str | None = None,
        backfill: str | None = None,
        checks: Sequence[str] = (),
    ) -> None:
        """A partition of an asset arrives."""
        self._materialized[asset] = at
        if backfill is not None:
            run_id = run_id or self.next_id()
            self.backfills[run_id] = backfill
        number = len(self.events) + 1
        self.planned[number] = frozenset(checks)
        self._arrivals[asset, partition] = number
        if partition is not None:
            self._materialized_partitions.setdefault(asset, set()).add(partition)
        self._happens(
            EventKind.PARTITION,
            asset,
            at,
            run_id=run_id,
            partition=partition,
            bytes=size,
            rows=rows,
            metadata=metadata or {},
            data_version=data_version,
        )

    def evaluate(
        self,
        at: datetime,
        asset: str,
        check: str,
        partition: str | None = None,
        *,
        passed: bool = True,
        severity: str = "error",
        blocking: bool = False,
    ) -> None:
        """A check of an asset is evaluated, for the latest arrival of the partition."""
        self._happens(
            EventKind.CHECK,
            asset,
            at,
            partition=partition,
            check=check,
            passed=passed,
            severity=severity,
            blocking=blocking,
            target_id=self._arrivals.get((asset, partition)),
        )

    def change_freshness(self, at: datetime, asset: str, state: str) -> None:
        """The freshness policy of an asset changes its state."""
        before, self._freshness[asset] = self._freshness.get(asset, "unknown"), state
        self._happens(
            EventKind.FRESHNESS,
            asset,
            at,
            state=state,
            previous_state=before,
        )

    def request(
        self,
        at: datetime,
        sensor: str,
        *,
        job: str | None = None,
        run_key: str | None = None,
        partition: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """A sensor that is a source requests a run; whether its run key is new is not looked up."""
        self._happens(
            EventKind.REQUEST,
            sensor,
            at,
            job=job,
            run_key=run_key,
            partition=partition,
            tags=tags or {},
        )

    def _happens(self, kind: EventKind, subject: str, at: datetime, **fields: Any) -> None:
        number = len(self.events) + 1
        self.events.append(Event(kind=kind, subject=subject, at=at, storage_id=number, **fields))

    # Runs.

    def launch(self, request: LaunchRequest, at: datetime) -> SimulatedRun | None:
        """Makes the run of a request, which starts at once; None: its key has a run already."""
        if self.runs_by_tag(RUN_KEY_TAG, [request.run_key]):
            return None
        tags = {**request.tags, RUN_KEY_TAG: request.run_key}
        start, end = request.partition_start, request.partition_end
        if start is not None and start == end:
            tags["dagster/partition"] = start
        elif start is not None and end is not None:
            tags["dagster/asset_partition_range_start"] = start
            tags["dagster/asset_partition_range_end"] = end
        run = SimulatedRun(
            run_id=self.next_id(),
            job=request.target.job or ASSET_JOB,
            assets=request.target.assets,
            status=RunStatus.STARTED,
            started=True,
            tags=tags,
            partitions=self._keys_of(request),
        )
        self.reach(run, at)
        self._latest[tags[SCHEDULE_TAG]] = run.run_id
        heapq.heappush(self._ending, (at + self.run_duration, len(self.events), run.run_id))
        return run

    def _keys_of(self, request: LaunchRequest) -> tuple[str, ...]:
        start, end = request.partition_start, request.partition_end
        if start is None or end is None:
            return ()
        partitioned = self.declared.partitions(request.target, self._made)
        return (
            (start,) if start == end or not partitioned else tuple(partitioned.between(start, end))
        )

    def reach(self, run: SimulatedRun, at: datetime) -> None:
        """Updates a run and reports it in the feed."""
        if not run.assets and run.location == self.location:
            run = replace(run, assets=tuple(self.declared.jobs.get(run.job, ())))
        if run.run_id not in self.runs:
            for key, value in run.tags.items():
                if key in (RUN_KEY_TAG, JOB_TAG):
                    self._by_tag.setdefault((key, value), []).append(run.run_id)
        ended = run.status.ended
        run = self.runs[run.run_id] = replace(run, ended_at=at if ended else None)
        if run.status is RunStatus.SUCCESS:
            self._materialized.update(dict.fromkeys(run.assets, at))
            for asset in run.assets if run.partitions else ():
                self._materialized_partitions.setdefault(asset, set()).update(run.partitions)
        self._happens(
            EventKind.RUN,
            run.job,
            at,
            run_id=run.run_id,
            partition=run.tags.get("dagster/partition"),
            status=run.status,
            location=run.location,
            assets=run.assets,
            tags=run.tags,
            started=run.started,
        )

    def end_run(
        self, run_id: str, status: RunStatus, at: datetime, *, started: bool = True
    ) -> None:
        """Ends a run that is active."""
        self.reach(replace(self.runs[run_id], status=status, started=started), at)

    def next_end(self) -> datetime | None:
        """Returns when the next launched run ends by itself."""
        while self._ending and self.runs[self._ending[0][2]].status.ended:
            heapq.heappop(self._ending)
        return self._ending[0][0] if self._ending else None

    def end_next(self) -> None:
        """Ends the run with the earliest end; it succeeds."""
        at, _, run_id = heapq.heappop(self._ending)
        self.end_run(run_id, RunStatus.SUCCESS, at)

    def latest_of(self, schedule: str) -> str | None:
        """Returns the id of the latest run of a schedule."""
        return self._latest.get(schedule)

    def next_id(self) -> str:
        """Returns an id for another run."""
        while True:
            self._launches += 1
            if (run_id := f"run-{self._launches}") not in self.runs:
                return run_id

    def run_statuses(self, run_ids: Sequence[str]) -> dict[str, SimulatedRun]:
        """Returns the runs with these ids."""
        return {id: self.runs[id] for id in run_ids if id in self.runs}

    def runs_by_tag(self, key: str, values: Sequence[str]) -> dict[str, list[SimulatedRun]]:
        """Returns the runs with one of the values of a tag that the scheduler uses."""
        return {
            value: [self.runs[id] for id in ids]
            for value in values
            if (ids := self._by_tag.get((key, value)))
        }

    # Targets: all exist that no deployment has removed.

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        """Returns an error if the code of the target is gone, else None."""
        lost = [name for name in (target.job, *target.assets) if name in self.gone]
        return f"{lost[0]} is not in this code location" if lost else None

    def exists(self, target: Target) -> bool:
        """Returns whether the code still has the job, or one of the assets."""
        return any(name not in self.gone for name in (target.job, *target.assets) if name)

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        """Returns the partitions in contiguous ranges of the target.

        Undeclared targets: ranges of consecutive days, hours or whole numbers.
        """
        declared = self.declared.ranges(target, partitions)
        if declared is not None:
            return declared
        groups: list[list[str]] = []
        for key in sorted(partitions, key=_order):
            if groups and _follows(groups[-1][-1], key):
                groups[-1].append(key)
            else:
                groups.append([key])
        return groups

    def partitions(self, target: Target) -> TargetPartitions | None:
        """Returns the partitions of a target, or None if they are not declared."""
        return self.declared.partitions(target, self._made)

    def _made(self, asset: str) -> Collection[str]:
        return self._materialized_partitions.get(asset, ())

    def blocking_checks(self, asset: str) -> Collection[str] | None:
        """Returns None, for unknown: an arrival waits for its planned checks."""
        return None

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        """Returns the keys of an asset by one of their dimensions.

        Errors:
            InvalidInput: the asset is not declared, or has no such dimension.
        """
        return self.declared.groups(asset, dimension)

    # Loads and freshness.

    def measure(self, probe: str) -> float:
        """Returns the load that a probe measures; 0 until a line says otherwise."""
        return self.loads.get(probe, 0.0)

    def materialized_at(self, names: Sequence[str]) -> dict[str, datetime]:
        """Returns when a partition of each asset last arrived, or a run of it last succeeded."""
        return {name: self._materialized[name] for name in names if name in self._materialized}


#: Dagster's format of daily and hourly partition keys, and the step between two.
_STEPS = (("%Y-%m-%d", timedelta(days=1)), ("%Y-%m-%d-%H:%M", timedelta(hours=1)))


def _order(key: str) -> tuple[int, str]:
    """Sorts whole numbers by value, before everything else by text."""
    return (int(key), "") if key.isascii() and key.isdecimal() else (-1, key)


def _follows(key: str, following: str) -> bool:
    if key.isascii() and key.isdecimal():
        return following == str(int(key) + 1).zfill(len(key))
    for form, step in _STEPS:
        try:
            return datetime.strptime(key, form) + step == datetime.strptime(following, form)  # noqa: DTZ007 (keys have no zone)
        except ValueError:
            continue
    return False
