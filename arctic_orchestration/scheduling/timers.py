"""The timers of leaves that fire by time: one row for each, with the next tick to deliver."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.database import dialect
from arctic_orchestration.database.tables import timers
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration.triggers import Ticks

if TYPE_CHECKING:
    from arctic_orchestration.scheduling.store import ScheduleStore, StoredSchedule

_DUE = (
    sa.select(timers.c.schedule_id, timers.c.leaf, timers.c.due_at, timers.c.last_at)
    .where(timers.c.location_id == sa.bindparam("here"), timers.c.due_at <= sa.bindparam("now"))
    .order_by(timers.c.due_at)
)
_THIS = (timers.c.schedule_id == sa.bindparam("of")) & (timers.c.leaf == sa.bindparam("at_leaf"))
_RESTART = sa.update(timers).where(_THIS).values(due_at=sa.bindparam("next_at"))
_MOVE = _RESTART.values(last_at=sa.bindparam("newest_at"))
_END = sa.delete(timers).where(_THIS)


def start(
    tx: sa.Connection, location: Location, of: Sequence[tuple[str, Schedule]], now: datetime
) -> None:
    """Sets the timers that are not running to the next tick; schedules are given with their ids."""
    rows = [
        {"schedule_id": id, "leaf": number, "location_id": location.id, "due_at": due_at}
        for id, schedule in of
        for number, leaf in enumerate(schedule.trigger.leaves)
        if (due_at := leaf.next_tick(now, schedule.name)) is not None
    ]
    if rows:
        tx.execute(dialect.insert(tx, timers).on_conflict_do_nothing(), rows)


def restart(tx: sa.Connection, of: Iterable[tuple["StoredSchedule", int, datetime]]) -> None:
    """Sets running timers anew, as if they began at the moment that is given with each leaf."""
    rows = [
        {"of": stored.id, "at_leaf": leaf, "next_at": due_at}
        for stored, leaf, at in of
        if (due_at := stored.leaves[leaf].next_tick(at, stored.name)) is not None
    ]
    if rows:
        tx.execute(_RESTART, rows)


def stop(tx: sa.Connection, schedule_id: str) -> None:
    """Forgets the timers of a schedule."""
    tx.execute(sa.delete(timers).where(timers.c.schedule_id == schedule_id))


def due(
    tx: sa.Connection, location: Location, store: "ScheduleStore", now: datetime
) -> list[tuple["StoredSchedule", int, datetime]]:
    """The ticks to deliver, each with schedule and leaf; their timers move on to the next."""
    rows = tx.execute(_DUE, {"here": location.id, "now": now}).all()
    if not rows:
        return []
    stored = store.by_ids(tx, {row.schedule_id for row in rows})
    found: list[tuple[StoredSchedule, int, datetime]] = []
    moved: list[dict[str, Any]] = []
    ended: list[dict[str, Any]] = []
    for row in rows:
        schedule = stored.get(row.schedule_id)
        if schedule is None:
            continue
        ticks = _ticks(schedule, row.leaf, row.due_at, now)
        # Where a clock was set back, the newest tick that was delivered comes again.
        deliver = [at for at in ticks.deliver if at != row.last_at]
        found.extend((schedule, row.leaf, at) for at in deliver)
        this = {"of": row.schedule_id, "at_leaf": row.leaf}
        if ticks.next_at is None:
            ended.append(this)
        else:
            newest = deliver[-1] if deliver else row.last_at
            moved.append({**this, "next_at": ticks.next_at, "newest_at": newest})
    if moved:
        tx.execute(_MOVE, moved)
    if ended:
        tx.execute(_END, ended)
    return found


def _ticks(stored: "StoredSchedule", leaf: int, due_at: datetime, now: datetime) -> Ticks:
    # One schedule's bad rule must not stop the others.
    try:
        return stored.leaves[leaf].ticks_due(due_at, now, stored.name)
    except Exception:
        # Asked again a minute later, with the same tick still due.
        return Ticks(deliver=(), next_at=now + timedelta(minutes=1))
