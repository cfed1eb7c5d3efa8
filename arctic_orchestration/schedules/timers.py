"""The timers of leaves that fire by time: a row for each, with the next tick to deliver."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import Ticks
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import in_state, is_waiting, jobs, schedules, timers

if TYPE_CHECKING:
    from arctic_orchestration.schedules.store import ScheduleStore
    from arctic_orchestration.schedules.stored_schedule import StoredSchedule
    from arctic_orchestration.schedules.target_partitions import Placing

_DUE = (
    sa.select(timers.c.schedule_id, timers.c.leaf, timers.c.due_at, timers.c.last_at)
    .where(timers.c.location_id == sa.bindparam("here"), timers.c.due_at <= sa.bindparam("now"))
    .order_by(timers.c.due_at)
)
_THIS = (timers.c.schedule_id == sa.bindparam("of")) & (timers.c.leaf == sa.bindparam("at_leaf"))
_RESTART = sa.update(timers).where(_THIS).values(due_at=sa.bindparam("next_at"))
_SOONER = _RESTART.where(timers.c.due_at > sa.bindparam("next_at"))
_MOVE = _RESTART.values(last_at=sa.bindparam("newest_at"))
_END = sa.delete(timers).where(_THIS)


def start(
    tx: sa.Connection, location: Location, of: Sequence[tuple[str, Schedule]], now: datetime
) -> None:
    """Sets stopped timers to the next tick; schedules are given with their ids.

    The next end of a window is looked up again: the target, or its partitions, may be others.
    """
    rows: list[dict[str, Any]] = [
        {"schedule_id": id, "leaf": number, "location_id": location.id, "due_at": due_at}
        for id, schedule in of
        for number, leaf in enumerate(schedule.trigger.leaves)
        if (due_at := leaf.next_tick(now, schedule.name)) is not None
    ]
    if rows:
        tx.execute(dialect.insert(tx, timers).on_conflict_do_nothing(), rows)
    if looked_up := [
        {"of": row["schedule_id"], "at_leaf": row["leaf"], "next_at": now}
        for row in rows
        if row["due_at"] <= now
    ]:
        tx.execute(_SOONER, looked_up)


def begin_again(
    tx: sa.Connection, location: Location, store: "ScheduleStore", now: datetime
) -> None:
    """Looks up the next ends of windows: new code may give others, or some where none was left."""
    here = (schedules.c.location_id == location.id) & schedules.c.spec.contains('"partition_end"')
    found = store.by_ids(tx, tx.execute(sa.select(schedules.c.id).where(here)).scalars())
    taking = [one for one in found.values() if one.takes_events and one.until_event is None]
    start(tx, location, [(one.id, one.schedule) for one in taking], now)


def restart(tx: sa.Connection, of: Iterable[tuple["StoredSchedule", int, datetime]]) -> None:
    """Restarts running timers, as if they began at the moment given with each leaf."""
    rows = [
        {"of": stored.id, "at_leaf": leaf, "next_at": due_at}
        for stored, leaf, at in of
        if (due_at := stored.leaves[leaf].next_tick(at, stored.name)) is not None
    ]
    if rows:
        tx.execute(_RESTART, rows)


def delivered(tx: sa.Connection, schedule_id: str) -> list[datetime]:
    """Returns the newest tick that was delivered to each leaf of a schedule that had one."""
    this = (timers.c.schedule_id == schedule_id) & timers.c.last_at.is_not(None)
    return list(tx.execute(sa.select(timers.c.last_at).where(this)).scalars())


def stop(tx: sa.Connection, schedule_id: str, *, but: Sequence[int] = ()) -> None:
    """Deletes the timers of a schedule, except those of some leaves."""
    these = (timers.c.schedule_id == schedule_id) & timers.c.leaf.not_in(but)
    tx.execute(sa.delete(timers).where(these))


def carry_over(tx: sa.Connection, location: Location, to: Mapping[str, Mapping[int, int]]) -> None:
    """Transfers the timers of leaves to others, from old to new numbers; deletes the rest.

    ``to`` has the numbers by the ids of the schedules.
    """
    columns = timers.c.schedule_id, timers.c.leaf, timers.c.due_at, timers.c.last_at
    these = dialect.among(tx, timers.c.schedule_id, list(to))
    running = tx.execute(sa.select(*columns).where(these)).all()
    tx.execute(sa.delete(timers).where(these))
    rows = [
        {
            "schedule_id": row.schedule_id,
            "leaf": to[row.schedule_id][row.leaf],
            "location_id": location.id,
            "due_at": row.due_at,
            "last_at": row.last_at,
        }
        for row in running
        if row.leaf in to[row.schedule_id]
    ]
    if rows:
        tx.execute(sa.insert(timers), rows)


def set_right(tx: sa.Connection, location: Location, store: "ScheduleStore", now: datetime) -> None:
    """Moves timers to the next tick after now if that is earlier than the one they wait for."""
    ahead = (timers.c.location_id == location.id) & (timers.c.due_at > now)
    rows = tx.execute(sa.select(timers.c.schedule_id, timers.c.leaf, timers.c.due_at).where(ahead))
    waiting = rows.all()
    stored = store.by_ids(tx, {row.schedule_id for row in waiting})
    moved = []
    for row in waiting:
        schedule = stored.get(row.schedule_id)
        due_at = schedule.leaves[row.leaf].next_tick(now, schedule.name) if schedule else None
        if due_at is not None and due_at < row.due_at:
            moved.append({"of": row.schedule_id, "at_leaf": row.leaf, "next_at": due_at})
    if moved:
        tx.execute(_RESTART, moved)


def due(
    tx: sa.Connection,
    location: Location,
    store: "ScheduleStore",
    now: datetime,
    windows: "Placing",
) -> list[tuple["StoredSchedule", int, datetime]]:
    """Returns the ticks to deliver, each with schedule and leaf; advances their timers."""
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
        of_none = not schedule.takes_events and not _is_waited_for(tx, row.schedule_id)
        if schedule.until_event is not None or of_none:
            ended.append({"of": row.schedule_id, "at_leaf": row.leaf})
            continue
        ticks = _ticks(schedule, row.leaf, row.due_at, now, windows)
        if ticks is None:
            continue
        # After a clock was set back, the newest delivered tick would come again.
        deliver = [at for at in ticks.deliver if at != row.last_at]
        found.extend((schedule, row.leaf, at) for at in deliver)
        this = {"of": row.schedule_id, "at_leaf": row.leaf}
        # A draining schedule kept the timer for one job, which now has its tick.
        if ticks.next_at is None or not schedule.takes_events:
            ended.append(this)
        else:
            newest = deliver[-1] if deliver else row.last_at
            moved.append({**this, "next_at": ticks.next_at, "newest_at": newest})
    if moved:
        tx.execute(_MOVE, moved)
    if ended:
        tx.execute(_END, ended)
    return found


def _is_waited_for(tx: sa.Connection, schedule_id: str) -> bool:
    """Returns whether a job of a draining schedule still waits for its trigger."""
    waits = jobs.c.schedule_id == schedule_id, is_waiting, in_state("waiting_trigger")
    return tx.execute(sa.select(jobs.c.id).where(*waits).limit(1)).first() is not None


def _ticks(
    stored: "StoredSchedule", leaf: int, due_at: datetime, now: datetime, windows: "Placing"
) -> Ticks | None:
    # A broken rule of one schedule must not stop the others: its ticks stay due.
    try:
        clock = stored.leaves[leaf].clock
        if clock is not None and clock.after is not None:
            return windows.ends(stored, clock.after, due_at, now)
        return stored.leaves[leaf].ticks_due(due_at, now, stored.name)
    except Exception:
        return None
