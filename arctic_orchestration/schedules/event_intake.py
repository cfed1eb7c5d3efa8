"""Reads the event log and gives its events to jobs, within one transaction.

The engine repeats this in each tick. A command that changes schedules does it first: the change
applies to later events, and earlier events count for the old schedules.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.errors import ConfigurationError, DatabaseUnavailable, LogWentBack
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.event_log.feed import Feed, LookedUpFeed, Position
from arctic_orchestration.event_log.narrowing import Narrowing
from arctic_orchestration.event_log.run_lookup import RetryLookup
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import JobMove
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.runs import RunTracker
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.subscriber import Subscriber
from arctic_orchestration.schedules.target_partitions import TooManyRows
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.database import Database
from arctic_orchestration.waits import command

#: events read and stored in one transaction
EVENTS_AT_ONCE = 4_000


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of one reading: counts by name, and the position it reached."""

    location: Location
    position: Position
    #: whether another reading may find more events
    more: bool
    counts: Counter[str] = field(default_factory=Counter)
    moves: Sequence[JobMove] = ()
    #: the delay between each event and its reading
    lags: Sequence[timedelta] = ()
    #: runs to terminate: their jobs were canceled before the run was seen
    unwanted: Sequence[str] = ()
    #: runs whose end was read
    ended: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class CaughtUp:
    """The consequences of the events before a change."""

    moves: Sequence[JobMove] = ()
    #: runs to terminate: their jobs were canceled before the run was seen
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
    lookup: RetryLookup,
    store: ScheduleStore,
    now: datetime,
    narrowing: Narrowing,
    *,
    last: bool = False,
    ticks: bool = True,
    targets: Targets | None = None,
    splits: bool = True,
) -> Reading:
    """Reads some events of a locked location that has a position, and stores the results.

    Args:
        tx: the transaction that locked the location.
        location: the locked location.
        feed: the event log.
        lookup: looks up runs.
        store: the schedules.
        now: the moment.
        narrowing: limits the number of events.
        last: the last reading of a tick: due ticks of time no longer wait for unread events.
        ticks: whether due ticks of time are given to jobs, too.
        targets: the code location; None: arrivals to be mapped to partitions of a target wait
            for the next tick that has it.
        splits: whether fewer events may be read in another transaction.

    Errors:
        TooManyRows: fewer events must be read at once.
    """
    before = Position.from_json(location.position or "")
    try:
        batch = feed.read(before, narrowing.limit)
    except LogWentBack as error:
        raise _with_advice(location, error) from error
    events, aside = narrowing.begin(_of_former_names(tx, location, batch.events))
    unreadable_events.set_aside(tx, location.cluster, f"location {location.name}", aside, now)
    queue = JobQueue(tx, now)
    tracker = RunTracker(queue, location, lookup)
    tracker.note(events)
    subscriber = Subscriber(tx, location, store, queue, feed, before, targets,
                            at_once=narrowing.limit if splits else None)  # fmt: skip
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


def _of_former_names(
    tx: sa.Connection, location: Location, events: Sequence[Event]
) -> Sequence[Event]:
    """Returns the events, those of runs under a former name of the location as its own."""
    if location.former_names is None or all(event.location is None for event in events):
        return events
    former = locations.former_names(tx, location)
    return [
        replace(event, location=location.name) if event.location in former else event
        for event in events
    ]


def catch_up(
    tx: sa.Connection,
    location: Location,
    feed: LookedUpFeed,
    lookup: RetryLookup,
    store: ScheduleStore,
    now: datetime,
    *,
    ticks: bool = False,
    targets: Targets | None = None,
) -> CaughtUp:
    """Reads the log to its end for a locked location.

    Changes made later in the same transaction apply only to later events of the log, including late
    commits. A location that never ticked has nothing to read.

    Args:
        tx: the transaction that locked the location.
        location: the locked location.
        feed: the event log.
        lookup: looks up runs.
        store: the schedules.
        now: the moment.
        ticks: whether due ticks of time count, too; false before an update, whose new version
            takes over the timers of unchanged leaves.
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
        done = read(
            tx, location, feed, lookup, store, now, narrowing,
            ticks=ticks, targets=targets, splits=False,
        )  # fmt: skip
        location, more = done.location, done.more
        moves += done.moves
        unwanted += done.unwanted
    return CaughtUp(moves=moves, unwanted=unwanted)


def read_on(
    database: Database,
    cluster: str,
    name: str,
    feed: LookedUpFeed,
    lookup: RetryLookup,
    store: ScheduleStore,
    now: datetime,
) -> list[str]:
    """Reads the log of a location to its end, in as many transactions as needed.

    Ticks of time are left to the dispatcher. A location that never ticked has nothing to read.

    Returns:
        runs to terminate: their jobs were canceled before the run was seen.

    Errors:
        ConfigurationError: the location follows another event log.
        DatabaseUnavailable: a database did not answer; what was committed stands.
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
        except TooManyRows as error:
            store.forget()
            narrowing.cap(error.fits)
        except Exception as error:
            store.forget()
            if not narrowing.narrow(error):
                raise
    return unwanted


def _with_advice(location: Location, error: LogWentBack) -> LogWentBack:
    """Returns the error, with the actions a person can take."""

    def restart(*options: str) -> str:
        return command("feed", "restart", location.name, options=options)

    return LogWentBack(
        error.why,
        f"of what is in the log now, take nothing: {restart()}; all from an event on: "
        f"{restart('--from-event', 'ID')}; all from a moment on: "
        f"{restart('--from-time', '2026-01-01T00:00:00Z')}",
    )


def _check_log(location: Location, feed: Feed) -> None:
    if location.storage_id not in (None, feed.storage_id):
        raise ConfigurationError(f"location {location.name} follows another Dagster storage")
