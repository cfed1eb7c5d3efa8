"""Evaluates the sources that are due, and gives their requests to jobs; see ``sources``."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.event import Event, EventKey
from arctic_orchestration.event_log.feed import LookedUpFeed, Position
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import JobMove
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.sources import Evaluation, Sources, SourceState
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.subscriber import Subscriber
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.source_tables import source_requests, sources
from arctic_orchestration.state.tables import schedule_keys

#: the maximum length of an error's text
_LETTERS = 1_000
#: keys looked up in one statement
_KEYS_AT_ONCE = 1_000


@dataclass(kw_only=True)
class Intake:
    """The consequences of the evaluations of a tick."""

    counts: Counter[str] = field(default_factory=Counter)
    moves: list[JobMove] = field(default_factory=list)
    #: problems, for the log
    remarks: tuple[str, ...] = ()
    #: the result of each evaluated source, by name
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """The requests of an evaluation."""

    #: those that a schedule takes, and whose run key is new
    new: list[Event]
    #: their run keys
    keys: list[str]
    #: those that no schedule takes
    unwanted: list[Event]


@dataclass(frozen=True)
class SourceIntake:
    """Takes the requests of the sources of one code location."""

    database: Database
    #: locks the location's row, and returns it
    locked: Callable[[sa.Connection], Location]
    store: ScheduleStore
    feed: LookedUpFeed
    targets: Targets
    sources: Sources

    def take(self, now: datetime) -> Intake:
        """Evaluates the sources that are due outside of a transaction, and stores each result.

        Errors:
            DatabaseUnavailable: what was committed stands.
        """
        done = Intake()
        with self.database.begin() as tx:
            states = self._due(tx, self.locked(tx), now)
        for evaluation in self.sources.evaluate(states) if states else ():
            try:
                if evaluation.state.name in self.sources.adopted:
                    evaluation = self._without_launched(evaluation)
                with self.database.begin() as tx:
                    queue = JobQueue(tx, now)
                    counts, note, is_problem = self._store_one(queue, self.locked(tx), evaluation)
                    queue.flush()
            except DatabaseUnavailable:
                raise
            except Exception as error:
                # A source whose requests cannot be stored stops no other, and no schedule.
                self.store.forget()
                counts, is_problem = Counter(), True
                note = self._note_failure(evaluation.state, error, now)
            else:
                done.moves += queue.moves
            name = evaluation.state.name
            done.counts.update(counts)
            done.notes[name] = note
            if is_problem:
                done.remarks += (f"source {name}: {note}",)
        return done

    def _note_failure(self, state: SourceState, error: Exception, now: datetime) -> str:
        """Stores why an evaluation could not be stored, and returns it."""
        note = dialect.storable(f"its requests could not be stored: {error!r}")[:_LETTERS]
        with self.database.begin() as tx:
            here = sources.c.location_id == self.locked(tx).id
            # Else another dispatcher has stored this tick.
            this = here & (sources.c.name == state.name) & (sources.c.tick == state.tick)
            tx.execute(sa.update(sources).where(this).values(evaluated_at=now, note=note))
        return note

    def _due(self, tx: sa.Connection, location: Location, now: datetime) -> list[SourceState]:
        """Returns the wanted sources whose minimum interval has passed."""
        intervals = self.sources.intervals
        wanted = sorted(self._takers(tx, location, intervals))
        if not wanted:
            return []
        columns = [sources.c[name] for name in SourceState.__slots__]
        these = (sources.c.location_id == location.id) & dialect.among(tx, sources.c.name, wanted)
        query = sa.select(*columns).where(these).order_by(sources.c.name)
        states = [SourceState(**row) for row in tx.execute(query).mappings()]
        for name in set(wanted) - {state.name for state in states}:
            new = {"location_id": location.id, "name": name, "tick": 0, "note": ""}
            tx.execute(sa.insert(sources).values(new))
            states.append(SourceState(name=name))
        return [state for state in states if _has_come(state, intervals[state.name], now)]

    def _without_launched(self, evaluation: Evaluation) -> Evaluation:
        """Takes out the requests of which Dagster has made runs; asks about each run key once."""
        name = evaluation.state.name
        keys = list(dict.fromkeys(r.run_key for r in evaluation.requests if r.run_key))
        with self.database.begin() as tx:
            known = _known_keys(tx, self.locked(tx), name, keys)
        unknown = [key for key in keys if key not in known]
        launched = self.sources.launched(name, unknown) if unknown else ()
        left = [r for r in evaluation.requests if r.run_key not in launched]
        return replace(evaluation, requests=left, launched=launched)

    def _store_one(
        self, queue: JobQueue, location: Location, evaluation: Evaluation
    ) -> tuple[Mapping[str, int], str, bool]:
        """Stores an evaluation, and gives its requests to jobs.

        Returns counts, the result in one line, and whether that is a problem.
        """
        tx, now, state = queue.tx, queue.now, evaluation.state
        if not self._takers(tx, location, [state.name]):
            return {}, "no schedule takes its requests any more: it stays where it was", False
        found = self._sort(tx, location, evaluation, now)
        note = _note(evaluation, found)
        values: dict[str, object] = {"evaluated_at": now, "note": note}
        if evaluation.problem is None:
            last = found.keys[-1] if found.keys else state.last_run_key
            values |= {"cursor": evaluation.cursor, "tick": state.tick + 1, "last_run_key": last}
        moved = tx.execute(
            sa.update(sources)
            .where(sources.c.location_id == location.id, sources.c.name == state.name)
            # Else another dispatcher has stored this tick, or the cursor was set meanwhile.
            .where(sources.c.tick == state.tick)
            .values(values)
        )
        if not moved.rowcount:
            return {}, "another dispatcher was first: this evaluation is dropped", False
        if evaluation.problem is not None:
            return {"failed sources": 1}, note, True
        taken = [*found.keys, *evaluation.launched]
        rows = [(location.id, state.name, key, now) for key in taken]
        if rows:
            bulk_rows.insert_rows(
                tx, source_requests, ("location_id", "source", "run_key", "at"), rows
            )
        counts = Counter({"run requests": len(found.new)})
        if found.new:
            before = Position.from_json(location.position or "")
            subscriber = Subscriber(
                tx, location, self.store, queue, self.feed, before, self.targets
            )
            # Ticks of time have been given to jobs before.
            counts.update(subscriber.take(found.new, more=True, last=False))
            locations.update(tx, location, next_event=subscriber.next_event)
        return counts, note, bool(found.unwanted)

    def _takers(
        self, tx: sa.Connection, location: Location, names: Iterable[str]
    ) -> dict[str, list[StoredSchedule]]:
        """Returns the schedules that take requests, by source; sources without one are left out."""
        by_key = {str(EventKey.of_request(name)): name for name in names}
        query = sa.select(schedule_keys.c.event_key, schedule_keys.c.schedule_id).where(
            schedule_keys.c.location_id == location.id,
            dialect.among(tx, schedule_keys.c.event_key, sorted(by_key)),
        )
        pairs = [(by_key[row.event_key], row.schedule_id) for row in tx.execute(query)]
        stored = self.store.by_ids(tx, {id for _, id in pairs}) if pairs else {}
        found: dict[str, list[StoredSchedule]] = {}
        for name, id in pairs:
            # For one in shadow Dagster evaluates the sensor itself.
            if id in stored and stored[id].takes_events and not stored[id].shadowed:
                found.setdefault(name, []).append(stored[id])
        return found

    def _sort(
        self, tx: sa.Connection, location: Location, evaluation: Evaluation, now: datetime
    ) -> _Sorted:
        """Sorts the requests of an evaluation into new ones, known ones and unwanted ones."""
        name = evaluation.state.name
        takers = self._takers(tx, location, [name]).get(name, [])
        wanted: list[Event] = []
        unwanted: list[Event] = []
        for request in (replace(request, at=now) for request in evaluation.requests):
            is_wanted = any(
                stored.counts(request) and any(leaf.takes(request) for leaf in stored.leaves)
                for stored in takers
            )
            (wanted if is_wanted else unwanted).append(request)
        keys = list(dict.fromkeys(request.run_key for request in wanted if request.run_key))
        before = _known_keys(tx, location, name, keys)
        new: list[Event] = []
        seen = set(before)
        for request in wanted:
            if not request.run_key:
                new.append(request)
            elif request.run_key not in seen:
                seen.add(request.run_key)
                new.append(request)
        return _Sorted(new=new, keys=[key for key in keys if key not in before], unwanted=unwanted)


def _known_keys(tx: sa.Connection, location: Location, name: str, keys: Sequence[str]) -> set[str]:
    """Returns the run keys of a source that were taken before."""
    known = source_requests.c
    of_source = (known.location_id == location.id) & (known.source == name)
    found: set[str] = set()
    for first in range(0, len(keys), _KEYS_AT_ONCE):
        some = dialect.among(tx, known.run_key, keys[first : first + _KEYS_AT_ONCE])
        found.update(tx.execute(sa.select(known.run_key).where(of_source, some)).scalars())
    return found


def _has_come(state: SourceState, interval: timedelta, now: datetime) -> bool:
    # A clock may be set back: a moment in the future does not delay this.
    at = state.evaluated_at
    return at is None or not timedelta(0) <= now - at < interval


def _note(evaluation: Evaluation, found: _Sorted) -> str:
    """Returns the result of an evaluation in one line."""
    if evaluation.problem is not None:
        return evaluation.problem
    if evaluation.skipped is not None:
        return f"skipped: {evaluation.skipped}"
    note = f"requested {len(evaluation.requests)} runs, {len(found.new)} of them new"
    if found.unwanted:
        first = found.unwanted[0]
        which = f"run key {first.run_key}" if first.run_key else "no run key"
        job = f", job {first.job}" if first.job else ""
        note += f"; dropped {len(found.unwanted)} that no schedule takes (first: {which}{job})"
    return note
