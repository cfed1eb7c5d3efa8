"""Finds a location or a schedule by its name, and a job by a part of its id."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from heapq import nlargest
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.schedules.location import Location, from_row, is_alive
from arctic_orchestration.schedules.schedule import form_of
from arctic_orchestration.schedules.stored_schedule import Origin, ScheduleStatus
from arctic_orchestration.state.tables import jobs, locations, schedule_history, schedules

#: the shortest part of a job's id that is accepted
SHORTEST_PART = 4
#: how many names a message lists
_LISTED = 8
#: The names that are compared at most: of more, comparing takes seconds.
_COMPARED = 1_000
#: forms of schedules in memory at once
_READ_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleRow:
    """The stored row of a schedule, even if this version cannot read its spec."""

    id: str
    name: str
    version: int
    origin: Origin
    status: ScheduleStatus
    problem: str | None
    created_at: datetime
    updated_at: datetime
    status_at: datetime

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "ScheduleRow":
        """Reads a schedule from a row of ``arctic_schedules``."""
        values = {name: row[name] for name in cls.__slots__}
        origin, status = Origin(values["origin"]), ScheduleStatus(values["status"])
        return cls(**{**values, "origin": origin, "status": status})


def location_by_name(
    tx: sa.Connection, cluster: str, name: str | None, now: datetime | None = None
) -> Location:
    """Returns the location of a cluster with a name; not locked.

    Without a name: the only location or, given ``now``, the only one that still ticks.

    Errors:
        NotFound: no such location; lists the existing ones.
        InvalidInput: no name, and several locations.
    """
    query = sa.select(locations).where(locations.c.cluster == cluster)
    found = {row["name"]: row for row in tx.execute(query).mappings()}
    if not found:
        raise NotFound(
            f"cluster {cluster} has no location yet: the first tick of its dispatcher makes it "
            "(see: arctic doctor)"
        )
    if name is None:
        ticked = {here: row["ticked_at"] for here, row in found.items()}
        alive = [here for here, at in ticked.items() if now is not None and is_alive(at, now)]
        candidates = alive if len(alive) == 1 else list(found)
        if len(candidates) > 1:
            raise InvalidInput("--location", None, f"one of {', '.join(sorted(found))}")
        (name,) = candidates
    if name not in found:
        raise NotFound(
            f"cluster {cluster} has no location {name}; it has: {', '.join(sorted(found))}"
        )
    return from_row(found[name])


def schedule_rows(tx: sa.Connection, location_id: int) -> dict[str, ScheduleRow]:
    """Returns all schedules of a location by name, sorted by name."""
    columns = [schedules.c[name] for name in ScheduleRow.__slots__]
    query = sa.select(*columns).where(schedules.c.location_id == location_id)
    rows = [ScheduleRow.from_row(row) for row in tx.execute(query).mappings()]
    return {row.name: row for row in sorted(rows, key=lambda row: row.name)}


def stored_forms(
    tx: sa.Connection, location: Location
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yields the id, stored text, form and target of each schedule; needs memory for some of them.

    One of another version of the package may have no such target, and is left out: the store
    reports it.
    """
    query = sa.select(schedules.c.id, schedules.c.spec)
    query = query.where(schedules.c.location_id == location.id)
    for id, spec in tx.execute(query, execution_options={"yield_per": _READ_AT_ONCE}):
        form = form_of(spec)
        target = form.get("target", {})
        if isinstance(target, dict):
            yield id, spec, form, target


def schedule_by_name(tx: sa.Connection, location: Location, name: str) -> ScheduleRow:
    """Returns the schedule with a name.

    Errors:
        NotFound: no such schedule; lists similar names.
    """
    row = schedule_if_there(tx, location, name)
    if row is None:
        known = sa.select(schedules.c.name).where(schedules.c.location_id == location.id)
        names = list(tx.execute(known.order_by(schedules.c.name)).scalars())
        before = (schedule_history.c.location_id == location.id) & (schedule_history.c.name == name)
        was = tx.execute(sa.select(schedule_history.c.id).where(before).limit(1)).first()
        hint = f" (it was deleted: arctic schedules history {name})" if was else ""
        raise NotFound(f"location {location.name} has no schedule {name}{hint}{near(name, names)}")
    return row


def schedule_if_there(tx: sa.Connection, location: Location, name: str) -> ScheduleRow | None:
    """Returns the schedule with a name, or None."""
    columns = [schedules.c[column] for column in ScheduleRow.__slots__]
    here = (schedules.c.location_id == location.id) & (schedules.c.name == name)
    row = tx.execute(sa.select(*columns).where(here)).mappings().one_or_none()
    return ScheduleRow.from_row(row) if row is not None else None


def near(name: str, names: Sequence[str]) -> str:
    """Returns the end of a message: the names most similar to ``name``, or the existing ones."""
    compared = names
    if len(names) > _COMPARED:
        compared = nlargest(_COMPARED, names, lambda each: _equal_at_first(each, name))
    alike = get_close_matches(name, compared, n=3, cutoff=0.5)
    if alike:
        return f"; did you mean {' or '.join(alike)}?"
    if not names:
        return "; it has none"
    shown = ", ".join(sorted(names)[:_LISTED])
    more = len(names) - _LISTED
    return f"; it has: {shown}" + (f" and {more} more" if more > 0 else "")


def _equal_at_first(one: str, other: str) -> int:
    """Returns with how many equal characters two names begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def job_by_id_part(tx: sa.Connection, location: Location, part: str) -> str:
    """Returns the id of the job of a location that contains ``part``.

    Ids made in the same millisecond have the same beginning, so any unique part is accepted.

    Errors:
        NotFound: no job has it.
        InvalidInput: it is too short, or several jobs have it.
    """
    wanted = part.strip().lower()
    here = jobs.c.location_id == location.id
    whole = tx.execute(sa.select(jobs.c.id).where(here, jobs.c.id == wanted)).scalar()
    if whole is not None:
        return str(whole)
    if len(wanted) < SHORTEST_PART or not wanted.isalnum():
        raise InvalidInput("ID", part, f"a job's id, or {SHORTEST_PART} or more characters of it")
    alike = sa.select(jobs.c.id).where(here, jobs.c.id.contains(wanted, autoescape=True))
    found = list(tx.execute(alike.order_by(jobs.c.id.desc()).limit(_LISTED + 1)).scalars())
    if not found:
        raise NotFound(f"location {location.name} has no job {part} (see: arctic jobs list)")
    if len(found) > 1:
        shown = ", ".join(found[:_LISTED]) + (" and more" if len(found) > _LISTED else "")
        raise InvalidInput("ID", part, f"a part that one job has; several have it: {shown}")
    return str(found[0])
