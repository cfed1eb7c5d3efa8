"""Turns events and ticks of time into jobs, in the transaction that moves the feed position.

An event finds its schedules through the reverse index. In each schedule it joins the job that still
takes events, or starts one; with ``partitions: each`` or ``range`` one for each target partition of
the event: :mod:`.target_partitions`. A job whose trigger is satisfied goes on to its constraints.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import ArrivalLookup, Position
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.schedules import target_partitions, timers
from arctic_orchestration.schedules.arrival_rules import CountedArrivals
from arctic_orchestration.schedules.clock_jumps import not_in_future
from arctic_orchestration.schedules.deferred_arrivals import (
    defer,
    replace_waiting,
    take_checked,
    take_deferred,
)
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import COMMON, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.missing_partitions import MissingPartitions
from arctic_orchestration.schedules.open_jobs import OpenJobs, slot_of
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.taken_events import store_events
from arctic_orchestration.schedules.target_partitions import (
    Match,
    Placing,
    TooManyRows,
    partition_of,
)
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.schedules.trigger_evaluation import evaluate_trigger, note_fired
from arctic_orchestration.schedules.triggers import Arrivals
from arctic_orchestration.schedules.triggers.base import NOTHING
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import schedule_keys

_KEPT = "it keeps what concerns every partition of the target, for those that begin later"
#: the smallest difference between two moments
_INSTANT = timedelta(microseconds=1)


class Subscriber:
    """Gives events to the jobs of one location, within one transaction."""

    def __init__(
        self,
        tx: sa.Connection,
        location: Location,
        store: ScheduleStore,
        queue: JobQueue,
        arrivals: ArrivalLookup,
        before: Position,
        targets: Targets | None = None,
        *,
        at_once: int | None = None,
    ) -> None:
        """Starts from the state in the location's row.

        Args:
            tx: the transaction that locked the location.
            location: the locked location.
            store: the schedules.
            queue: the jobs of this transaction.
            arrivals: looks up facts about arrivals that their events lack.
            before: the position before these events.
            targets: the code location; None: arrivals to be mapped to partitions of a target wait
                for the next tick that has it.
            at_once: the number of events that were read at most; None: they may write any number
                of rows.
        """
        self._at_once = at_once
        self._tx = tx
        self._location = location
        self._store = store
        self._queue = queue
        self._now = queue.now
        self._placing = Placing(targets, self._now)
        self._waiting = OpenJobs(queue)
        self._counted = CountedArrivals(arrivals, targets, partial(replace_waiting, tx))
        arrived = partial(arrivals.arrived, position=before)
        self._missing = MissingPartitions(queue, self._placing, arrived)
        #: the arrivals of open jobs, including those of this transaction
        self._arrivals: dict[str, list[Arrivals]] = {}
        #: schedules and leaves whose timers an event restarts
        self._restarted: dict[tuple[str, int], tuple[StoredSchedule, datetime]] = {}
        self._given = False
        #: the last event, schedule and scope
        self._before: tuple[int, str, str | None] | None = None
        self._matched = 0
        self._fired = 0
        self._deferred = 0
        #: the number of the location's next event; the caller stores it with the position
        self.next_event = location.next_event

    def take(self, found: Sequence[Event], *, more: bool, last: bool) -> dict[str, int]:
        """Gives events, and then the ticks that are due, to jobs; returns counts.

        Args:
            found: the events, in their order.
            more: events from before now are still unread: time is then evaluated as of the last
                event given, and ticks wait until all were read.
            last: this is the last reading of a tick: ticks no longer wait.

        Errors:
            TooManyRows: fewer events must be read at once.
        """
        until = not_in_future(found[-1].at, self._now) if more and found else self._now
        if self._placing.is_loaded:
            # A command, which has no code, read these events earlier.
            self._give_all(take_deferred(
                self._tx, self._location, self._store, limit=self._at_once
            ), until)  # fmt: skip
        matches = self._match(found)
        checked = [event for event in found if event.kind is EventKind.CHECK]
        if checked:
            matches = take_checked(self._tx, self._location, self._store, checked) + matches
        self._give_all(matches, until)
        if more and not last:
            return self._counts
        # An event may have restarted a timer that was due.
        due = timers.due(self._tx, self._location, self._store, self._now, self._placing)
        if due:
            ticks = [
                Match(
                    event=Event(kind=EventKind.TICK, subject=stored.name, at=at),
                    stored=stored,
                    leaf=leaf,
                )
                for stored, leaf, at in due
            ]
            self._give_all(ticks, until)
        return self._counts

    @property
    def _counts(self) -> dict[str, int]:
        counts = {"matched": self._matched, "fired": self._fired}
        return {**counts, "deferred": self._deferred} if self._deferred else counts

    def _give_all(self, matches: Sequence[Match], until: datetime) -> None:
        if not matches:
            return
        if self._given:
            # Jobs of the earlier events are read again.
            self._queue.flush()
        self._given = True
        counted, waiting = self._counted.sort(matches)
        placed, deferred = self._placing.place(counted, at_once=self._at_once)
        deferred += waiting
        # Of two arrivals of a partition the later one has the larger number.
        taken = [*counted, *(one.match for one in waiting)]
        numbers = self._number(sorted(taken, key=lambda match: match.event.storage_id))
        defer(
            self._tx,
            self._location,
            [(one, numbers[id(one.match.event)]) for one in deferred],
            self._now,
        )
        self._deferred += len(deferred)
        self._waiting.load(placed)
        given = 0
        for match, following in itertools.zip_longest(placed, placed[1:]):
            self._give_one(match, following, numbers[id(match.event)])
            if following is None or following.event is match.event:
                continue
            given += 1
            is_full = self._queue.attached > target_partitions.ROWS_AT_ONCE
            if (at_once := self._at_once or 1) > 1 and is_full:
                raise TooManyRows(min(given, at_once // 2))
        concerned = {(match.stored.id, match.scope): match.stored for match in placed}
        for (_, scope), stored in concerned.items():
            self._evaluate_all(stored, scope, until)
        timers.restart(
            self._tx, [(of, leaf, at) for (_, leaf), (of, at) in self._restarted.items()]
        )
        self._restarted.clear()

    def _match(self, found: Sequence[Event]) -> list[Match]:
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
        matches: list[Match] = []
        for event in found:
            taken: set[tuple[str, int]] = set()
            first = len(matches)
            for key in event.keys:
                for id, leaf in by_key.get(str(key), ()):
                    schedule = stored.get(id)
                    # A run of several assets has a key for each; a leaf takes the run once.
                    if schedule is None or (id, leaf) in taken:
                        continue
                    if schedule.counts(event) and _takes(schedule, leaf, event):
                        taken.add((id, leaf))
                        matches.append(Match(event=event, stored=schedule, leaf=leaf))
            matches[first:] = sorted(matches[first:], key=lambda m: (m.stored.id, m.leaf))
        return matches

    def _number(self, matches: Sequence[Match]) -> dict[int, int]:
        numbers, self.next_event = store_events(
            self._tx, self._location, matches, self.next_event, self._now
        )
        return numbers

    def _give_one(self, match: Match, following: Match | None, number: int) -> None:
        """Gives an event to the jobs of its scope; evaluates triggers if each firing is a job."""
        stored, scope, at = match.stored, match.scope, not_in_future(match.event.at, self._now)
        this = (id(match.event), stored.id, scope)
        if not stored.takes_more and this != self._before:
            # Time alone may have fired it before this event came.
            self._evaluate_all(stored, scope, at - _INSTANT)
        if scope == COMMON:
            if match.leaf in stored.kept:
                self._add(self._waiting.get(stored, COMMON) or self._begin(stored, COMMON), match,
                          number, at)  # fmt: skip
                self._waiting.keep(stored, match.leaf, number, match.event)
            for job in self._waiting.scoped(stored):
                self._add(job, match, number, at)
        elif not self._is_over(match):
            job = self._waiting.get(stored, scope) or self._begin(stored, scope)
            self._add(job, match, number, at)
        self._before = this
        # If each firing is a job, an event is evaluated once all leaves have it.
        same = following is not None and this == (
            id(following.event), following.stored.id, following.scope
        )  # fmt: skip
        if not stored.takes_more and not same:
            self._evaluate_all(stored, scope, at)

    def _is_over(self, match: Match) -> bool:
        """Returns whether an event is too late for a target partition that has run."""
        if match.scope is None or self._waiting.fired(match.stored, match.scope) is None:
            return False
        leaf = match.stored.leaves[match.leaf]
        ended = leaf.clock is not None and leaf.clock.partition == "ended"
        job = self._waiting.get(match.stored, match.scope)
        joins = job is not None and job.state is JobState.WAITING_CONSTRAINTS
        return ended or (leaf.source.ignores_late and not joins)

    def _add(self, job: Job, match: Match, number: int, at: datetime) -> None:
        """Adds an event to a job."""
        event = match.event
        arrivals = self._arrivals.setdefault(job.id, list(job.arrivals))
        partition, seen = partition_of(event), self._waiting.seen[job.id, match.leaf]
        before = arrivals[match.leaf]
        # An event about no partition counts each time. Ticks of time are no partitions.
        is_new = not partition or partition not in seen
        # An event from a time without ticks counts from its own moment.
        scoped, late = match.scope is not None, False
        if match.scope is not None and match.scope != COMMON:
            fired = self._waiting.fired(match.stored, match.scope)
            late = fired is not None and job.state is JobState.WAITING_TRIGGER
        taken = before.with_event(
            event, new_partition=is_new, at=at, number=number if scoped else 0, late=late
        )
        arrivals[match.leaf] = self._noted(match, before, taken, at)
        seen.add(partition)
        self._missing.note(match.stored, match.leaf, partition, number)
        self._queue.attach(job, match.leaf, number, partition)
        if event.kind is EventKind.REQUEST:
            self._queue.change(job, partition_start=event.partition, partition_end=event.partition)
        if match.leaf == 0 and match.stored.schedule.trigger.begins_with_tick:
            # What arrived before the tick waits for it without a timeout.
            deadline = self._now + match.stored.schedule.timeout
            check_at = deadline if job.state is JobState.WAITING_TRIGGER else job.next_check_at
            self._queue.change(job, deadline_at=deadline, next_check_at=check_at)
            self._waiting.renew(job)
        if event.problem is not None:
            self._queue.remark(job, f"{event.subject} {event.partition or ''}: {event.problem}")
        self._matched += 1

    def _noted(self, match: Match, before: Arrivals, taken: Arrivals, at: datetime) -> Arrivals:
        """Returns the arrivals of a leaf, with the facts that its evaluation needs."""
        stored, leaf = match.stored, match.stored.leaves[match.leaf]
        try:
            if match.event.kind is not EventKind.TICK and leaf.restarts_at(taken, at):
                # A late event does not move the time back.
                self._restarted[stored.id, match.leaf] = stored, taken.last_at or at
            if stored.notes_firings and taken.fired_at is None:
                # Time alone may have fired it before this event came.
                earlier = leaf.evaluate((before,), at) if before.events else None
                if earlier is not None and earlier.satisfied:
                    return replace(taken, fired_at=earlier.first_at or at)
                if leaf.evaluate((taken,), at).satisfied:
                    return replace(taken, fired_at=at)
        except Exception:
            # An error is reported when the whole trigger is evaluated.
            return taken
        return taken

    def _begin(self, stored: StoredSchedule, scope: str | None) -> Job:
        """Starts a waiting job; one of a target partition gets the common events."""
        is_group = stored.schedule.partitions == "none"
        own = None if scope is None or scope == COMMON else scope
        # A partition waits for arrivals of its window at least until the window ends.
        ends_at = None if own is None else self._placing.ends_at(stored, own)
        deadline = None
        if scope != COMMON and not stored.schedule.trigger.begins_with_tick:
            deadline = max(self._now, ends_at or self._now) + stored.schedule.timeout
        job = self._waiting.add(
            Job(
                id=new_id(self._now),
                location_id=self._location.id,
                schedule_id=stored.id,
                schedule_version=stored.version,
                state=JobState.WAITING_TRIGGER,
                reason=_KEPT if scope == COMMON else "its first event has arrived",
                waiting_for=slot_of(scope),
                arrivals=(NOTHING,) * len(stored.leaves),
                priority=stored.schedule.priority,
                created_at=self._now,
                scope=scope,
                partition_start=None if is_group else own,
                partition_end=None if is_group else own,
                next_check_at=deadline,
                deadline_at=deadline,
            )
        )
        if own is not None:
            fired = self._waiting.fired(stored, own)
            for leaf, number, event in self._waiting.kept(stored):
                if fired is None or number > fired.common_number:
                    common = Match(event=event, stored=stored, leaf=leaf, scope=COMMON)
                    self._add(job, common, number, not_in_future(event.at, self._now))
        return job

    def _evaluate_all(self, stored: StoredSchedule, scope: str | None, at: datetime) -> None:
        """Evaluates the triggers of the jobs that an event concerned."""
        if scope != COMMON:
            self._evaluate(stored, self._waiting.get(stored, scope), at)
            return
        pool = self._waiting.get(stored, COMMON)
        if pool is not None and (arrivals := self._arrivals.pop(pool.id, None)) is not None:
            self._queue.change(pool, arrivals=tuple(arrivals))
            self._waiting.renew(pool)
        for job in self._waiting.scoped(stored):
            self._evaluate(stored, job, at)

    def _evaluate(self, stored: StoredSchedule, job: Job | None, at: datetime) -> None:
        """Evaluates the trigger of an open job with new events, as of a moment."""
        if job is None:
            return
        given = self._arrivals.pop(job.id, None)
        arrivals = job.arrivals if given is None else tuple(given)
        if job.state is JobState.WAITING_CONSTRAINTS:
            self._queue.change(job, arrivals=arrivals)
            if given is not None and job.scope is not None:
                note_fired(self._queue, job, stored, arrivals, job.satisfied_at or self._now)
            self._waiting.renew(job)
            return
        if given is not None and job.scope is not None:
            arrivals = self._missing.noted(job, stored, arrivals, self._waiting.seen)
        if evaluate_trigger(self._queue, job, stored, arrivals, at):
            self._fired += 1
            self._waiting.close(job, self._queue.current(job), stored)
        else:
            self._waiting.renew(job)


@cache
def _takers(backend: str) -> sa.Select[Any]:
    """Returns the schedules and leaves that take events with one of the keys."""
    return sa.select(
        schedule_keys.c.event_key, schedule_keys.c.schedule_id, schedule_keys.c.leaf
    ).where(
        schedule_keys.c.location_id == sa.bindparam("here"),
        dialect.among_given(backend, schedule_keys.c.event_key, "keys"),
    )


def _takes(stored: StoredSchedule, leaf: int, event: Event) -> bool:
    # A broken rule of one schedule must not stop the others, and must not lose an arrival.
    try:
        return stored.leaves[leaf].takes(event)
    except Exception:
        return True
