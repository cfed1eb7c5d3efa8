"""Filters lists of schedules: by name, status, target, kind of trigger, or what they listen to."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.event_log.event import ANY_LOCATION, Event, EventKey, EventKind, RunStatus
from arctic_orchestration.schedules import triggers
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus
from arctic_orchestration.schedules.triggers import Elapsed, Leaf, Partitions, Run
from arctic_orchestration.state.tables import schedule_keys, schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleFilter:
    """The conditions on a listed schedule; a field that is None is no condition."""

    status: str | None = None
    #: a job, or one of several assets
    target: str | None = None
    #: a kind of trigger anywhere in its tree
    trigger: str | None = None
    #: an asset whose arrivals or runs it takes, or a job of its location whose runs it takes
    listens_to: str | None = None
    #: a glob on the name
    name: str | None = None
    #: events of which its trigger takes at least one; an arrival without a partition stands for
    #: arrivals of any partition, and an event stands for those with any metadata or tags
    events: Sequence[Event] | None = None
    #: suspended since a moment of this half-open span; one that was never enabled is not
    suspended_from: datetime | None = None
    suspended_until: datetime | None = None
    #: which names the caller may see
    is_visible: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        statuses = [status.value for status in ScheduleStatus]
        if self.status is not None and self.status not in statuses:
            raise InvalidInput("--status", self.status, f"one of {', '.join(statuses)}")
        if self.trigger is not None and self.trigger not in triggers.KINDS:
            raise InvalidInput("--trigger", self.trigger, f"one of {', '.join(triggers.KINDS)}")

    @property
    def reads_rows(self) -> bool:
        """Whether :meth:`admits` must check the rows of the database, too."""
        in_code = (self.target, self.trigger, self.name, self.events, self.is_visible)
        return any(condition is not None for condition in in_code)

    def conditions(self, location: Location) -> list[sa.ColumnElement[bool]]:
        """Returns the conditions for the database; for target and trigger only the word."""
        here = [schedules.c.location_id == location.id]
        if self.status is not None:
            here.append(schedules.c.status == self.status)
        here.extend(
            schedules.c.spec.contains(json.dumps(word), autoescape=True)
            for word in (self.target, self.trigger)
            if word is not None
        )
        if self.listens_to is not None:
            here.append(_hears(location, _keys(location.name, self.listens_to)))
        if self.events is not None:
            here.append(_hears(location, [key for event in self.events for key in event.keys]))
        suspended = self.suspended_from is not None or self.suspended_until is not None
        if suspended:
            here.append(schedules.c.status == ScheduleStatus.SUSPENDED.value)
            here.append(schedules.c.status_at > schedules.c.created_at)
        if self.suspended_from is not None:
            here.append(schedules.c.status_at >= self.suspended_from)
        if self.suspended_until is not None:
            here.append(schedules.c.status_at < self.suspended_until)
        return here

    def admits(self, name: str, form: Mapping[str, Any], location: Location) -> bool:
        """Returns whether the name, target and trigger of a stored form match the filter."""
        if self.is_visible is not None and not self.is_visible(name):
            return False
        if self.name is not None and not fnmatchcase(name, self.name):
            return False
        if self.events is not None and not _takes(form, self.events, location):
            return False
        target = form.get("target", {})
        # One of another version of the package has no such target.
        known = target if isinstance(target, dict) else {}
        targets = (known.get("job"), *known.get("assets", ()))
        if self.target is not None and self.target not in targets:
            return False
        return self.trigger is None or self.trigger in _kinds(form.get("trigger"))


def _hears(location: Location, keys: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        schedule_keys.c.location_id == location.id,
        schedule_keys.c.event_key.in_(keys),
        schedule_keys.c.schedule_id == schedules.c.id,
    )


def _is_any_arrival(event: Event) -> bool:
    return event.kind is EventKind.PARTITION and event.partition is None


def _takes(form: Mapping[str, Any], events: Sequence[Event], location: Location) -> bool:
    """Returns whether a leaf of a stored form takes one of some events."""
    try:
        leaves = Schedule.stored(form).trigger.leaves
    except InvalidDefinition:
        # Written by another version of the package: it takes no events here.
        return False
    return any(
        _is_any_arrival(event) or _as_asked(leaf, event).takes(event)
        for leaf in leaves
        for event in events
        if set(event.keys) & set(leaf.keys(location.name))
    )


def _as_asked(leaf: Leaf, event: Event) -> Leaf:
    """Returns a leaf without its conditions on what the filter cannot say of an event."""
    if isinstance(leaf, Elapsed) and not isinstance(leaf.since, str):
        return _as_asked(leaf.since, event)
    if isinstance(leaf, Run):
        return leaf.model_copy(update={"tags": {}} if event.subject else {"tags": {}, "job": None})
    return leaf.model_copy(update={"metadata": {}}) if isinstance(leaf, Partitions) else leaf


def _keys(location: str, name: str) -> Sequence[str]:
    runs = [
        key(at, name, status)
        for at in (location, ANY_LOCATION)
        for key in (EventKey.of_job_run, EventKey.of_asset_run)
        for status in RunStatus
    ]
    return [str(key) for key in (EventKey.of_partition(name), *runs)]


def _kinds(trigger: object) -> Iterator[str]:
    """Yields the kinds of a written trigger and of all its children."""
    if isinstance(trigger, Mapping):
        for kind, fields in trigger.items():
            yield kind
            children = fields.get("of", ()) if isinstance(fields, Mapping) else fields
            if kind in ("any_of", "all_of", "then"):
                for child in children:
                    yield from _kinds(child)
