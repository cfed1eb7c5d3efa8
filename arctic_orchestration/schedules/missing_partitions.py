"""Counts missing partitions for triggers that wait for all partitions that belong together."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, partial
from typing import Protocol

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.feed import LookedUpFeed, Position
from arctic_orchestration.schedules.deferred_arrivals import last_counted, unchecked
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import COMMON, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.target_partitions import Placing
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.schedules.trigger_evaluation import evaluate_trigger
from arctic_orchestration.schedules.triggers import Arrivals
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import job_events, jobs

#: with more missing partitions, a reason gives their number only
_NAMED = 5


class Arrived(Protocol):
    """The partitions that had arrived before the events of a transaction."""

    def __call__(self, asset: str, partitions: Collection[str]) -> Set[str]:
        """The partitions among these that were materialized, or observed from outside."""
        ...


class MissingPartitions:
    """Computes, for leaves that wait for all, how many partitions are missing, and which."""

    def __init__(self, queue: JobQueue, placing: Placing, arrived: Arrived) -> None:
        self._queue = queue
        self._placing = placing
        self._arrived = arrived
        self._unchecked: Callable[[str, int], Mapping[str | None, int]] = partial(
            unchecked, queue.tx
        )
        #: the partitions of jobs that were read ahead, by job and leaf
        self._ahead: dict[str, dict[int, set[str]]] = {}
        #: partitions that arrived in this transaction, with the number of the event, by schedule
        #: and leaf
        self._new: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)

    def note(self, stored: StoredSchedule, leaf: int, partition: str, number: int) -> None:
        """Records that a partition arrives, for every job."""
        self._new[stored.id, leaf][partition] = number

    def noted(
        self,
        job: Job,
        stored: StoredSchedule,
        arrivals: Sequence[Arrivals],
        seen: Mapping[tuple[str, int], Set[str]],
    ) -> tuple[Arrivals, ...]:
        """Returns the arrivals of a job with scope, with the missing partitions of each such leaf.

        ``seen`` are partitions that leaves of open jobs have, in addition to those in the database.
        """
        if not any(leaf.needs_all for leaf in stored.leaves):
            return tuple(arrivals)
        noted = list(arrivals)
        before: dict[int, set[str]] | None = None
        for number, leaf in enumerate(stored.leaves):
            given = arrivals[number]
            if not leaf.needs_all:
                continue
            if given.required is not None and not leaf.source.complete:
                lacking = given.required - given.partitions
                if lacking > _NAMED:
                    # Listing the partitions costs more than everything else.
                    noted[number] = replace(given, lacking=lacking, missing=())
                    continue
            if before is None:
                before = self._partitions_of(job)
            have = before[number] | seen[job.id, number]
            noted[number] = self._of_leaf(job, stored, number, given, have)
        return tuple(noted)

    def _of_leaf(
        self, job: Job, stored: StoredSchedule, number: int, given: Arrivals, seen: Set[str]
    ) -> Arrivals:
        wanted = self._wanted(job, stored, number)
        if wanted is None:
            return given
        leaf = stored.leaves[number]
        asset = leaf.asset_of_partitions or ""
        missing = [key for key in wanted if key not in seen]
        if missing and leaf.source.complete:
            before = self._arrived(asset, missing) | self._new[stored.id, number].keys()
            before -= self._failing(job, stored, number, missing)
            missing = [key for key in missing if key not in before]
        return replace(
            given,
            required=len(wanted),
            lacking=len(missing),
            missing=tuple(missing) if len(missing) <= _NAMED else (),
        )

    def _failing(
        self, job: Job, stored: StoredSchedule, leaf: int, partitions: Sequence[str]
    ) -> Set[str]:
        """Returns the partitions among these whose last arrival waits for a check."""
        waits = self._unchecked(stored.id, leaf)
        failing = {key: waits[key] for key in partitions if key in waits}
        if not failing:
            return set()
        # A later arrival that counted replaces what failed.
        scope = str(job.scope)
        counted = last_counted(self._queue.tx, stored.id, scope, leaf, failing)
        new = self._new[stored.id, leaf]
        return {
            key
            for key, number in failing.items()
            if max(counted.get(key, 0), new.get(key, 0)) < number
        }

    def differing(self, job: Job, stored: StoredSchedule) -> list[int]:
        """Returns the leaves of a waiting job for which other partitions belong together now."""
        return [
            number
            for number, leaf in enumerate(stored.leaves)
            if leaf.needs_all
            and job.arrivals[number].required is not None
            and self._differs(job, stored, number)
        ]

    def read_ahead(self, differing: Sequence[tuple[Job, StoredSchedule, list[int]]]) -> None:
        """Reads what :meth:`counted_again` needs, in few statements for any number of jobs."""
        tx, col = self._queue.tx, job_events.c
        self._ahead = {job.id: defaultdict(set) for job, _, _ in differing}
        query = sa.select(col.job_id, col.leaf, col.partition).distinct()
        for id, number, key in tx.execute(query.where(dialect.among(tx, col.job_id, self._ahead))):
            self._ahead[id][number].add(key)
        wanted: dict[str, set[str]] = defaultdict(set)
        for job, stored, leaves in differing:
            for number in leaves:
                leaf = stored.leaves[number]
                if leaf.source.complete:
                    keys = set(self._wanted(job, stored, number) or ())
                    wanted[leaf.asset_of_partitions or ""] |= keys - self._ahead[job.id][number]
        found = {asset: set(self._arrived(asset, keys)) for asset, keys in wanted.items() if keys}
        self._arrived = lambda asset, keys: found.get(asset, set()) & set(keys)
        self._unchecked = cache(self._unchecked)

    def counted_again(
        self, job: Job, stored: StoredSchedule, leaves: Sequence[int]
    ) -> tuple[Arrivals, ...]:
        """Returns the arrivals of a waiting job that was read ahead, with some leaves counted."""
        counted, before = list(job.arrivals), self._partitions_of(job)
        for number in leaves:
            counted[number] = self._of_leaf(job, stored, number, counted[number], before[number])
        return tuple(counted)

    def _differs(self, job: Job, stored: StoredSchedule, number: int) -> bool:
        """Returns whether a leaf of a job waits for partitions that do not belong together now.

        Without a look-up: more missing partitions than a reason names are compared by their number.
        """
        given, wanted = job.arrivals[number], self._wanted(job, stored, number)
        if wanted is None:
            return False
        return len(wanted) != given.required or not set(given.missing) <= set(wanted)

    def _wanted(self, job: Job, stored: StoredSchedule, number: int) -> Sequence[str] | None:
        """Returns the partitions that belong together for a leaf of a job; None: not known."""
        leaf = stored.leaves[number]
        if job.scope is None or leaf.asset_of_partitions is None:
            return None
        # The code may have lost the job or a dimension, and a user's mapping may raise anything:
        # other schedules must go on.
        try:
            mapping = self._placing.map_of(stored, number)
            if mapping is None:
                return None
            return leaf.wanted_of(mapping.sources_of(job.scope, self._queue.now))
        except DatabaseUnavailable:
            # Without an answer the job would wait for ever: the next tick asks again.
            raise
        except Exception:
            return None

    def _partitions_of(self, job: Job) -> dict[int, set[str]]:
        """Returns the partitions that each leaf of a job has in the database."""
        if job.id in self._ahead:
            return self._ahead[job.id]
        found: dict[int, set[str]] = defaultdict(set)
        if self._queue.is_new(job):
            return found
        query = sa.select(job_events.c.leaf, job_events.c.partition).distinct()
        for leaf, partition in self._queue.tx.execute(query.where(job_events.c.job_id == job.id)):
            found[leaf].add(partition)
        return found


def count_again(
    queue: JobQueue, location: Location, store: ScheduleStore, targets: Targets, feed: LookedUpFeed
) -> int:
    """Evaluates the jobs that wait for all partitions, where the code defines others than before.

    A partition that was removed from the code never arrives. Returns how many jobs fired.
    """
    waiting = (
        (jobs.c.location_id == location.id)
        & (jobs.c.state == JobState.WAITING_TRIGGER.value)
        & jobs.c.scope.is_distinct_from(COMMON)
        & jobs.c.scope.is_not(None)
    )
    ids = queue.tx.execute(sa.select(jobs.c.schedule_id).where(waiting).distinct()).scalars()
    schedules = {
        id: stored
        for id, stored in store.by_ids(queue.tx, ids).items()
        if any(leaf.needs_all for leaf in stored.leaves)
    }
    if not schedules:
        return 0
    position = Position.from_json(location.position) if location.position else None
    missing = MissingPartitions(
        queue, Placing(targets, queue.now), partial(feed.arrived, position=position)
    )
    fired = 0
    of_these = dialect.among(queue.tx, jobs.c.schedule_id, list(schedules))
    differing = []
    for job in queue.load(waiting, of_these):
        stored = schedules[job.schedule_id]
        if leaves := missing.differing(job, stored):
            differing.append((job, stored, leaves))
    if differing:
        missing.read_ahead(differing)
    for job, stored, leaves in differing:
        arrivals = missing.counted_again(job, stored, leaves)
        if arrivals != job.arrivals:
            fired += evaluate_trigger(queue, job, stored, arrivals)
    queue.flush()
    return fired
