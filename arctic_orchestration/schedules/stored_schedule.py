"""A schedule as it is stored: its definition, status and origin."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import Arrivals, Leaf

#: Modes in which a suspended schedule goes on taking events.
_COLLECTING = ("backlog", "collect")


class ScheduleStatus(StrEnum):
    """Whether a schedule takes events."""

    ENABLED = "enabled"
    SUSPENDED = "suspended"
    #: it decides beside a schedule or sensor of Dagster, and launches nothing; see ``adoption``
    SHADOWED = "shadowed"


class Origin(StrEnum):
    """Where a schedule comes from, which decides whose deployments may change it."""

    #: declared in the code location
    CODE = "code"
    #: made over REST or by command; no deployment changes it
    API = "api"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSchedule:
    """A schedule with its stored state."""

    id: str
    name: str
    version: int
    origin: Origin
    status: ScheduleStatus
    schedule: Schedule
    leaves: tuple[Leaf, ...]
    #: whether its trigger needs to know when each leaf was first satisfied
    notes_firings: bool
    #: whether events may belong to partitions or groups, each with a job of its own
    is_scoped: bool
    #: leaves whose events without a partition are kept for partitions that begin later
    kept: tuple[int, ...]
    #: leaves whose timer restarts at each launch
    restarted: tuple[int, ...]
    status_at: datetime
    #: earlier events are not taken; None: their position in the log decides
    counts_from: datetime | None
    #: it was handed back to Dagster: no tick, and no event with a larger id, is taken; None: it
    #: was not
    until_event: int | None

    @property
    def suspended(self) -> bool:
        """Whether it was suspended, or never enabled."""
        return self.status is ScheduleStatus.SUSPENDED

    @property
    def shadowed(self) -> bool:
        """Whether its jobs end where their runs would be requested."""
        return self.status is ScheduleStatus.SHADOWED

    @property
    def takes_events(self) -> bool:
        """Whether it gets events and ticks."""
        return takes_events(self.status, self.schedule)

    def counts(self, event: Event) -> bool:
        """Returns whether it gets an event: the status, the moment and the id decide."""
        if self.counts_from is not None and event.at < self.counts_from:
            return False
        if self.until_event is not None and event.storage_id > self.until_event:
            return False
        return self.takes_events

    @property
    def takes_more(self) -> bool:
        """Whether events join a job whose trigger is satisfied."""
        if self.schedule.trigger.is_one_event:
            return False
        if self.suspended and self.takes_events:
            return self.schedule.suspend_mode == "collect"
        # With ``then``, what follows the next tick must not join the job of the one before.
        return self.schedule.coalesce and not self.schedule.trigger.begins_with_tick

    def common_number(self, arrivals: Sequence[Arrivals]) -> int:
        """Returns the number of the last event in arrivals that is kept for all partitions."""
        return max((arrivals[leaf].number for leaf in self.kept), default=0)

    @property
    def launches(self) -> bool:
        """Whether its jobs may be launched: not while it collects until it is resumed."""
        return not self.suspended or self.schedule.suspend_mode == "drain"


def takes_events(status: ScheduleStatus, schedule: Schedule) -> bool:
    """Returns whether a schedule of this status takes events."""
    return status is not ScheduleStatus.SUSPENDED or schedule.suspend_mode in _COLLECTING
