"""The specification of a location: its schedules as they are, beside what the code declares."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_diff import FieldChange, changes
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.documents import schedule_document
from arctic_orchestration.schedules.views.listing import ListedSchedule, list_schedules
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import deleted_schedules, schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecifiedSchedule:
    """A schedule as it is stored, and as the code declares it."""

    listed: ListedSchedule
    #: None: not declared, or deployed by a version of the package that did not keep it
    declared: dict[str, Any] | None
    #: from the declaration to the stored schedule
    differences: tuple[FieldChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            **schedule_document(self.listed).to_json(),
            "declared": self.declared,
            "differences": [change.to_json() for change in self.differences],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Specification:
    """A page of a location's schedules."""

    schedules: Sequence[SpecifiedSchedule]
    #: declared schedules that a person deleted, all of them
    deleted: Sequence[str]
    next_after: str | None


def specification(
    tx: sa.Connection, store: ScheduleStore, location: Location, *, after: str, limit: int
) -> Specification:
    """Returns the first schedules of a location after a name, sorted by name."""
    page = list_schedules(tx, store, location, after=after, limit=limit)
    ids = [listed.row.id for listed in page.listed]
    query = sa.select(schedules.c.id, schedules.c.declared)
    rows = tx.execute(query.where(dialect.among(tx, schedules.c.id, ids)))
    declared = {row.id: json.loads(row.declared) for row in rows if row.declared is not None}
    deleted = deleted_schedules.c
    names = sa.select(deleted.name).where(deleted.location_id == location.id)
    return Specification(
        schedules=[_specified(listed, declared.get(listed.row.id)) for listed in page.listed],
        deleted=list(tx.execute(names.order_by(deleted.name)).scalars()),
        next_after=page.next_after,
    )


def _specified(listed: ListedSchedule, declared: dict[str, Any] | None) -> SpecifiedSchedule:
    differences: tuple[FieldChange, ...] = ()
    if declared is not None and listed.schedule is not None:
        # A declaration of another version of the package may lack defaults.
        with suppress(InvalidDefinition):
            declared = Schedule.stored(declared).to_form()
        differences = changes(declared, listed.schedule.to_form())
    return SpecifiedSchedule(listed=listed, declared=declared, differences=differences)
