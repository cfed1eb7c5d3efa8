"""The base of triggers: pure rules over arrivals and time.

A trigger is a tree. Its *leaves* are numbered from left to right and take events: each leaf gives
the event keys that it listens to, and decides which of those events it takes. :class:`Arrivals`
sums up what has arrived at a leaf since the last job. From these sums and the time
:meth:`Trigger.evaluate` computes a :class:`Firing`. A leaf whose events are moments of time gives
its next one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.specification import AssetName, Tagged

if TYPE_CHECKING:
    from arctic_orchestration.schedules.triggers.combined import AllOf, AnyOf


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrivals:
    """The events that one leaf has taken since the last job."""

    events: int = 0
    #: how many *different* partitions
    partitions: int = 0
    bytes: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    #: how many of the events are moments of time
    ticks: int = 0
    #: when the leaf alone was first satisfied; recorded for triggers that need it
    fired_at: datetime | None = None
    #: the last of the moments of time
    ticked_at: datetime | None = None
    #: whether the target partition had run before these arrivals
    late: bool = False
    #: the missing partitions of a leaf that waits for all; None: it does not
    required: int | None = None
    #: how many of them have not arrived, and which, if they are few
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
        """Returns these arrivals and one more at ``at``; a moment of time is no partition."""
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

    def as_of(self, now: datetime) -> "Arrivals":
        """Returns these arrivals, each moment after ``now`` replaced by it."""
        return replace(
            self,
            first_at=self.first_at and min(self.first_at, now),
            last_at=self.last_at and min(self.last_at, now),
            fired_at=self.fired_at and min(self.fired_at, now),
            ticked_at=self.ticked_at and min(self.ticked_at, now),
        )

    def to_json(self) -> list[Any]:
        """Returns a compact form for the database; :meth:`from_json` reads it."""
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
        """Reads the form that :meth:`to_json` made."""
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
    """The result of a trigger: satisfied or not, why, and when to recheck it without an event."""

    satisfied: bool
    reason: str
    recheck_at: datetime | None = None
    children: tuple["Firing", ...] = ()
    #: the first firing since the last job, even if it is no longer satisfied; then, only while
    #: it is satisfied, the last one: a leaf fires with each arrival while it is satisfied
    first_at: datetime | None = None
    last_at: datetime | None = None


class Trigger(Tagged):
    """The base of all triggers; see the module's docstring for the parts."""

    @property
    def leaves(self) -> tuple["Leaf", ...]:
        """The leaves of the tree, from left to right."""
        raise NotImplementedError

    def places(self, place: str) -> Iterator[tuple[str, "Leaf"]]:
        """Returns each leaf with its path in the written form, for a trigger at ``place``."""
        raise NotImplementedError

    @property
    def notes_firings(self) -> bool:
        """Whether it needs to know when each leaf alone was first satisfied."""
        return False

    @property
    def begins_with_tick(self) -> bool:
        """Whether a job's timeout begins with the tick of the first leaf, each with its own job."""
        return False

    @property
    def is_one_event(self) -> bool:
        """Whether each event is a job of its own, whatever the schedule coalesces."""
        return False

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        """Returns the result at ``now``, given the arrivals of each leaf in order."""
        raise NotImplementedError

    def __or__(self, other: "Trigger") -> "AnyOf":
        """A trigger that fires when this or ``other`` does."""
        from arctic_orchestration.schedules.triggers.combined import AnyOf

        return AnyOf.joining(self, other)

    def __and__(self, other: "Trigger") -> "AllOf":
        """A trigger that fires when both this and ``other`` have fired."""
        from arctic_orchestration.schedules.triggers.combined import AllOf

        return AllOf.joining(self, other)


class Leaf(Trigger):
    """A trigger without children: it takes events itself."""

    @property
    def label(self) -> str:
        """Its kind and what it listens to, such as ``partitions raw/flights``."""
        names = {*self.asset_fields().values(), *self.job_name_fields().values()}
        return f"{self.kind} {', '.join(sorted(names))}".rstrip()

    @property
    def leaves(self) -> tuple["Leaf", ...]:
        return (self,)

    def places(self, place: str) -> Iterator[tuple[str, "Leaf"]]:
        yield f"{place}.{self.kind}", self

    def keys(self, location: str) -> tuple[EventKey, ...]:
        """Returns the keys of the events that it listens to, for a schedule of ``location``."""
        return ()

    def takes(self, event: Event) -> bool:
        """Returns whether it takes an event that matches one of its keys."""
        return True

    def asset_fields(self) -> Mapping[str, str]:
        """Returns the assets in its fields, which must exist, by field."""
        return {}

    def job_name_fields(self) -> Mapping[str, str]:
        """Returns the jobs of its own code location in its fields, which must exist, by field."""
        return {}

    @property
    def asset_of_partitions(self) -> str | None:
        """The asset whose partitions its events are about, if any."""
        return None

    @property
    def source(self) -> "PartitionSource":
        """How partitions of its asset map to partitions of a target."""
        return _PLAIN_SOURCE

    @property
    def clock(self) -> "PartitionClock | None":
        """How a moment of time selects partitions of the target; None: it selects none."""
        return None

    @property
    def needs_all(self) -> bool:
        """Whether it needs to know which partitions belong together, and which are missing."""
        return False

    def wanted_of(self, partitions: Sequence[str]) -> Sequence[str]:
        """Returns the partitions of its asset among these that it takes."""
        return partitions

    @property
    def restarts_at_launch(self) -> bool:
        """Whether its timer restarts, at ``next_tick(now)``, when a job is admitted."""
        return False

    def restarts_at(self, arrivals: Arrivals, now: datetime) -> bool:
        """Returns whether an event that it just took restarts its timer."""
        return False

    def next_tick(self, after: datetime, name: str) -> datetime | None:
        """Returns the first moment after ``after`` at which time itself is an event, if any.

        Args:
            after: an aware moment.
            name: the schedule's name, which spreads ``H`` in a cron expression.
        """
        return None

    def ticks_due(self, due_at: datetime, now: datetime, name: str) -> "Ticks":
        """Returns the ticks to deliver at ``now``; the earliest was due at ``due_at``."""
        raise NotImplementedError

    def _counted(self, arrived: Arrivals, count: int, reason: str) -> Firing:
        """Returns the result of a trigger that fires when it has taken ``count`` events."""
        if arrived.events < count:
            return Firing(satisfied=False, reason=reason)
        first_at = arrived.first_at if count == 1 else arrived.fired_at or arrived.last_at
        return Firing(satisfied=True, reason=reason, first_at=first_at, last_at=arrived.last_at)


class ArrivalLeaf(Leaf):
    """A leaf that takes arrivals of an asset, each of a partition of it."""

    asset: AssetName

    def keys(self, location: str) -> tuple[EventKey, ...]:
        return (EventKey.of_partition(self.asset),)

    def takes(self, event: Event) -> bool:
        return event.kind is EventKind.PARTITION

    def asset_fields(self) -> Mapping[str, str]:
        return {"asset": self.asset}

    @property
    def asset_of_partitions(self) -> str | None:
        return self.asset


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticks:
    """The moments of a time leaf to deliver, and the next one to wait for."""

    deliver: tuple[datetime, ...]
    next_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionSource:
    """The partition settings of a leaf for its asset."""

    #: the written form of a mapping to target partitions; None: the dependency's, or the default
    mapping: str | Mapping[str, Any] | None = None
    #: the dimension that groups keys if the target has no partitions
    per: str | None = None
    #: whether partitions that arrived before the last job, or the schedule, count as arrived
    complete: bool = False
    #: whether arrivals at a target partition that has run are dropped
    ignores_late: bool = False
    #: whether arrivals that a backfill made are dropped
    ignores_backfills: bool = False
    #: whether an arrival counts only if its data version differs from the previous one
    only_changed: bool = False
    #: the asset checks an arrival waits for, in addition to blocking ones; ``("*",)``: all
    checks: tuple[str, ...] = ()


_PLAIN_SOURCE = PartitionSource()


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionClock:
    """Which partitions of a target a moment selects."""

    #: ``last_ended``, ``current``, ``all_missing``, ``ended`` or the keys themselves
    partition: str | tuple[str, ...]
    #: in partitions, counted from the selected one
    offset: int = 0
    #: how long after the end of a partition's window the moment lies; for ``ended``
    after: timedelta | None = None
