"""What an adoption needs of Dagster's side, and of the event log."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from arctic_orchestration.event_log.feed import LookedUpFeed, Position
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.run_lookup import RetryLookup
from arctic_orchestration.schedules.adoption.journal import Boundary, Status


class Instigator(Protocol):
    """A schedule or sensor of Dagster. Each method may be repeated, also after a crash."""

    @property
    def name(self) -> str: ...

    @property
    def by_clock(self) -> bool:
        """Whether it is evaluated at ticks of a cron expression."""
        ...

    def status(self) -> Status:
        """Returns whether Dagster evaluates it."""
        ...

    def stop(self, clock: Callable[[], datetime]) -> str | None:
        """Stops it where no tick is open; returns what it waits for, or None if it is stopped."""
        ...

    def boundary(self, now: datetime) -> Boundary | str:
        """Returns where a stopped one ended, or what has to happen before this is known."""
        ...

    def hold(self, now: datetime) -> None:
        """Keeps one that is off from being evaluated if a user starts it, where that can be."""
        ...

    def start(self, boundary: Boundary, status: Status, now: datetime) -> str | None:
        """Gives it a status again, above the boundary; returns what it waits for, or None."""
        ...


def stop(instigator: Instigator, clock: Callable[[], datetime]) -> Boundary | str:
    """Stops an instigator; returns where it ended, or what has to happen before."""
    waits = instigator.stop(clock)
    return instigator.boundary(clock()) if waits is None else waits


class Log(LookedUpFeed, RetryLookup, Protocol):
    """Dagster's event log."""

    def before(self, event_id: int) -> Position:
        """Returns the position whose next reading begins with the event with this id."""
        ...

    def delivered(self, position: Position) -> tuple[int, IdRanges]:
        """Returns which events the readings up to a position have delivered, by their ids."""
        ...

    def final_up_to(self, position: Position) -> int:
        """Returns the id up to which no event can appear any more that was not delivered."""
        ...
