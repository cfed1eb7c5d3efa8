"""Where adoptions happen: a location in the state database, and Dagster's event log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.schedules import event_intake
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.adoption.instigator import Log
from arctic_orchestration.schedules.adoption.journal import Adoption
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.state import dialect
from arctic_orchestration.state.audit import NO_ACTOR, Actor


@dataclass(frozen=True, kw_only=True)
class Place:
    """A location whose dispatcher has ticked, with what changes of it need."""

    state: State
    log: Log
    #: returns the present moment: a step may have waited for others
    clock: Callable[[], datetime]
    #: terminates a run whose job was canceled before the run was seen
    cancel: Callable[[str], None] = lambda _: None
    actor: Actor = NO_ACTOR

    def delivered(self, location: Location) -> tuple[int, IdRanges]:
        """Returns which events the location's feed has delivered, by their ids."""
        return self.log.delivered(Position.from_json(location.position or ""))

    def last_delivered(self, location: Location) -> int:
        """Returns the largest id of these events."""
        final, later = self.delivered(location)
        return max([final, *(high for _, high in later)])

    def stored(
        self, tx: sa.Connection, location: Location, adoption: Adoption
    ) -> StoredSchedule | None:
        """Returns the schedule of an adoption, or None if a person deleted it."""
        found = self.state.store.in_location(tx, location.id)
        return next((one for one in found if one.name == adoption.schedule), None)

    @contextmanager
    def caught_up(
        self, *, ticks: bool = False
    ) -> Iterator[tuple[sa.Connection, Location, datetime]]:
        """Begins a transaction in which every visible event was given to the schedules.

        No dispatcher of the location works meanwhile. ``ticks``: also the ticks that are due.

        Errors:
            TransitionRefused: the dispatcher of the location has never ticked.
        """
        unwanted = self.state.read_on(self.log, self.clock())
        with self.state.change() as (tx, place):
            # On a host whose clock is ahead, a tick that is not due would be delivered.
            now = dialect.not_ahead(tx, self.clock())
            if place.position is None:
                raise TransitionRefused(
                    f"the dispatcher of {place.name} has never ticked: start it first, so that it "
                    "knows where it reads (see: arctic doctor)"
                )
            store = self.state.store
            done = event_intake.catch_up(tx, place, self.log, self.log, store, now, ticks=ticks)
            unwanted += done.unwanted
            yield tx, locations.locked(tx, place.cluster, place.name), now
        for run_id in unwanted:
            self.cancel(run_id)
