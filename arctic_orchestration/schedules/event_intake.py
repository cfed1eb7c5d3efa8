"""Reads the event log on, and gives what it finds to jobs, within one transaction.

A tick of the engine does it again and again. Whoever changes schedules does it first: then the
change concerns what comes later, and everything before it counts for the schedules as they were.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.errors import ConfigurationError, DatabaseUnavailable, LogWentBack
from arctic_orchestration.event_log.feed import Feed, LookedUpFeed, Position
from arctic_orchestration.event_log.narrowing import Narrowing
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import JobMove
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.runs import RunLookup, RunTracker
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.subscriber import Subscriber
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.database import Database

#: events read and stored in one transaction
EVENTS_AT_ONCE = 4_000


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one reading did: counts by name, and where it ended."""

    location: Location
    position: Position
    #: whether reading again at once may find more
    more: bool
    counts: Counter[str] = field(default_factory=Counter)
    moves: Sequence[JobMove] = ()
    #: how long each event was on its way
    lags: Sequence[timedelta] = ()
    #: runs to end: their jobs were canceled before they were seen
    unwanted: Sequence[str] = ()
    #: runs whose end was read
    ended: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class CaughtUp:
    """What followed from the events before a change."""

    moves: Sequence[JobMove] = ()
    #: runs to end: their jobs were canceled before they were seen
    unwanted: Sequence[str] = ()


def begin(tx: sa.Connection, location: Location, feed: Feed) -> Reading:
    """Sets a locked location to the end of the log."""
    position = feed.end()
    locations.update(tx, location, position=position.to_json())
    location = replace(location, position=position.to_json())
    return Reading(location=location, position=position, more=False)


def read(
    tx: sa.Connection,
    location: Location,
    feed: LookedUpFeed,
    lookup: RunLookup,
    store: ScheduleStore,
    now: datetime,
    narrowing: Narrowing,
    *,
    last: bool = False,
    ticks: bool = True,
    targets: Targets | None = None,
) -> Reading:
    """Reads some events of a locked location that has a position, and stores what follows.

    Args:
        tx: the transaction that locked the location.
        location: it.
        feed: the event log.
        lookup: where runs are looked up.
        store: the schedules.
        now: the moment.
        narrowing: how many at once.
        last: ticks of time wait for what happened before them, but for this reading.
        ticks: whether ticks of time that are due are given to jobs, too.
        targets: the code location; none: what is to be mapped to partitions of a target waits
            for the next tick that has it.
    """
    before = Position.from_json(location.position or "")
    try:
        batch = feed.read(before, narrowing.limit)
    except LogWentBack as error:
        raise _asked(location, error) from error
    events, aside = narrowing.begin(batch.events)
    unreadable_events.set_aside(tx, location.cluster, f"location {location.name}", aside, now)
    queue = JobQueue(tx, now)
    tracker = RunTracker(queue, location, lookup)
    tracker.note(events)
    subscriber = Subscriber(tx, location, store, queue, feed, before, targets)
    counts = Counter(subscriber.take(events, more=batch.more or not ticks, last=last and ticks))
    counts.update(events=len(events), unreadable=len(aside))
    queue.flush()
    if batch.position != before or subscriber.next_event != location.next_event:
        position, following = batch.position.to_json(), subscriber.next_event
        locations.update(tx, location, position=position, next_event=following)
        location = replace(location, position=position, next_event=following)
    narrowing.stored()
    return Reading(
        location=location,
        position=batch.position,
        more=batch.more,
        counts=counts,
        moves=queue.moves,
        lags=[now - event.at for event in events],
        unwanted=tracker.unwanted,
        ended=tracker.ended,
    )


def catch_up(
    tx: sa.Connection,
    location: Location,
    feed: LookedUpFeed,
    lookup: RunLookup,
    store: ScheduleStore,
    now: datetime,
    *,
    ticks: bool = False,
    targets: Targets | None = None,
) -> CaughtUp:
    """Reads the log to its end for a locked location.

    What the same transaction then changes concerns only what comes later in the log, late
    commits included. A location that never ticked has nothing to read.

    Args:
        tx: the transaction that locked the location.
        location: it.
        feed: the event log.
        lookup: where runs are looked up.
        store: the schedules.
        now: the moment.
        ticks: whether ticks of time that are due count, too: not before an update, whose new
            version takes over the timers of leaves that stay.
        targets: as for :func:`read`.

    Errors:
        ConfigurationError: the location follows another event log.
        DatabaseUnavailable: the log did not answer.
    """
    moves: list[JobMove] = []
    unwanted: list[str] = []
    if location.position is None:
        return CaughtUp()
    _check_log(location, feed)
    narrowing = Narrowing(most=EVENTS_AT_ONCE)
    more = True
    while more:
        done = read(tx, location, feed, lookup, store, now, narrowing, ticks=ticks, targets=targets)
        location, more = done.location, done.more
        moves += done.moves
        unwanted += done.unwanted
    return CaughtUp(moves=moves, unwanted=unwanted)


def read_on(
    database: Database,
    cluster: str,
    name: str,
    feed: LookedUpFeed,
    lookup: RunLookup,
    store: ScheduleStore,
    now: datetime,
) -> list[str]:
    """Reads the log of a location to its end, in as many transactions as it takes.

    Ticks of time are left to the dispatcher. A location that never ticked has nothing to read.

    Returns:
        runs to end: their jobs were canceled before they were seen.

    Errors:
        ConfigurationError: the location follows another event log.
        DatabaseUnavailable: a database did not answer; what was stored stands.
    """
    narrowing = Narrowing(most=EVENTS_AT_ONCE)
    unwanted: list[str] = []
    more = True
    while more:
        try:
            with database.begin() as tx:
                location = locations.locked(tx, cluster, name)
                if location.position is None:
                    return unwanted
                _check_log(location, feed)
                done = read(tx, location, feed, lookup, store, now, narrowing, ticks=False)
            more = done.more
            unwanted += done.unwanted
        except DatabaseUnavailable:
            raise
        except Exception as error:
            store.forget()
            if not narrowing.narrow(error):
                raise
    return unwanted


def _asked(location: Location, error: LogWentBack) -> LogWentBack:
    """The error with what a person can do about it."""
    command = f"arctic feed restart {location.name}"
    return LogWentBack(
        error.why,
        f"of what is in the log now, take nothing: {command}; all from an event on: {command} "
        f"--from-event ID; all from a moment on: {command} --from-time 2026-01-01T00:00:00Z",
    )


def _check_log(location: Location, feed: Feed) -> None:
    if location.storage_id not in (None, feed.storage_id):
        raise ConfigurationError(f"location {location.name} follows another Dagster storage")
