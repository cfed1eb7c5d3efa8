"""What a trigger is: a pure rule over what has arrived and the time.

A trigger is a tree. Its *leaves* are numbered from left to right and take events: each leaf
says by which event keys it wants to be found and which of those events it takes. What has
arrived at each leaf since the last job is summed up as :class:`Arrivals`; from these sums
and the time :meth:`Trigger.evaluate` answers with a :class:`Firing`. A leaf whose events are
moments in time says when its next one is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.specification import Tagged

if TYPE_CHECKING:
    from arctic_orchestration.schedules.triggers.combined import AllOf, AnyOf


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrivals:
    """What one leaf has taken since the last job."""

    events: int = 0
    #: how many *different* partitions
    partitions: int = 0
    bytes: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    #: how many of the events are moments of time
    ticks: int = 0
    #: when the leaf alone was satisfied for the first time; noted for triggers that ask for it
    fired_at: datetime | None = None
    #: the last of the moments of time
    ticked_at: datetime | None = None
    #: whether the target partition had run before these arrivals
    late: bool = False
    #: the partitions that are to arrive at a leaf that waits for all; none: it does not
    required: int | None = None
    #: how many of them have not arrived, and which, where they are few
    lacking: int = 0
    missing: tuple[str, ...] = ()
    #: the number of the last event
    number: int = 0

    def with_event(
        self,
        event: Event,
        *,
        new_partition: bool,
        at: datetime,
        number: int = 0,
        late: bool = False,
    ) -> "Arrivals":
        """These arrivals and one more, which came ``at``; a moment of time is no partition."""
        tick = event.kind is EventKind.TICK
        return replace(
            self,
            events=self.events + 1,
            partitions=self.partitions + (new_partition and not tick),
            bytes=self.bytes + (event.bytes or 0),
            first_at=at if self.first_at is None or at < self.first_at else self.first_at,
            last_at=at if self.last_at is None or at > self.last_at else self.last_at,
            ticks=self.ticks + tick,
            ticked_at=at if tick else self.ticked_at,
            number=number,
            late=late,
        )

    def to_json(self) -> list[Any]:
        """A compact form for the database; :meth:`from_json` reads it back."""
        first = self.first_at.isoformat() if self.first_at else None
        last = self.last_at.isoformat() if self.last_at else None
        form: list[Any] = [self.events, self.partitions, self.bytes, first, last]
        of_partition = self.late or self.required is not None or self.number
        if self.ticks or self.fired_at or of_partition:
            fired = self.fired_at.isoformat() if self.fired_at else None
            form += [self.ticks, fired, self.ticked_at.isoformat() if self.ticked_at else None]
        if of_partition:
            form += [self.late, self.required, self.lacking, self.missing, self.number]
        return form

    @classmethod
    def from_json(cls, form: Sequence[Any]) -> "Arrivals":
        """The arrivals that :meth:`to_json` wrote."""
        events, partitions, size, first, last, *more = form
        ticks, fired, ticked, *more = more or (0, None, None)
        late, required, lacking, missing, number = more or (False, None, 0, (), 0)
        return cls(
            events=events,
            partitions=partitions,
            bytes=size,
            first_at=datetime.fromisoformat(first) if first else None,
            last_at=datetime.fromisoformat(last) if last else None,
            ticks=ticks,
            fired_at=datetime.fromisoformat(fired) if fired else None,
            ticked_at=datetime.fromisoformat(ticked) if ticked else None,
            late=late,
            required=required,
            lacking=lacking,
            missing=tuple(missing),
            number=number,
        )


NOTHING = Arrivals()


@dataclass(frozen=True, kw_only=True, slots=True)
class Firing:
    """A trigger's answer: satisfied or not, why, and when to ask again without an event."""

    satisfied: bool
    reason: str
    recheck_at: datetime | None = None
    children: tuple["Firing", ...] = ()
    #: when it fired for the first time since the last job, also if it is not satisfied any more;
    #: satisfied only: when for the last time. A leaf fires with each arrival while it is satisfied
    first_at: datetime | None = None
    last_at: datetime | None = None


class Trigger(Tagged):
    """The base of all triggers; see the module's text for the parts."""

    @property
    def leaves(self) -> tuple["Leaf", ...]:
        """The leaves of the tree, from left to right."""
        raise NotImplementedError

    def places(self, place: str) -> Iterator[tuple[str, "Leaf"]]:
        """Each leaf with its path in the written form, for a trigger that stands at ``place``."""
        raise NotImplementedError

    @property
    def notes_firings(self) -> bool:
        """Whether it must know when each leaf alone was first satisfied."""
        return False

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        """The answer at ``now``, given the arrivals of each leaf in order."""
        raise NotImplementedError

    def __or__(self, other: "Trigger") -> "AnyOf":
        """A trigger that fires when this or ``other`` does."""
        from arctic_orchestration.schedules.triggers.combined import AnyOf

        return AnyOf.joining(self, other)

    def __and__(self, other: "Trigger") -> "AllOf":
        """A trigger that fires when both this and ``other`` have."""
        from arctic_orchestration.schedules.triggers.combined import AllOf

        return AllOf.joining(self, other)


class Leaf(Trigger):
    """A trigger without children: it takes events itself."""

    @property
    def leaves(self) -> tuple["Leaf", ...]:
        return (self,)

    def places(self, place: str) -> Iterator[tuple[str, "Leaf"]]:
        yield f"{place}.{self.kind}", self

    def keys(self, location: str) -> tuple[EventKey, ...]:
        """The keys of the events it wants to see, for a schedule of ``location``."""
        return ()

    def takes(self, event: Event) -> bool:
        """Whether it takes an event that was found by one of its keys."""
        return True

    def asset_fields(self) -> Mapping[str, str]:
        """The assets it names, which must exist, by the field in which each stands."""
        return {}

    def job_name_fields(self) -> Mapping[str, str]:
        """The jobs of its own code location that it names, which must exist, by their field."""
        return {}

    @property
    def asset_of_partitions(self) -> str | None:
        """The asset whose partitions its events are about, as far as they are about any."""
        return None

    @property
    def source(self) -> "PartitionSource":
        """How partitions of its asset belong to partitions of a target."""
        return _PLAIN_SOURCE

    @property
    def clock(self) -> "PartitionClock | None":
        """How a moment of time names partitions of the target; none: it names none."""
        return None

    @property
    def needs_all(self) -> bool:
        """Whether it must know which partitions belong together, and which of them are missing."""
        return False

    def wanted_of(self, partitions: Sequence[str]) -> Sequence[str]:
        """Those of some partitions of its asset that it takes."""
        return partitions

    @property
    def restarts_at_launch(self) -> bool:
        """Whether its timer begins anew, at ``next_tick(now)``, when a job was admitted."""
        return False

    def restarts_at(self, arrivals: Arrivals, now: datetime) -> bool:
        """Whether an event that it just took lets its timer begin anew."""
        return False

    def next_tick(self, after: datetime, name: str) -> datetime | None:
        """The first moment after ``after`` at which time itself is an event, if any.

        Args:
            after: an aware moment.
            name: the schedule's name, by which ``H`` in a cron expression is spread.
        """
        return None

    def ticks_due(self, due_at: datetime, now: datetime, name: str) -> "Ticks":
        """The ticks to deliver at ``now`` when the earliest undelivered one was ``due_at``."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticks:
    """Moments of a time leaf that are to be delivered, and the next one to wait for."""

    deliver: tuple[datetime, ...]
    next_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionSource:
    """What a leaf says about the partitions of its asset."""

    #: the written form of a mapping to the target's partitions; none: the dependency's, or default
    mapping: str | Mapping[str, Any] | None = None
    #: the dimension by which keys are grouped where the target has no partitions
    per: str | None = None
    #: whether partitions that arrived before the last job, or the schedule, count as arrived
    complete: bool = False
    #: whether arrivals at a target partition that has run are left out
    ignores_late: bool = False
    #: whether arrivals that a backfill made are left out
    ignores_backfills: bool = False
    #: whether an arrival counts only if its data version differs from the one before
    only_changed: bool = False
    #: the asset checks an arrival waits for, beside those that block; ``("*",)``: all
    checks: tuple[str, ...] = ()


_PLAIN_SOURCE = PartitionSource()


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionClock:
    """Which partitions of a target a moment names."""

    #: ``last_ended``, ``current``, ``all_missing``, ``ended`` or the keys themselves
    partition: str | tuple[str, ...]
    #: in partitions, from the one that is named
    offset: int = 0
    #: how long after the end of a partition's window the moment lies; for ``ended``
    after: timedelta | None = None
