"""Stops and starts Dagster's schedules and sensors at a known place.

Dagster's daemon does not wait for who stops an instigator. In each iteration it first reads which
ones run, and then evaluates one after another; with many of them that takes minutes. So it may
evaluate one that was stopped meanwhile, and it writes rows that it has read earlier. Nothing locks
it out. What follows makes such an evaluation harmless, or waits until none is possible.

**A schedule.** An iteration evaluates ticks up to the moment at which it began, above the last tick
that is recorded. So it is stopped only where each tick that is due has its record, in a final
state, and the next tick is some time away (:data:`MARGIN`). An iteration that began before the stop
then finds no tick; one that begins later sees that it is stopped. The moment of the stop is the
boundary. It is written into the stopped row (``start_timestamp``, which means nothing there), so
that it is known after a crash. If the process was held up between its look at the ticks and the
end of the write for longer than the margin, the schedule is started again as it was, and the stop
repeated.

Once an hour an iteration writes the whole row, with the status that it has read minutes earlier
(``last_iteration_timestamp``). That would undo a stop or a start. So both wait while this is due,
as long as a daemon lives.

**A sensor.** An evaluation reads the row of its sensor again, and does nothing if the last one
began too recently. The stop therefore moves that beginning (``last_tick_start_timestamp``) a
century into the future, until the start: an iteration that has seen the sensor running cannot
evaluate it, and neither can one that begins because a person starts the sensor by mistake. What
was begun before the stop is a tick: its row is written last, and keeps the status that it finds.
So the cursor counts once no tick is open. Between two statements of the daemon, its reading of the
row and its writing, the stop may be overwritten, or the tick may not be recorded yet: so while a
daemon lives, the row is looked at again :data:`GRACE` after the stop.

A tick is *open* while it is recorded as started, and after a failure that Dagster takes up again. A
stopped instigator's open tick is never finished if its daemon died. After :data:`ABANDONED` it is
started again as it was, for Dagster to finish the tick, and then stopped again.

**The cursor** of an ``asset_sensor`` is the id of the last materialization that it has seen, that
of a run status sensor the id of the last event. Both read what has a larger id. So this id is the
boundary. An asset sensor that has no cursor takes the latest materialization in its first tick, if
there is any, and a run status sensor begins at the present.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import dagster as dg

from arctic_orchestration.dagster_internals import (
    InstigatorState,
    InstigatorStatus,
    InstigatorTick,
    InstigatorType,
    RemoteInstigatorOrigin,
    RunStatusSensorCursor,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickStatus,
    execution_times,
)
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.adoption.journal import Boundary, Status

#: how far away the next tick of a schedule has to be when it is stopped
MARGIN = timedelta(seconds=10)
#: how long after its stop the row of a sensor is looked at again
GRACE = timedelta(seconds=5)
#: how old an open tick of a stopped instigator is before Dagster is to take it up again
ABANDONED = timedelta(minutes=10)
#: a daemon without a heartbeat for so long has ended
_SILENT = timedelta(minutes=5)
#: the daemon writes the row of a schedule so often, and we allow for its clock
_CHECKPOINT = timedelta(hours=1)
_CENTURY = timedelta(days=36_525)
#: a failed tick of a sensor is submitted again so often
_RESUBMISSIONS = 1
_STATUS = {
    InstigatorStatus.RUNNING: Status.RUNNING,
    InstigatorStatus.DECLARED_IN_CODE: Status.RUNNING_BY_DEFAULT,
    InstigatorStatus.STOPPED: Status.STOPPED,
}


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """The row of an instigator in Dagster's storage, and its ticks."""

    instance: dg.DagsterInstance
    origin: RemoteInstigatorOrigin
    runs_by_default: bool
    kind: ClassVar[InstigatorType]

    @property
    def name(self) -> str:
        return self.origin.instigator_name

    @property
    def _selector(self) -> str:
        return self.origin.get_selector().get_id()

    def read(self) -> InstigatorState | None:
        state = self.instance.get_instigator_state(self.origin.get_id(), self._selector)
        # The code may have had a schedule by the name of this sensor, or the reverse.
        return state if state is not None and state.instigator_type is self.kind else None

    def status(self) -> Status:
        """Returns whether Dagster evaluates it."""
        state = self.read()
        if state is None:
            return Status.RUNNING_BY_DEFAULT if self.runs_by_default else Status.STOPPED
        if state.status is InstigatorStatus.DECLARED_IN_CODE and not self.runs_by_default:
            # The default was another one when it was written.
            return Status.STOPPED
        return _STATUS[state.status]

    def write(self, state: InstigatorState | None, status: InstigatorStatus, data: Any) -> None:
        """Changes the row; without a ``state``, as after it was deleted, creates it."""
        if state is not None:
            self.instance.update_instigator_state(state.with_status(status).with_data(data))
            return
        if self.instance.get_instigator_state(self.origin.get_id(), self._selector) is not None:
            self.instance.delete_instigator_state(self.origin.get_id(), self._selector)
        self.instance.add_instigator_state(InstigatorState(self.origin, self.kind, status, data))

    def _dagsters(self, status: Status) -> InstigatorStatus:
        """Returns Dagster's status; one that runs by a default that was changed is started."""
        if status is Status.RUNNING_BY_DEFAULT and not self.runs_by_default:
            return InstigatorStatus.RUNNING
        return next(theirs for theirs, ours in _STATUS.items() if ours is status)

    def hold(self, now: datetime) -> None:
        """Keeps one that is off from being evaluated if a user starts it; not a schedule."""

    def unfence(self, now: datetime) -> None:
        """Removes the fence of an adoption that was lost; a schedule has none."""

    def latest_tick(self) -> InstigatorTick | None:
        ticks = self.instance.get_ticks(self.origin.get_id(), self._selector, limit=1)
        return ticks[0] if ticks else None

    def ticks(self, after: datetime) -> list[InstigatorTick]:
        """Returns its ticks after a moment, oldest first."""
        moment = after.timestamp()
        ticks = self.instance.get_ticks(self.origin.get_id(), self._selector, after=moment)
        return sorted(ticks, key=lambda tick: (tick.timestamp, tick.tick_id))

    def is_daemon_alive(self, kind: str, now: datetime) -> bool:
        beat = self.instance.get_daemon_heartbeats().get(kind)
        return beat is not None and beat.timestamp > (now - _SILENT).timestamp()


@dataclass(frozen=True, kw_only=True)
class ScheduleInstigator(_Stored):
    """A schedule of Dagster."""

    definition: dg.ScheduleDefinition
    retries: int = 0
    kind = InstigatorType.SCHEDULE
    by_clock = True

    def stop(self, clock: Callable[[], datetime]) -> str | None:
        state, now = self.read(), clock()
        if state is None:
            return "Dagster's scheduler has not seen it yet"
        if state.status is InstigatorStatus.STOPPED:
            return self._take_up_again(state, now)
        data: Any = state.instigator_data
        waits = self._open() or self._unevaluated(data, now) or self._checkpoint(data, now)
        next_tick = self._next_tick(now.timestamp())
        if waits is None and next_tick - now < MARGIN:
            waits = f"its next tick is at {format_moment(next_tick)}, too soon to stop it safely"
        if waits is None:
            stopped = data._replace(start_timestamp=now.timestamp())
            self.write(state, InstigatorStatus.STOPPED, stopped)
            if clock() >= next_tick:
                self.write(state, state.status, data)
                waits = f"the stop took until after the tick of {format_moment(next_tick)}"
        return waits

    def boundary(self, now: datetime) -> Boundary | str:
        state = self.read()
        if state is None or state.status is not InstigatorStatus.STOPPED:
            return "Dagster started it again: it is stopped once more"
        data: Any = state.instigator_data
        # Without a moment, a user has stopped it meanwhile: it has not run since.
        ended, tick = data.start_timestamp or now.timestamp(), self.latest_tick()
        if tick is not None:
            # It may lie after the stop, if the clock of this host is behind.
            ended = max(ended, tick.timestamp)
        return self._open() or Boundary(at=datetime.fromtimestamp(ended, UTC))

    def start(self, boundary: Boundary, status: Status, now: datetime) -> str | None:
        state = self.read()
        if state is not None and self.status().is_running:
            return None
        waits = None if state is None else self._checkpoint(state.instigator_data, now)
        if waits is None:
            # Ticks are whole minutes, and one at the boundary itself belongs to the other.
            above = boundary.at or now
            data = ScheduleInstigatorData(
                self.definition.cron_schedule, (above + timedelta(seconds=1)).timestamp()
            )
            self.write(state, self._dagsters(status), data)
        return waits

    def _take_up_again(self, state: InstigatorState, now: datetime) -> str | None:
        tick = self.latest_tick()
        if tick is None or not self._is_open(tick) or _age(tick, now) < ABANDONED:
            return None
        self.write(state, InstigatorStatus.RUNNING, state.instigator_data)
        return f"Dagster has to finish the tick of {_moment(tick.timestamp)}"

    def _open(self) -> str | None:
        tick = self.latest_tick()
        if tick is None or not self._is_open(tick):
            return None
        return f"Dagster evaluates the tick of {_moment(tick.timestamp)}"

    def _is_open(self, tick: InstigatorTick) -> bool:
        if tick.status is TickStatus.FAILURE:
            return tick.failure_count <= self.retries
        return tick.status is TickStatus.STARTED

    def _unevaluated(self, data: Any, now: datetime) -> str | None:
        """Returns what to wait for if a tick is due that Dagster has no record of."""
        tick = self.latest_tick()
        known = [data.start_timestamp, data.last_iteration_timestamp, tick and tick.timestamp + 1]
        since = max(at or 0.0 for at in known)
        if not since:
            return "Dagster's scheduler has not seen it yet"
        due = self._next_tick(since)
        if due > now:
            return None
        return f"Dagster's scheduler has not evaluated the tick of {format_moment(due)} yet"

    def _checkpoint(self, data: Any, now: datetime) -> str | None:
        """Returns what to wait for if the daemon may write the row, with what it read before."""
        last = data.last_iteration_timestamp
        is_due = last is None or last <= (now + MARGIN - _CHECKPOINT).timestamp()
        if is_due and self.is_daemon_alive("SCHEDULER", now):
            return "Dagster's scheduler writes its row in its next iteration"
        return None

    def _next_tick(self, since: float) -> datetime:
        tick: datetime = next(execution_times(self.definition, since))
        return tick.astimezone(UTC)


@dataclass(frozen=True, kw_only=True)
class SensorInstigator(_Stored):
    """A sensor of Dagster whose cursor is an id of the event log."""

    #: returns the id in a cursor; for None, where the first tick begins
    read_cursor: Callable[[str | None], int | None]
    write_cursor: Callable[[int], str]
    #: whether it evaluates each event by itself
    one_by_one: bool = False
    kind = InstigatorType.SENSOR
    by_clock = False

    def stop(self, clock: Callable[[], datetime]) -> str | None:
        state, now = self.read(), clock()
        if state is None:
            return "Dagster's daemon has not seen it yet"
        data: Any = state.instigator_data or SensorInstigatorData()
        if state.status is InstigatorStatus.STOPPED and is_fenced(data, now):
            return self._take_up_again(state, data, now)
        waits = self._open(data, now)
        if waits is None:
            fenced = data._replace(
                last_sensor_start_timestamp=now.timestamp(),
                last_tick_start_timestamp=(now + _CENTURY).timestamp(),
            )
            self.write(state, InstigatorStatus.STOPPED, fenced)
        return waits

    def boundary(self, now: datetime) -> Boundary | str:
        state = self.read()
        data: Any = state.instigator_data if state is not None else None
        if state is None or state.status is not InstigatorStatus.STOPPED:
            return "Dagster started it again: it is stopped once more"
        if not is_fenced(data, now):
            return "Dagster wrote its row: it is stopped once more"
        waits = self._open(data, now)
        if waits is None and self.is_daemon_alive("SENSOR", now):
            looked = datetime.fromtimestamp(data.last_sensor_start_timestamp or 0, UTC) + GRACE
            if now < looked:
                waits = f"whether a tick had begun is known at {format_moment(looked)}"
        return waits or Boundary(event=self.read_cursor(data.cursor))

    def hold(self, now: datetime) -> None:
        state = self.read()
        data: Any = (state and state.instigator_data) or SensorInstigatorData()
        fenced = data._replace(last_tick_start_timestamp=(now + _CENTURY).timestamp())
        self.write(state, state.status if state else InstigatorStatus.STOPPED, fenced)

    def start(self, boundary: Boundary, status: Status, now: datetime) -> str | None:
        state = self.read()
        data: Any = (state and state.instigator_data) or SensorInstigatorData()
        runs = state is not None and self.status().is_running
        if runs and not is_fenced(data, now):
            return None
        cursor = data.cursor if boundary.event is None else self.write_cursor(boundary.event)
        began = data._replace(
            cursor=cursor,
            last_sensor_start_timestamp=now.timestamp(),
            last_tick_start_timestamp=None,
            last_tick_success_timestamp=now.timestamp(),
        )
        # A user may have started it meanwhile; the fence kept it from being evaluated.
        self.write(state, state.status if state and runs else self._dagsters(status), began)
        return None

    def unfence(self, now: datetime) -> None:
        """Removes the fence of an adoption that was lost; whether it runs stays as it is."""
        state = self.read()
        if state is not None and is_fenced(state.instigator_data, now):
            data: Any = state.instigator_data
            self.write(state, state.status, data._replace(last_tick_start_timestamp=None))

    def cursor_of(self, tick: InstigatorTick) -> int | None:
        """Returns the id in the cursor of a tick, or None if it has none."""
        return None if tick.cursor is None else self.read_cursor(tick.cursor)

    def _take_up_again(self, state: InstigatorState, data: Any, now: datetime) -> str | None:
        tick = self.latest_tick()
        if tick is None or not _is_open(tick) or _age(tick, now) < ABANDONED:
            return None
        again = data._replace(last_tick_start_timestamp=None, last_tick_success_timestamp=None)
        self.write(state, InstigatorStatus.RUNNING, again)
        return f"Dagster has to finish the tick of {_moment(tick.timestamp)}"

    def _open(self, data: Any, now: datetime) -> str | None:
        tick = self.latest_tick()
        if tick is not None and _is_open(tick):
            return f"Dagster evaluates the tick of {_moment(tick.timestamp)}"
        began = data.last_tick_start_timestamp
        if began is None or data.last_tick_success_timestamp is not None or is_fenced(data, now):
            return None
        # A tick that begins is noted in the row before it is recorded.
        if tick is not None and tick.timestamp >= began:
            return None
        return f"Dagster begins the tick of {_moment(began)}"


def asset_cursor(
    instance: dg.DagsterInstance, asset: dg.AssetKey
) -> tuple[Callable[[str | None], int | None], Callable[[int], str]]:
    """Returns how the cursor of an ``asset_sensor`` is read and written."""

    def read(cursor: str | None) -> int | None:
        try:
            return int(cursor or "")
        except ValueError:
            latest = instance.fetch_materializations(asset, limit=1).records
            return latest[0].storage_id - 1 if latest else 0

    return read, str


def run_status_cursor() -> tuple[Callable[[str | None], int | None], Callable[[int], str]]:
    """Returns how the cursor of a run status sensor is read and written."""

    def read(cursor: str | None) -> int | None:
        if cursor is None or not RunStatusSensorCursor.is_valid(cursor):
            return None
        return RunStatusSensorCursor.from_json(cursor).record_id

    cursor: Any = RunStatusSensorCursor
    return read, lambda event_id: cursor(record_id=event_id).to_json()


def is_fenced(data: Any, now: datetime) -> bool:
    """Returns whether the last tick of a sensor is said to have begun in the far future."""
    began = getattr(data, "last_tick_start_timestamp", None)
    return began is not None and began > (now + _CENTURY / 2).timestamp()


def _is_open(tick: InstigatorTick) -> bool:
    if tick.status is TickStatus.FAILURE:
        retried = tick.tick_data.failure_count <= _RESUBMISSIONS
        return retried and bool(tick.unsubmitted_run_ids_with_requests)
    return tick.status is TickStatus.STARTED


def _moment(timestamp: float) -> str:
    return format_moment(datetime.fromtimestamp(timestamp, UTC))


def _age(tick: InstigatorTick, now: datetime) -> timedelta:
    return now - datetime.fromtimestamp(tick.timestamp, UTC)
