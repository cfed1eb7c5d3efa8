"""The jobs that take the events of one transaction."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.schedules import fired_partitions
from arctic_orchestration.schedules.fired_partitions import Fired
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import COMMON, Job
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.target_partitions import Match, partition_of
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import event_of_job, events, is_waiting, job_events, jobs


def slot_of(scope: str | None) -> str:
    """Returns the value of ``waiting_for`` of the waiting job of a scope."""
    if scope is None:
        return ""
    return COMMON if scope == COMMON else f"{_SLOT}{scope}"


class OpenJobs:
    """The waiting jobs of schedules by scope, and the events counted for each scope before."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._tx = queue.tx
        #: by schedule, then by scope
        self._jobs: dict[str, dict[str | None, Job]] = defaultdict(dict)
        self._fired: dict[tuple[str, str], Fired] = {}
        self._kept: dict[str, list[tuple[int, int, Event]]] = {}
        #: partitions of each leaf of an open job, as far as this transaction has read them
        self.seen: dict[tuple[str, int], set[str]] = defaultdict(set)

    def load(self, matches: Sequence[Match]) -> None:
        """Reads the jobs that some events concern."""
        self._jobs, self.seen = defaultdict(dict), defaultdict(set)
        self._fired, self._kept = {}, {}
        if not matches:
            return
        backend = self._tx.dialect.name
        whole = {match.stored.id for match in matches}
        found = self._load(_whole(backend), whole)
        scopes = {
            (match.stored.id, match.scope)
            for match in matches
            if match.scope is not None and match.scope != COMMON
        }
        common = {match.stored.id for match in matches if match.scope == COMMON}
        if common:
            found += self._load(_scoped(backend), common)
        if scopes:
            given = {
                "schedules": dialect.given(self._tx, sorted({id for id, _ in scopes})),
                "slots": dialect.given(self._tx, sorted({slot_of(scope) for _, scope in scopes})),
            }
            # Jobs split from another job know their partition only by their slot.
            found += [
                job if job.scope else self._queue.change(job, scope=str(job.partition_start))
                for job in self._queue.load(query=_slots(backend), given=given)
            ]
            self._fired = fired_partitions.fired(self._tx, scopes)
            # A partition that begins to wait takes over the common events.
            pools = {job.schedule_id: job for job in found if job.scope == COMMON}
            self._kept = self._events_of(pools.values())
        for job in found:
            self._jobs[job.schedule_id][job.scope] = job
        if found:
            partitions = {partition_of(match.event) for match in matches}
            seen = {
                "jobs": dialect.given(self._tx, sorted({job.id for job in found})),
                "partitions": dialect.given(self._tx, sorted(partitions)),
            }
            for row in self._tx.execute(_partitions_seen(backend), seen):
                self.seen[row.job_id, row.leaf].add(row.partition)

    def get(self, stored: StoredSchedule, scope: str | None) -> Job | None:
        """Returns the job of a scope that takes events, or None."""
        return self._jobs[stored.id].get(scope)

    def scoped(self, stored: StoredSchedule) -> list[Job]:
        """Returns the waiting jobs of all target partitions."""
        found = self._jobs[stored.id]
        return [job for scope, job in found.items() if scope is not None and scope != COMMON]

    def add(self, job: Job) -> Job:
        """Adds a new job."""
        self._jobs[job.schedule_id][job.scope] = job
        return self._queue.add(job)

    def renew(self, job: Job) -> None:
        """Replaces a job by the transaction's current version of it."""
        self._jobs[job.schedule_id][job.scope] = self._queue.current(job)

    def close(self, job: Job, fired: Job, stored: StoredSchedule) -> None:
        """Records that a job has fired; it takes no more events unless its schedule says so."""
        del self._jobs[job.schedule_id][job.scope]
        if job.scope is not None:
            earlier = self._fired.get((job.schedule_id, job.scope))
            number = max(
                stored.common_number(fired.arrivals), earlier.common_number if earlier else 0
            )
            at = fired.satisfied_at or self._queue.now
            self._fired[job.schedule_id, job.scope] = Fired(at=at, common_number=number)
            if fired.waiting_for is not None:
                self._jobs[job.schedule_id][job.scope] = fired

    def fired(self, stored: StoredSchedule, scope: str) -> Fired | None:
        """Returns the last firing of the schedule for a scope."""
        return self._fired.get((stored.id, scope))

    def kept(self, stored: StoredSchedule) -> Sequence[tuple[int, int, Event]]:
        """Returns the common events, for every partition of the target: leaf, number and event."""
        return self._kept.get(stored.id, ())

    def keep(self, stored: StoredSchedule, leaf: int, number: int, event: Event) -> None:
        """Adds a common event, for every partition of the target."""
        self._kept.setdefault(stored.id, []).append((leaf, number, event))

    def _load(self, query: sa.Select[Any], schedules: Iterable[str]) -> list[Job]:
        given = {"schedules": dialect.given(self._tx, sorted(schedules))}
        return self._queue.load(query=query, given=given)

    def _events_of(self, pools: Iterable[Job]) -> dict[str, list[tuple[int, int, Event]]]:
        kept: dict[str, list[tuple[int, int, Event]]] = {}
        for pool in pools:
            query = (
                sa.select(job_events.c.leaf, job_events.c.number, events.c.details)
                .join(events, event_of_job)
                .where(job_events.c.job_id == pool.id)
                .order_by(job_events.c.number)
            )
            kept[pool.schedule_id] = [
                (row.leaf, row.number, Event.parse(row.details)) for row in self._tx.execute(query)
            ]
        return kept


_SLOT = "partition:"


@cache
def _whole(backend: str) -> sa.Select[Any]:
    """Returns the waiting jobs of some schedules without a target partition."""
    return sa.select(jobs).where(
        dialect.among_given(backend, jobs.c.schedule_id, "schedules"),
        jobs.c.waiting_for.in_(["", COMMON]),
        is_waiting,
    )


@cache
def _scoped(backend: str) -> sa.Select[Any]:
    """Returns the waiting jobs of the target partitions of some schedules."""
    return sa.select(jobs).where(
        dialect.among_given(backend, jobs.c.schedule_id, "schedules"),
        jobs.c.waiting_for.startswith(_SLOT, autoescape=True),
        is_waiting,
    )


@cache
def _slots(backend: str) -> sa.Select[Any]:
    """Returns the waiting jobs of some scopes of some schedules."""
    return sa.select(jobs).where(
        dialect.among_given(backend, jobs.c.schedule_id, "schedules"),
        dialect.among_given(backend, jobs.c.waiting_for, "slots"),
        is_waiting,
    )


@cache
def _partitions_seen(backend: str) -> sa.Select[Any]:
    """Returns the partitions among some that the leaves of jobs have."""
    return sa.select(job_events.c.job_id, job_events.c.leaf, job_events.c.partition).where(
        dialect.among_given(backend, job_events.c.job_id, "jobs"),
        dialect.among_given(backend, job_events.c.partition, "partitions"),
    )
