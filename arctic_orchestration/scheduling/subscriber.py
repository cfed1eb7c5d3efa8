"""Turns events and ticks of time into jobs, in the transaction that moves the feed position.

One event finds its schedules through the reverse index and joins the one job of each that
still takes events, or begins one. When a job's trigger is satisfied it goes on to its
constraints; with ``partitions: each`` it becomes a job for each partition.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from arctic_orchestration.database import dialect
from arctic_orchestration.database.tables import (
    events as event_rows,
)
from arctic_orchestration.database.tables import (
    is_waiting,
    job_events,
    jobs,
    schedule_keys,
)
from arctic_orchestration.events.event import Event, EventKind
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.scheduling import timers
from arctic_orchestration.scheduling.clock_change import told
from arctic_orchestration.scheduling.firing import ask_trigger
from arctic_orchestration.scheduling.jobs import Job, JobState
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.queue import JobQueue
from arctic_orchestration.scheduling.store import ScheduleStore, StoredSchedule
from arctic_orchestration.triggers import Arrivals
from arctic_orchestration.triggers.base import NOTHING

#: the least that two moments differ by
_INSTANT = timedelta(microseconds=1)
_EVENT_COLUMNS = (
    "location_id",
    "number",
    "kind",
    "subject",
    "partition",
    "at",
    "taken_at",
    "details",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Match:
    """An event that a leaf of a schedule takes."""

    event: Event
    stored: StoredSchedule
    leaf: int


class Subscriber:
    """Gives events to the jobs of one location, within one transaction."""

    def __init__(
        self, tx: sa.Connection, location: Location, store: ScheduleStore, queue: JobQueue
    ) -> None:
        self._tx = tx
        self._location = location
        self._store = store
        self._queue = queue
        self._now = queue.now
        #: the job of each schedule that takes events
        self._open: dict[str, Job] = {}
        #: the arrivals of open jobs with those of this transaction
        self._arrivals: dict[str, list[Arrivals]] = {}
        #: partitions each leaf of an open job has seen, as far as this transaction asked
        self._seen: dict[tuple[str, int], set[str]] = defaultdict(set)
        #: schedules and leaves whose timers an event let begin anew
        self._restarted: dict[tuple[str, int], tuple[StoredSchedule, datetime]] = {}
        self._matched = 0
        self._fired = 0
        #: the number of the location's next event; the caller stores it with the position
        self.next_event = location.next_event

    def take(self, found: Sequence[Event], *, more: bool, last: bool) -> dict[str, int]:
        """Gives events, and then the ticks that are due, to jobs; returns counts.

        Args:
            found: the events, in their order.
            more: these are not the last before now: time is then judged as of the last of them,
                and ticks wait until all were read;
            last: but not for ever: this is the last reading of a tick.
        """
        until = told(found[-1].at, self._now) if more and found else self._now
        matches = self._match(found)
        self._give_all(matches, until)
        if more and not last:
            return {"matched": self._matched, "fired": self._fired}
        # An event may have let a timer begin anew that was due.
        due = timers.due(self._tx, self._location, self._store, self._now)
        if due:
            self._queue.flush()
            ticks = [
                _Match(
                    event=Event(kind=EventKind.TICK, subject=stored.name, at=at),
                    stored=stored,
                    leaf=leaf,
                )
                for stored, leaf, at in due
            ]
            self._give_all(ticks, until)
        return {"matched": self._matched, "fired": self._fired}

    def _give_all(self, matches: Sequence[_Match], until: datetime) -> None:
        self._load(matches)
        self._number(matches, until)
        timers.restart(
            self._tx, [(of, leaf, at) for (_, leaf), (of, at) in self._restarted.items()]
        )
        self._restarted.clear()

    def _match(self, found: Sequence[Event]) -> list[_Match]:
        by_key = defaultdict(list)
        keys = {str(key) for event in found for key in event.keys}
        if not keys:
            return []
        query = _takers(self._tx.dialect.name)
        wanted = {
            "here": self._location.id,
            "keys": dialect.given(self._tx, sorted(keys)),
        }
        for row in self._tx.execute(query, wanted):
            by_key[row.event_key].append((row.schedule_id, row.leaf))
        if not by_key:
            return []
        ids = {id for pairs in by_key.values() for id, _ in pairs}
        stored = self._store.by_ids(self._tx, ids)
        matches: list[_Match] = []
        for event in found:
            taken: set[tuple[str, int]] = set()
            first = len(matches)
            for key in event.keys:
                for id, leaf in by_key.get(str(key), ()):
                    schedule = stored.get(id)
                    # A run of several assets has a key for each; a leaf takes the run once.
                    if schedule is None or (id, leaf) in taken:
                        continue
                    since = schedule.counts_from
                    if since is not None and event.at < since:
                        continue
                    if schedule.takes_events and _takes(schedule, leaf, event):
                        taken.add((id, leaf))
                        matches.append(_Match(event=event, stored=schedule, leaf=leaf))
            matches[first:] = sorted(matches[first:], key=lambda m: (m.stored.id, m.leaf))
        return matches

    def _load(self, matches: Sequence[_Match]) -> None:
        self._open, self._seen = {}, defaultdict(set)
        ids = sorted({match.stored.id for match in matches})
        if not ids:
            return
        backend = self._tx.dialect.name
        wanted = {"schedules": dialect.given(self._tx, ids)}
        found = self._queue.load(query=_open_jobs(backend), given=wanted)
        self._open = {job.schedule_id: job for job in found}
        if not found:
            return
        partitions = {_partition(match.event) for match in matches}
        seen = {
            "jobs": dialect.given(self._tx, [job.id for job in found]),
            "partitions": dialect.given(self._tx, sorted(partitions)),
        }
        for row in self._tx.execute(_partitions_seen(backend), seen):
            self._seen[row.job_id, row.leaf].add(row.partition)

    def _number(self, matches: Sequence[_Match], until: datetime) -> None:
        """Stores each event once, under the location's next number, and gives it to its jobs."""
        number = self.next_event
        rows: list[tuple[Any, ...]] = []
        numbers: dict[int, int] = {}
        before: Event | None = None
        for match, following in itertools.zip_longest(matches, matches[1:]):
            event = match.event
            if id(event) not in numbers:
                numbers[id(event)] = number
                details = to_json(event.to_json()).decode()
                rows.append(
                    (
                        self._location.id,
                        number,
                        event.kind.value,
                        event.subject,
                        event.partition,
                        event.at,
                        self._now,
                        details,
                    )
                )
                number += 1
            stored, at = match.stored, told(event.at, self._now)
            if not stored.takes_more and event is not before:
                # It may have fired by time alone before this event came.
                self._settle(stored, at - _INSTANT)
            self._give(match, numbers[id(event)], at)
            before = event
            # Where each firing is a job, each event is asked about once all leaves have it.
            same = following is not None and (
                following.event is event and following.stored.id == stored.id
            )
            if not stored.takes_more and not same:
                self._settle(stored, at)
        for stored in {match.stored.id: match.stored for match in matches}.values():
            self._settle(stored, until)
        if rows:
            dialect.insert_rows(self._tx, event_rows, _EVENT_COLUMNS, rows)
            self.next_event = number

    def _give(self, match: _Match, number: int, at: datetime) -> None:
        stored, event = match.stored, match.event
        job = self._open.get(stored.id) or self._begin(stored)
        self._open[stored.id] = job
        arrivals = self._arrivals.setdefault(job.id, list(job.arrivals))
        partition, seen = _partition(event), self._seen[job.id, match.leaf]
        before = arrivals[match.leaf]
        # Ticks of time are about no partition, as are the arrivals of an unpartitioned asset.
        is_new = partition not in seen or before.partitions == 0
        # What happened while nothing ticked counts from when it happened.
        taken = before.with_event(event, new_partition=is_new, at=at)
        arrivals[match.leaf] = self._noted(match, before, taken, at)
        seen.add(partition)
        self._queue.attach(job, match.leaf, number, partition)
        if event.problem is not None:
            self._queue.remark(job, f"{event.subject} {event.partition or ''}: {event.problem}")
        self._matched += 1

    def _noted(self, match: _Match, before: Arrivals, taken: Arrivals, at: datetime) -> Arrivals:
        """The arrivals of a leaf, with what its own answer to them is needed for."""
        stored, leaf = match.stored, match.stored.leaves[match.leaf]
        try:
            if match.event.kind is not EventKind.TICK and leaf.restarts_at(taken, at):
                # An event that is told late does not set the time back.
                self._restarted[stored.id, match.leaf] = stored, taken.last_at or at
            if stored.notes_firings and taken.fired_at is None:
                # It may have fired by time alone before this event came.
                earlier = leaf.evaluate((before,), at) if before.events else None
                if earlier is not None and earlier.satisfied:
                    return replace(taken, fired_at=earlier.first_at or at)
                if leaf.evaluate((taken,), at).satisfied:
                    return replace(taken, fired_at=at)
        except Exception:
            # What cannot be decided is said when the whole trigger is asked.
            return taken
        return taken

    def _begin(self, stored: StoredSchedule) -> Job:
        return self._queue.add(
            Job(
                id=new_id(self._now),
                location_id=self._location.id,
                schedule_id=stored.id,
                schedule_version=stored.version,
                state=JobState.WAITING_TRIGGER,
                reason="its first event has arrived",
                waiting_for="",
                arrivals=(NOTHING,) * len(stored.leaves),
                priority=stored.schedule.priority,
                created_at=self._now,
                next_check_at=self._now + stored.schedule.timeout,
                deadline_at=self._now + stored.schedule.timeout,
            )
        )

    def _settle(self, stored: StoredSchedule, at: datetime) -> None:
        """Asks the trigger of an open job that has new events, as of a moment."""
        job = self._open.get(stored.id)
        if job is None:
            return
        given = self._arrivals.pop(job.id, None)
        arrivals = job.arrivals if given is None else tuple(given)
        if job.state is JobState.WAITING_CONSTRAINTS:
            self._queue.change(job, arrivals=arrivals)
            return
        if ask_trigger(self._queue, job, stored, arrivals, at):
            self._fired += 1
            del self._open[stored.id]
        else:
            self._open[stored.id] = self._queue.current(job)


@cache
def _takers(backend: str) -> sa.Select[Any]:
    """Schedules and leaves that take events with one of the keys."""
    return sa.select(
        schedule_keys.c.event_key, schedule_keys.c.schedule_id, schedule_keys.c.leaf
    ).where(
        schedule_keys.c.location_id == sa.bindparam("here"),
        dialect.among_given(backend, schedule_keys.c.event_key, "keys"),
    )


@cache
def _open_jobs(backend: str) -> sa.Select[Any]:
    """The jobs of schedules that still take events."""
    return sa.select(jobs).where(
        dialect.among_given(backend, jobs.c.schedule_id, "schedules"),
        jobs.c.waiting_for == "",
        is_waiting,
    )


@cache
def _partitions_seen(backend: str) -> sa.Select[Any]:
    """Which of some partitions the leaves of jobs have seen."""
    return sa.select(job_events.c.job_id, job_events.c.leaf, job_events.c.partition).where(
        dialect.among_given(backend, job_events.c.job_id, "jobs"),
        dialect.among_given(backend, job_events.c.partition, "partitions"),
    )


def _takes(stored: StoredSchedule, leaf: int, event: Event) -> bool:
    # One schedule's bad rule must not stop the others; and an arrival is not lost by it.
    try:
        return stored.leaves[leaf].takes(event)
    except Exception:
        return True


def _partition(event: Event) -> str:
    """The partition an event is about; of a run, the one it was for; empty: none."""
    return event.partition or event.tags.get("dagster/partition", "")
