"""Counts missing partitions for triggers that wait for all partitions that belong together."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

import sqlalchemy as sa

from arctic_orchestration.schedules.deferred_arrivals import unchecked
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import Job
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.target_partitions import Placing
from arctic_orchestration.schedules.triggers import Arrivals
from arctic_orchestration.state.tables import job_events

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
        #: partitions that arrived in this transaction, by schedule and leaf
        self._new: dict[tuple[str, int], set[str]] = defaultdict(set)

    def note(self, stored: StoredSchedule, leaf: int, partition: str) -> None:
        """Records that a partition arrives, for every job."""
        self._new[stored.id, leaf].add(partition)

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
        leaf = stored.leaves[number]
        mapping = self._placing.map_of(stored, number)
        if mapping is None or job.scope is None or leaf.asset_of_partitions is None:
            return given
        asset = leaf.asset_of_partitions
        # A user-defined mapping may raise anything; other schedules must go on.
        try:
            sources = mapping.sources_of(job.scope, self._queue.now)
        except Exception:
            return given
        wanted = leaf.wanted_of(sources)
        missing = [key for key in wanted if key not in seen]
        if missing and leaf.source.complete:
            before = self._arrived(asset, missing) | self._new[stored.id, number]
            # An arrival that waits for a check does not count.
            before -= unchecked(self._queue.tx, stored.id, number)
            missing = [key for key in missing if key not in before]
        return replace(
            given,
            required=len(wanted),
            lacking=len(missing),
            missing=tuple(missing) if len(missing) <= _NAMED else (),
        )

    def _partitions_of(self, job: Job) -> dict[int, set[str]]:
        """Returns the partitions that each leaf of a job has in the database."""
        found: dict[int, set[str]] = defaultdict(set)
        if self._queue.is_new(job):
            return found
        query = sa.select(job_events.c.leaf, job_events.c.partition).distinct()
        for leaf, partition in self._queue.tx.execute(query.where(job_events.c.job_id == job.id)):
            found[leaf].add(partition)
        return found
