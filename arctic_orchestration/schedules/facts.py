"""Gathers the facts that constraints need, for all jobs that are checked together.

Facts that several dispatchers change are locked before they are read, in one order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, RunStatus
from arctic_orchestration.schedules import resources
from arctic_orchestration.schedules.constraints import Constraint
from arctic_orchestration.schedules.constraints.base import job_resource
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state.tables import jobs


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What constraints need from outside the state database."""

    #: the load of a probe, as a share of the capacity; None: not measured
    measure: Callable[[str], float | None] = lambda _: None
    #: an estimate of what one more run adds to that load before it has begun
    one_more: Callable[[str], float] = lambda _: 0.0
    #: the last materialization of each of some assets; assets without one are left out
    materialized_at: Callable[[Sequence[str]], Mapping[str, datetime]] = lambda _: {}
    #: the latest evaluation of each check of some assets, optionally for one partition
    latest_checks: Callable[
        [Sequence[str], str | None], Mapping[str, Mapping[str, Event | None]]
    ] = lambda _assets, _partition: {}


class Gathered:
    """Facts for a set of jobs: holders of resources, launches, ends, freshness."""

    def __init__(
        self, tx: sa.Connection, location: Location, surroundings: Surroundings, now: datetime
    ) -> None:
        self._tx = tx
        self._location = location
        self._surroundings = surroundings
        self._now = now
        self._held: dict[str, set[str]] = {}
        self._launches: dict[str, dict[str, datetime]] = {}
        #: the answers about launches, until a job is admitted: thousands of jobs ask the same
        self._sorted: dict[tuple[tuple[str, ...], datetime], list[datetime]] = {}
        self._ends: dict[tuple[str, str], datetime] = {}
        self._loads: dict[str, float | None] = {}
        #: jobs whose runs no measurement includes yet
        self._begun = 0
        self._fresh: dict[str, datetime] = {}
        self._trouble: Exception | None = None
        self._checks: dict[tuple[str, str | None], Mapping[str, Event | None]] = {}

    def gather(self, wanted: Iterable[tuple[Constraint, tuple[str, ...], tuple[str, ...]]]) -> None:
        """Locks and reads what constraints need.

        Each is given with the targets of its job, and the assets in the trigger.
        """
        counted: set[str] = set()
        launched: set[str] = set()
        ended: set[str] = set()
        probes: set[str] = set()
        parents: set[str] = set()
        longest = timedelta(0)
        for constraint, targets, trigger_assets in wanted:
            names = constraint.resources(targets)
            counted.update(names)
            counted.update(constraint.watched(self._location.place, trigger_assets))
            if constraint.lookback is not None:
                launched.update(names)
                longest = max(longest, constraint.lookback)
            if constraint.needs_ends:
                ended.update(names)
            probes.update(constraint.probes)
            parents.update(constraint.parents_needed)
        # External queries take time, and other processes wait for the locked rows.
        if probes:
            self._measure(sorted(probes))
        if parents:
            self._read_freshness(sorted(parents))
        if counted:
            resources.lock(self._tx, counted)
            self._held = resources.holders_of(self._tx, counted)
        if launched:
            self._launches = resources.launches_of(self._tx, launched, self._now - longest)
        if ended:
            self._ends = resources.last_ends(self._tx, ended)

    def admitted(self, job_id: str, names: Iterable[str]) -> None:
        """Counts a job that was just admitted."""
        self._begun += 1
        for name in names:
            self._held.setdefault(name, set()).add(job_id)
            self._launches.setdefault(name, {})[job_id] = self._now
        self._sorted.clear()

    def is_held(self, name: str) -> bool:
        """Returns whether a job or run holds a resource."""
        return bool(self._held.get(name))

    def active(self, names: tuple[str, ...]) -> int:
        """Returns how many runs hold one of the resources, or are on their way to."""
        return len(set().union(*(self._held.get(name, set()) for name in names)))

    def launches(self, names: tuple[str, ...], since: datetime) -> Sequence[datetime]:
        """Returns when holders of the resources were launched after ``since``, in order."""
        if (names, since) not in self._sorted:
            holders: dict[str, datetime] = {}
            for name in names:
                holders.update(self._launches.get(name, {}))
            self._sorted[names, since] = sorted(at for at in holders.values() if at > since)
        return self._sorted[names, since]

    def last_end(self, names: tuple[str, ...], statuses: tuple[str, ...]) -> datetime | None:
        """Returns when the last run of the resources ended in one of the statuses."""
        ends = (self._ends.get((name, status)) for name in names for status in statuses)
        return max((at for at in ends if at is not None), default=None)

    def load(self, probe: str) -> float | None:
        """Returns the measured load, plus runs begun since that it does not include."""
        load = self._loads[probe]
        return None if load is None else load + self._begun * self._surroundings.one_more(probe)

    def _measure(self, probes: Sequence[str]) -> None:
        self._loads = {probe: self._surroundings.measure(probe) for probe in probes}
        launching = sa.select(sa.func.count()).where(
            jobs.c.location_id == self._location.id, jobs.c.state == JobState.LAUNCHING.value
        )
        self._begun = self._tx.execute(launching).scalar_one()

    def fresh_at(self, parent: str) -> datetime | None:
        """Returns when an asset was last materialized or, without one, a job last succeeded.

        Raises the error of the look-up; the job then waits.
        """
        if self._trouble is not None:
            raise self._trouble
        return self._fresh.get(parent)

    def checks(self, asset: str, partition: str | None) -> Mapping[str, Event | None]:
        """Returns the latest evaluations of an asset's checks; each is looked up once.

        Raises the error of the look-up; the job then waits.
        """
        key = (asset, partition)
        if key not in self._checks:
            found = self._surroundings.latest_checks([asset], partition)
            self._checks[key] = found.get(asset, {})
        return self._checks[key]

    def _read_freshness(self, names: Sequence[str]) -> None:
        try:
            found = dict(self._surroundings.materialized_at(names))
        except Exception as error:
            self._trouble = error
            return
        others = {job_resource(self._location.place, n): n for n in names if n not in found}
        for (resource, status), at in resources.last_ends(self._tx, others).items():
            if status == RunStatus.SUCCESS.value:
                found[others[resource]] = at
        self._fresh = found


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """The facts of one job, for its constraints."""

    satisfied_at: datetime
    targets: tuple[str, ...]
    gathered: Gathered
    place: str
    partition: str | None = None
    trigger_assets: tuple[str, ...] = ()

    def active(self, resources: tuple[str, ...]) -> int:
        return self.gathered.active(resources)

    def launches(self, resources: tuple[str, ...], since: datetime) -> Sequence[datetime]:
        return self.gathered.launches(resources, since)

    def last_end(self, resources: tuple[str, ...], statuses: tuple[str, ...]) -> datetime | None:
        return self.gathered.last_end(resources, statuses)

    def load(self, probe: str) -> float | None:
        return self.gathered.load(probe)

    def fresh_at(self, parent: str) -> datetime | None:
        return self.gathered.fresh_at(parent)

    def checks(self, asset: str) -> Mapping[str, Event | None]:
        return self.gathered.checks(asset, self.partition)
