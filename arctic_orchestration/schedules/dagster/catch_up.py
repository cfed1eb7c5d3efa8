"""Changes schedules so that they count from the moment of the change, not from the next tick.

Before a manual change, Dagster's event log is read to its end, as the dispatcher would: arrivals
before the change count for the old schedules. If there is no log to read, the moments of events
decide, and the caller gets a note.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.errors import ArcticError
from arctic_orchestration.schedules import event_intake
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus, takes_events
from arctic_orchestration.state import dialect

if TYPE_CHECKING:
    from arctic_orchestration.event_log.dagster_log import DagsterLog

_SUSPENDED = ScheduleStatus.SUSPENDED


@dataclass(frozen=True, kw_only=True)
class Change:
    """The transaction of a change, with the locked location."""

    tx: sa.Connection
    place: Location
    state: State
    now: datetime
    #: whether all events from before the change were read
    caught_up: bool

    def counts_from_now(self, names: Sequence[str]) -> None:
        """Makes schedules that were created, updated or enabled take only later events."""
        at = None if self.caught_up else self.now
        self.state.store.count_from(self.tx, self.place, names, at)

    def enabled(self, names: Sequence[str]) -> None:
        """As :meth:`counts_from_now`, but for those that took events while they were suspended."""
        if not self.caught_up:
            stored = self.state.store.in_location(self.tx, self.place.id)
            collect = {one.name for one in stored if takes_events(_SUSPENDED, one.schedule)}
            names = [name for name in names if name not in collect]
        self.counts_from_now(names)


@contextmanager
def changing(
    state: State, now: datetime, *, note: Callable[[str], None], ticks: bool = False
) -> Iterator[Change]:
    """Begins the transaction of a change, after reading the log to its end.

    Args:
        state: the location.
        now: the moment of the change.
        note: takes a sentence for people if the log cannot be read.
        ticks: whether due ticks of time count, too, for the old schedules.
    """
    unwanted: list[str] = []
    with state.read() as (tx, _):
        # On a host whose clock is ahead, the change would begin later than now.
        now = dialect.not_ahead(tx, now)
    with _log(state) as (instance, log, problem):
        if log is not None:
            try:
                unwanted += state.read_on(log, now)
            except Exception as error:
                problem = str(error) or type(error).__name__
        with state.change() as (tx, place):
            if log is not None and problem is None:
                done = event_intake.catch_up(tx, place, log, log, state.store, now, ticks=ticks)
                unwanted += done.unwanted
            yield Change(tx=tx, place=place, state=state, now=now, caught_up=problem is None)
        for run_id in unwanted:
            # The next event of the run gives the dispatcher another chance.
            with suppress(Exception):
                instance.run_coordinator.cancel_run(run_id)
    if problem is not None and place.position is not None:
        note(f"Dagster's event log cannot be read here ({problem}): events count by their moments")


@contextmanager
def _log(state: State) -> Iterator[tuple[Any, "DagsterLog | None", str | None]]:
    """Yields Dagster's instance and its log, or the reason why there is none."""
    if "DAGSTER_HOME" not in os.environ:
        yield None, None, "DAGSTER_HOME is not set"
        return
    from dagster import DagsterInstance

    from arctic_orchestration.console.dagster_errors import dagster_message
    from arctic_orchestration.event_log.dagster_log import DagsterLog

    with state.read() as (_, place):
        known_as = place.owner.rpartition("/")[0] if place.owner else None
    problem = None
    instance, log = None, None
    with ExitStack() as opened:
        try:
            instance = opened.enter_context(DagsterInstance.get())
            log = DagsterLog(instance, location=place.name, known_as=known_as)
            opened.callback(log.close)
        except Exception as error:
            problem = str(error) if isinstance(error, ArcticError) else dagster_message(error)
        yield instance, log, problem
