"""The loop of a simulation: the engine ticks on a virtual clock, and the world answers.

The engine ticks at the moments of a grid that begins with the first line. The tick of a moment sees
the events of that moment; events between two ticks are seen by the later one. Moments without work
are skipped, which changes no decision. A tick has work when an event that a schedule listens to is
unread, when a timer of a schedule or the next check of a waiting job is due, or when a job waits to
be handed out.

After the last line the simulation continues

* to the end moment, if one is given;
* else until nothing waits: no job is waiting for its trigger or constraints, and no run is active
  that ends by itself. Cron goes on meanwhile, but a future tick does not count as waiting. To end
  schedules that always make each other wait, the simulation stops at the latest when all that
  waited at the last line must have ended: the longest timeout and the duration of a run after it.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import EventKey, EventKind, RunStatus
from arctic_orchestration.run_tags import JOB_TAG
from arctic_orchestration.schedules import location as location_rows
from arctic_orchestration.schedules.declared_assets import DeclaredAssets
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.facts import Surroundings
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator.commands import Commands
from arctic_orchestration.schedules.simulator.decisions import Decision, Narrator
from arctic_orchestration.schedules.simulator.lines import (
    Deploy,
    Line,
    OnSchedule,
    Process,
    Update,
    format_moment,
)
from arctic_orchestration.schedules.simulator.player import play
from arctic_orchestration.schedules.simulator.scratch_database import PrivateDatabase
from arctic_orchestration.schedules.simulator.timeline import Timeline
from arctic_orchestration.schedules.simulator.world import World
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import is_launching, is_waiting, jobs, schedule_keys, timers

TICK = timedelta(seconds=1)
RUN_DURATION = timedelta(seconds=60)

_CLUSTER = "simulation"
#: Old rows cost memory only.
_KEEP_HOUSE_EVERY = timedelta(days=30)
#: Lines that change what schedules listen to, or the state of jobs.
_ON_SCHEDULES = (OnSchedule, Update, Deploy)


def simulate(
    schedules: Sequence[Schedule],
    timeline: Timeline,
    *,
    tick: timedelta = TICK,
    until: datetime | None = None,
    run_duration: timedelta = RUN_DURATION,
    assets: DeclaredAssets | None = None,
    every_tick: bool = False,
) -> Iterator[Decision]:
    """Yields the decisions of a scheduler with these schedules, in this timeline, in order.

    The state is a private database in memory. The same input gives exactly the same decisions.

    Args:
        schedules: deployed before the first line.
        timeline: the events and actions.
        tick: the time between ticks of the engine.
        until: the end moment; None: until nothing waits.
        run_duration: the duration of a run that no line ends.
        assets: the declared partitions of targets and assets.
        every_tick: also tick when nothing can happen: slower, with the same decisions.

    Errors:
        InvalidInput: no duration between ticks, an end before the first line, or a line that
            ends a run which is not active then.
        InvalidDefinition: lines that name unknown schedules.
    """
    if tick <= timedelta(0):
        raise InvalidInput("tick", tick, "a duration longer than 0s")
    begin = timeline.lines[0].at
    if until is not None and until < begin:
        raise InvalidInput(
            "until", format_moment(until), f"not before the first line, {format_moment(begin)}"
        )
    timeline.check_names(schedules)
    with closing(PrivateDatabase()) as database:
        yield from _Simulation(
            database=database,
            schedules=tuple(schedules),
            lines=timeline.lines,
            tick=tick,
            until=until,
            world=World(run_duration=run_duration, declared=assets or DeclaredAssets()),
            every_tick=every_tick,
        ).run()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Due:
    """The future moments in the state."""

    #: a job is launching and its run was not requested yet
    unrequested: bool
    #: the next tick of time of any schedule
    timer_at: datetime | None
    #: the next check of a waiting job
    look_at: datetime | None


_here = jobs.c.location_id == sa.bindparam("location_id")
_DUE = sa.select(
    sa.exists()
    .where(_here, is_launching)
    .where(jobs.c.requested_at.is_(None))
    .label("unrequested"),
    sa.select(timers.c.due_at)
    .where(timers.c.location_id == sa.bindparam("location_id"))
    .order_by(timers.c.due_at)
    .limit(1)
    .scalar_subquery()
    .label("timer_at"),
    sa.select(jobs.c.next_check_at)
    .where(_here, jobs.c.next_check_at.is_not(None), is_waiting)
    .order_by(jobs.c.next_check_at)
    .limit(1)
    .scalar_subquery()
    .label("look_at"),
)


@dataclass(kw_only=True)
class _Simulation:
    database: Database
    schedules: tuple[Schedule, ...]
    lines: Sequence[Line]
    tick: timedelta
    until: datetime | None
    world: World
    every_tick: bool
    _done: int = 0
    _narrator: Narrator = field(default_factory=Narrator)
    _location_id: int = 0
    #: the future moments after the last change; None: the state has changed since
    _due: _Due | None = None
    #: the keys of the events that schedules listen to
    _heard: set[str] = field(default_factory=set)
    #: the number of events that the engine has read
    _read: int = 0
    #: the number of events searched for one that must be read, and whether there is one
    _looked_at: int = 0
    _must_read: bool = False
    #: the longest timeout of all deployed schedules
    _patience: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        self._begin = self.lines[0].at
        self._commands = Commands(cluster=_CLUSTER, world=self.world, store=ScheduleStore())
        self._engine: Engine | None = self._new_engine()

    def run(self) -> Iterator[Decision]:
        """Yields all decisions, from the first line to the end."""
        yield from self._deploy_first()
        now: datetime | None = self._begin
        while now is not None:
            yield from self._happen(now)
            if self._engine is not None and (self.every_tick or self._can_decide(now)):
                yield from self._tick_at(self._engine, now)
            now = self._next(now)

    def _deploy_first(self) -> Iterator[Decision]:
        # The first tick binds the location to the feed, which is still empty.
        self._new_engine().tick(self._begin)
        with self.database.begin() as tx:
            before = self._narrator.begin(tx)
            location = location_rows.locked(tx, _CLUSTER, self.world.location)
            self._location_id = location.id
            self._commands.deploy(tx, location, self.schedules, self._begin)
            decisions = self._narrator.changed(tx, before, self._begin)
            self._changed(tx, self.schedules)
        yield from decisions

    # The world.

    def _happen(self, now: datetime) -> Iterator[Decision]:
        """Applies everything up to a moment; a line comes before a run that ends by itself."""
        while True:
            line, end = self._next_line, self.world.next_end()
            if line is not None and line.at <= now and (end is None or line.at <= end):
                self._done += 1
                yield from self._apply(line)
            elif end is not None and end <= now:
                self.world.end_next()
            else:
                return

    def _apply(self, line: Line) -> Iterator[Decision]:
        if isinstance(line, Process):
            if line.do == "crash":
                self._engine = None
            elif line.do == "restart":
                self._engine = self._new_engine()
        elif isinstance(line, _ON_SCHEDULES):
            yield from self._command(line)
        else:
            play(self.world, line)

    def _command(self, line: OnSchedule | Update | Deploy) -> Iterator[Decision]:
        with self.database.begin() as tx:
            # Events before the deployment count for the old schedules.
            moves = self._commands.catch_up(tx, line)
            self._read = len(self.world.events)
            found = self._narrator.moves(tx, moves, line.at)
            before = self._narrator.begin(tx)
            self._commands.apply(tx, line)
            decisions = self._narrator.changed(tx, before, line.at)
            declared = line.schedules if isinstance(line, Deploy) else ()
            self._changed(tx, (line.schedule_spec,) if isinstance(line, Update) else declared)
        if isinstance(line, Deploy) and not decisions:
            reason = f"{line.file}: nothing changed"
            decisions = [
                Decision(at=line.at, schedule=None, job=None, decision="deployed", reason=reason)
            ]
        yield from (*found, *decisions)

    def _changed(self, tx: sa.Connection, declared: Sequence[Schedule]) -> None:
        """Updates the keys that schedules listen to and the longest timeout."""
        self._due = None
        self._heard = set(tx.execute(sa.select(schedule_keys.c.event_key)).scalars())
        self._looked_at, self._must_read = self._read, False
        self._patience = max([self._patience, *(schedule.timeout for schedule in declared)])

    @property
    def _next_line(self) -> Line | None:
        return self.lines[self._done] if self._done < len(self.lines) else None

    # The engine.

    def _new_engine(self) -> Engine:
        return Engine(
            database=self.database,
            cluster=_CLUSTER,
            location=self.world.location,
            feed=self.world,
            lookup=self.world,
            targets=self.world,
            surroundings=Surroundings(
                measure=self.world.measure,
                materialized_at=self.world.materialized_at,
                latest_checks=self.world.latest_checks,
            ),
            keep_house_every=_KEEP_HOUSE_EVERY,
            # After a failure in the one transaction nothing could be repeated.
            sets_aside=False,
            # A tick sees all earlier events, whatever their number.
            readings_per_tick=sys.maxsize,
        )

    def _tick_at(self, engine: Engine, now: datetime) -> Iterator[Decision]:
        result = engine.tick(now)
        self._due = None
        self._read = self._looked_at = len(self.world.events)
        self._must_read = result.position is None
        if not result.moves and not result.requests:
            return
        with self.database.read() as tx:
            decisions = self._narrator.moves(tx, result.moves, now)
            for request in result.requests:
                run = self.world.launch(request, now)
                if run is not None:
                    decisions.append(self._narrator.launched(tx, request, run, now))
        yield from decisions

    def _can_decide(self, now: datetime) -> bool:
        """Returns whether a tick at this moment may do something."""
        due = self._look_ahead()
        looks = (due.timer_at, due.look_at)
        return (
            due.unrequested
            or self._has_new_event()
            or any(at is not None and at <= now for at in looks)
        )

    def _has_new_event(self) -> bool:
        """Returns whether there is an unread event that may have an immediate effect.

        The start of a run that its job already knows can be read later, unless a schedule listens
        to it.
        """
        events = self.world.events
        while not self._must_read and self._looked_at < len(events):
            event = events[self._looked_at]
            self._looked_at += 1
            if event.kind is EventKind.RUN:
                ours = JOB_TAG in event.tags and event.status is RunStatus.STARTED
                self._must_read = not ours
            elif event.kind is EventKind.CHECK:
                # An arrival of the asset may have waited for it.
                self._must_read = str(EventKey.of_partition(event.subject)) in self._heard
            self._must_read |= any(str(key) in self._heard for key in event.keys)
        return self._must_read

    def _look_ahead(self) -> _Due:
        if self._due is None:
            with self.database.read() as tx:
                row = tx.execute(_DUE, {"location_id": self._location_id}).one()
            self._due = _Due(
                unrequested=row.unrequested, timer_at=row.timer_at, look_at=row.look_at
            )
        return self._due

    # Time.

    def _next(self, now: datetime) -> datetime | None:
        """Returns the next moment of the grid at which something can happen, or None at the end."""
        line, end_at = self._next_line, self.world.next_end()
        moments = [at for at in (line.at if line else None, end_at) if at is not None]
        soon, waits = now + self.tick, False
        if self._engine is not None:
            due = self._look_ahead()
            waits = due.unrequested or due.look_at is not None or self._has_new_event()
            moments += [at for at in (due.timer_at, due.look_at) if at is not None]
            if due.unrequested or self._has_new_event() or self.every_tick:
                moments.append(soon)
        if not moments or not (line or waits or end_at or self.until):
            return None
        moment = self._on_grid(max(min(moments), soon))
        if self.until is not None:
            return moment if moment <= self.until else None
        patient = self.lines[-1].at + self._patience + self.world.run_duration + 2 * self.tick
        return moment if line or moment <= patient else None

    def _on_grid(self, moment: datetime) -> datetime:
        """Returns the first moment of the grid at or after another one."""
        return self._begin - ((self._begin - moment) // self.tick) * self.tick
