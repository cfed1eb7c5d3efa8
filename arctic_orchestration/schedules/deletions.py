"""Declared schedules that a person deleted: they stay deleted until the code changes them."""

import json
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule, digest, digest_of_forms, form_of
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.tables import deleted_schedules, schedules

_deleted = deleted_schedules.c


def note_declared(tx: sa.Connection, location: Location, declared: Iterable[Schedule]) -> None:
    """Records the declared definitions on the stored schedules that the code owns."""
    by_name = {one.name: one for one in declared}
    of_row = schedules.c
    has_form = of_row.declared.is_not(None).label("has_form")
    query = sa.select(of_row.id, of_row.name, of_row.declared_digest, has_form).where(
        of_row.location_id == location.id, of_row.origin == "code"
    )
    changed = []
    for row in tx.execute(query):
        if row.name not in by_name:
            continue
        form = by_name[row.name].to_form()
        new = digest_of_forms([form])
        if row.declared_digest != new or not row.has_form:
            changed.append((json.dumps(form), new, row.id))
    if changed:
        bulk_rows.update_rows(tx, schedules, ("declared", "declared_digest"), changed)


def note(tx: sa.Connection, location: Location, schedule_id: str) -> None:
    """Records the declared definition of a schedule before it is deleted."""
    query = sa.select(schedules.c.name, schedules.c.declared_digest, schedules.c.spec)
    row = tx.execute(query.where(schedules.c.id == schedule_id)).one()
    # Deployed by a version that did not record it: the stored definition counts as declared.
    declared = row.declared_digest or digest_of_forms([form_of(row.spec)])
    restored(tx, location, [row.name])
    values = {"location_id": location.id, "name": row.name, "declared_digest": declared}
    tx.execute(sa.insert(deleted_schedules).values(values))


def still_deleted(
    tx: sa.Connection, location: Location, declared: Iterable[Schedule]
) -> frozenset[str]:
    """Returns the names of declared schedules that stay deleted; forgets those that changed."""
    query = sa.select(_deleted.name, _deleted.declared_digest).where(_of(location))
    noted = {row.name: row.declared_digest for row in tx.execute(query)}
    if not noted:
        return frozenset()
    same = frozenset(
        one.name for one in declared if one.name in noted and noted[one.name] == digest([one])
    )
    restored(tx, location, sorted(noted.keys() - same))
    return same


def restored(tx: sa.Connection, location: Location, names: Sequence[str]) -> frozenset[str]:
    """Forgets that a person deleted these schedules; returns the names that were deleted."""
    these = _of(location) & dialect.among(tx, _deleted.name, names)
    found = frozenset(tx.execute(sa.select(_deleted.name).where(these)).scalars())
    if found:
        tx.execute(sa.delete(deleted_schedules).where(these))
    return found


def _of(location: Location) -> sa.ColumnElement[bool]:
    return _deleted.location_id == location.id
