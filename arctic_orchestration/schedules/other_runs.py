"""Runs that no job requested: started manually, by a backfill, or by another scheduler.

They are recorded while they are active, so that limits count them, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, RunStatus
from arctic_orchestration.event_log.run_lookup import RunLookup, RunView
from arctic_orchestration.run_tags import JOB_TAG, PARENT_TAG
from arctic_orchestration.schedules import resources
from arctic_orchestration.schedules.clock_jumps import not_in_future
from arctic_orchestration.schedules.constraints.base import asset_resource, job_resource
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import runs

#: how often an active run is looked up, in case its end event was missed
VERIFY_EVERY = timedelta(minutes=5)
_VERIFIED_AT_ONCE = 200

_UNHEARD_OF = (
    sa.select(runs.c.run_id)
    .where(runs.c.location_id == sa.bindparam("here"), runs.c.seen_at <= sa.bindparam("unheard"))
    .limit(_VERIFIED_AT_ONCE)
)


class _Ended(Protocol):
    @property
    def status(self) -> RunStatus | None: ...
    @property
    def ended_at(self) -> datetime | None: ...


def note(tx: sa.Connection, location: Location, events: Iterable[Event], now: datetime) -> None:
    """Records the latest status of each run."""
    begun: list[str] = []
    ends: dict[str, tuple[RunStatus, datetime]] = {}
    held: list[tuple[str, str, datetime | None]] = []
    for event in events:
        assert event.run_id is not None and event.status is not None
        # The launch of a job's run was recorded at its admission. A run that a person executes
        # again has the tags of the first run.
        own = JOB_TAG in event.tags and PARENT_TAG not in event.tags
        begun_at = None if own else not_in_future(event.at, now)
        if event.status.ended:
            ends[event.run_id] = (event.status, not_in_future(event.at, now))
        else:
            begun.append(event.run_id)
        # A run that began and ended between two readings held nothing, but its end counts.
        names = resources_of(event, location.place)
        held.extend((name, event.run_id, begun_at) for name in names)
    if begun:
        rows = [{"location_id": location.id, "run_id": id, "seen_at": now} for id in begun]
        tx.execute(dialect.insert(tx, runs).on_conflict_do_nothing(), rows)
    resources.acquire(tx, location.id, held)
    _forget(tx, location, list(ends), ends, now)


def verify(tx: sa.Connection, location: Location, lookup: RunLookup, now: datetime) -> None:
    """Forgets runs that ended, or were deleted, without an end event."""
    given = {"here": location.id, "unheard": now - VERIFY_EVERY}
    ids = list(tx.execute(_UNHEARD_OF, given).scalars())
    if not ids:
        return
    found = lookup.run_statuses(ids)
    gone = [id for id in ids if id not in found or has_ended(found[id])]
    ends = {id: end_of(found[id], now) for id in gone if id in found}
    _forget(tx, location, gone, ends, now)
    own = runs.c.location_id == location.id
    tx.execute(
        sa.update(runs).where(own, dialect.among(tx, runs.c.run_id, ids)).values(seen_at=now)
    )


def _forget(
    tx: sa.Connection,
    location: Location,
    run_ids: Sequence[str],
    ends: Mapping[str, tuple[RunStatus, datetime]],
    now: datetime,
) -> None:
    if not run_ids:
        return
    own = runs.c.location_id == location.id
    tx.execute(sa.delete(runs).where(own, dialect.among(tx, runs.c.run_id, run_ids)))
    ended = {id: (status.value, at) for id, (status, at) in ends.items()}
    resources.release(tx, run_ids, now, ended)


def has_ended(run: RunView) -> bool:
    """Returns whether Dagster's record of a run has an end."""
    return run.status is not None and run.status.ended


def end_of(run: _Ended, now: datetime) -> tuple[RunStatus, datetime]:
    """Returns how and when a run ended."""
    return run.status or RunStatus.FAILURE, not_in_future(run.ended_at or now, now)


def resources_of(event: Event, place: str) -> list[str]:
    """Returns the names of what the run of an event holds: its job, and its assets."""
    assets = [asset_resource(place, asset) for asset in event.assets]
    return [job_resource(place, event.subject), *assets]
