"""Filters lists of schedules: by status, target, kind of trigger, or what they listen to."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import EventKey, RunStatus
from arctic_orchestration.schedules import triggers
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStatus
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

    def __post_init__(self) -> None:
        statuses = [status.value for status in ScheduleStatus]
        if self.status is not None and self.status not in statuses:
            raise InvalidInput("--status", self.status, f"one of {', '.join(statuses)}")
        if self.trigger is not None and self.trigger not in triggers.KINDS:
            raise InvalidInput("--trigger", self.trigger, f"one of {', '.join(triggers.KINDS)}")

    @property
    def reads_forms(self) -> bool:
        """Whether :meth:`admits` must check the forms, too."""
        return self.target is not None or self.trigger is not None

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
            heard = sa.exists().where(
                schedule_keys.c.location_id == location.id,
                schedule_keys.c.event_key.in_(_keys(location.name, self.listens_to)),
                schedule_keys.c.schedule_id == schedules.c.id,
            )
            here.append(heard)
        return here

    def admits(self, form: Mapping[str, Any]) -> bool:
        """Returns whether target and trigger of a stored form match the filter."""
        target = form.get("target", {})
        targets = (target.get("job"), *target.get("assets", ()))
        if self.target is not None and self.target not in targets:
            return False
        return self.trigger is None or self.trigger in _kinds(form.get("trigger"))


def _keys(location: str, name: str) -> Sequence[str]:
    runs = [
        key(location, name, status)
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
            if kind in ("any_of", "all_of"):
                for child in children:
                    yield from _kinds(child)
