"""The task declarations of code locations, as rows that all clusters read.

A location's definitions are registered as a whole or not at all. If they close a cycle with the
definitions of other locations, the previous ones stay, and the location's row records the error.
Registrations are serialized, so that two locations cannot each add half of a cycle.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from arctic_orchestration.errors import (
    ConfigurationError,
    InvalidInput,
    NotFound,
)
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.graph import TaskGraph, cycle_problem
from arctic_orchestration.quantities import format_age
from arctic_orchestration.state import dialect
from arctic_orchestration.state.freshness_tables import task_definitions, task_locations
from arctic_orchestration.waits import command

_log = logging.getLogger("arctic.freshness")

#: the row that serializes registrations of all clusters; the row of a batch has its name
_ALL = {"cluster": "", "location": ""}
#: a location that was not seen for this long may have been renamed or removed
_LATELY = timedelta(days=1)
#: the sensor ticks every few seconds; without a tick for this long it does not run
SILENT = timedelta(minutes=2)
#: how many similar names are suggested
_OFFERED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """What one location declares about a task."""

    cluster: str
    location: str
    spec: TaskSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """The result of a registration."""

    #: tasks that are new or changed, and tasks that were removed
    written: int = 0
    removed: int = 0
    #: why nothing was registered; none: it was registered
    problem: InvalidInput | None = None


def digest(specs: Iterable[TaskSpec]) -> str:
    """Returns a digest of definitions that does not depend on their order."""
    forms = sorted(json.dumps(spec.to_form(), sort_keys=True) for spec in specs)
    return hashlib.sha256("\n".join(forms).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredLocation:
    """The record of a location that has tasks."""

    cluster: str
    location: str
    digest: str | None
    ticked_at: datetime | None
    trouble: str | None
    storage_id: str | None = None

    def was_away(self, now: datetime) -> bool:
        """Returns whether it did not tick for so long that its sensor did not run."""
        return self.ticked_at is not None and now - self.ticked_at > SILENT

    def silence(self, now: datetime) -> str | None:
        """Returns why its submissions do not start, in words; none: its sensor ticks."""
        place = f"{self.cluster}/{self.location}"
        if self.ticked_at is None:
            return f"{place}: its sensor has not ticked yet, and begins nothing until it does"
        age = now - self.ticked_at
        if age <= SILENT:
            return None
        silence = format_age(age)
        return f"{place}: its sensor has not ticked for {silence}, and begins nothing until it does"


def location_of(tx: sa.Connection, cluster: str, location: str) -> RegisteredLocation | None:
    """Returns the record of a location; none: it is unknown."""
    query = sa.select(task_locations).where(*_here(task_locations, cluster, location))
    found = tx.execute(query).mappings().one_or_none()
    return None if found is None else RegisteredLocation(**found)


def locations(tx: sa.Connection) -> list[RegisteredLocation]:
    """Returns all locations that have tasks, by cluster and name."""
    col = task_locations.c
    query = sa.select(task_locations).where(col.cluster != _ALL["cluster"])
    rows = tx.execute(query.order_by(col.cluster, col.location)).mappings()
    return [RegisteredLocation(**row) for row in rows]


def live_locations(tx: sa.Connection, now: datetime) -> frozenset[tuple[str, str]]:
    """Returns clusters and locations that have ticked within the last day; others may be gone."""
    col = task_locations.c
    query = sa.select(col.cluster, col.location).where(col.ticked_at >= now - _LATELY)
    return frozenset((row.cluster, row.location) for row in tx.execute(query))


def register(
    tx: sa.Connection, cluster: str, location: str, specs: Sequence[TaskSpec], now: datetime
) -> Registration:
    """Updates the rows of a location to match its declarations.

    Cost: reads all definitions of all locations once, and writes the changed ones.
    """
    _take_turn(tx)
    _ensure(tx, cluster, location)
    problem = _problem(tx, cluster, location, specs)
    update = sa.update(task_locations).where(*_here(task_locations, cluster, location))
    if problem is not None:
        tx.execute(update.values(trouble=f"its definitions are not registered: {problem}"))
        return Registration(problem=problem)
    query = sa.select(task_definitions.c.task, task_definitions.c.digest).where(
        *_here(task_definitions, cluster, location)
    )
    known = {row.task: row.digest for row in tx.execute(query)}
    wanted = {spec.name: spec for spec in specs}
    gone = sorted(set(known) - set(wanted))
    changed = [spec for spec in specs if known.get(spec.name) != digest([spec])]
    replaced = [*gone, *(spec.name for spec in changed if spec.name in known)]
    if replaced:
        tx.execute(
            sa.delete(task_definitions).where(
                *_here(task_definitions, cluster, location),
                dialect.among(tx, task_definitions.c.task, replaced),
            )
        )
    if changed:
        rows = [
            {
                "task": spec.name,
                "cluster": cluster,
                "location": location,
                "batch": spec.batch,
                "spec": json.dumps(spec.to_form(), sort_keys=True),
                "digest": digest([spec]),
                "declared_at": now,
            }
            for spec in changed
        ]
        tx.execute(sa.insert(task_definitions), rows)
    tx.execute(update.values(trouble=None, digest=digest(specs)))
    return Registration(written=len(changed), removed=len(gone))


def unregister(tx: sa.Connection, cluster: str, location: str) -> int | None:
    """Removes all registrations of a location; a live location registers itself again.

    Returns:
        the number of declared tasks; none: the location was unknown.
    """
    _take_turn(tx)
    gone = tx.execute(
        sa.delete(task_definitions).where(*_here(task_definitions, cluster, location))
    )
    known = tx.execute(sa.delete(task_locations).where(*_here(task_locations, cluster, location)))
    return gone.rowcount if gone.rowcount or known.rowcount else None


def ticked(
    tx: sa.Connection, cluster: str, location: str, now: datetime, storage_id: str | None = None
) -> None:
    """Records a tick of a location's sensor; binds the location to a Dagster storage, if given.

    Errors:
        ConfigurationError: the location is bound to another storage.
    """
    _ensure(tx, cluster, location)
    place, values = task_locations.c, {"ticked_at": now}
    update = sa.update(task_locations).where(*_here(task_locations, cluster, location))
    if storage_id is None:
        tx.execute(update.values(values))
        return
    mine = place.storage_id.is_(None) | (place.storage_id == storage_id)
    done = tx.execute(update.where(mine).values(**values, storage_id=storage_id))
    if not done.rowcount:
        raise of_another_storage(cluster, location)


def of_another_storage(cluster: str, location: str) -> ConfigurationError:
    """Returns why a tick is refused: it would run every task of the other storage twice."""
    return ConfigurationError(
        f"the tasks of location {location} of cluster {cluster} are run by another "
        "Dagster instance. Two instances that share a state database need different names in "
        "ARCTIC_CLUSTER. If this instance has a new storage, unbind the location with: "
        f"{command('tasks', 'forget', location)}"
    )


def definitions(
    tx: sa.Connection, names: Iterable[str] | None = None, *, batch: str | None = None
) -> list[Definition]:
    """Returns the declarations of some or all tasks; by task, cluster, location.

    Declarations of other versions of the package that this one cannot read are skipped.
    """
    col = task_definitions.c
    query = sa.select(task_definitions).order_by(col.task, col.cluster, col.location)
    if names is not None:
        query = query.where(dialect.among(tx, col.task, list(names)))
    if batch is not None:
        query = query.where(col.batch == batch)
    found = [_definition(row) for row in tx.execute(query).mappings()]
    return [one for one in found if one is not None]


def by_task(found: Iterable[Definition]) -> dict[str, list[Definition]]:
    """Returns declarations by the names of their tasks."""
    named: dict[str, list[Definition]] = {}
    for one in found:
        named.setdefault(one.spec.name, []).append(one)
    return named


def task_names(
    tx: sa.Connection, *, after: str = "", batch: str | None = None, limit: int = 50
) -> list[str]:
    """Returns the names of declared tasks after one, in their order."""
    col = task_definitions.c
    query = sa.select(col.task).distinct().where(col.task > after).order_by(col.task).limit(limit)
    if batch is not None:
        query = query.where(col.batch == batch)
    return list(tx.execute(query).scalars())


def _definition(row: Mapping[Any, Any]) -> Definition | None:
    try:
        # This package wrote it: valid JSON types need no second check.
        spec = TaskSpec.model_validate_json(row["spec"])
    except ValidationError as error:
        where = f"location {row['location']} of cluster {row['cluster']}"
        _log.warning("%s declares task %s unreadably: %s", where, row["task"], error)
        return None
    return Definition(
        cluster=row["cluster"],
        location=row["location"],
        spec=spec,
    )


def declared(tx: sa.Connection, names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Returns the clusters and locations that declare each of some tasks; omits other tasks."""
    if not names:
        return {}
    col = task_definitions.c
    query = sa.select(col.task, col.cluster, col.location).where(dialect.among(tx, col.task, names))
    found: dict[str, list[tuple[str, str]]] = {}
    for row in tx.execute(query):
        found.setdefault(row.task, []).append((row.cluster, row.location))
    return found


def spec_of(tx: sa.Connection, task: str, cluster: str, location: str) -> TaskSpec | None:
    """Returns the declaration of a task by a location; none: it does not declare it."""
    query = sa.select(task_definitions.c.spec).where(
        task_definitions.c.task == task, *_here(task_definitions, cluster, location)
    )
    found = tx.execute(query).scalar()
    return None if found is None else TaskSpec.parse(json.loads(found), field=task)


def unknown(tx: sa.Connection, field: str, name: str) -> NotFound:
    """Returns the message about a name that no location of any cluster declares."""
    known = tx.execute(sa.select(task_definitions.c.task).distinct()).scalars().all()
    if not known:
        return NotFound(f"{field}: no code location has declared a task yet, and so not {name!r}")
    close = get_close_matches(name, known, n=_OFFERED, cutoff=0.5)
    if close:
        return NotFound(f"{field}: no task has the name {name!r}; there is {', '.join(close)}")
    listed = ", ".join(sorted(known)[:_OFFERED])
    more = f" and {len(known) - _OFFERED} more" if len(known) > _OFFERED else ""
    return NotFound(f"{field}: no task has the name {name!r}; there is {listed}{more}")


def _problem(
    tx: sa.Connection, cluster: str, location: str, specs: Sequence[TaskSpec]
) -> InvalidInput | None:
    others = [
        one.spec for one in definitions(tx) if (one.cluster, one.location) != (cluster, location)
    ]
    # Own specs come first, so that a cycle is reported from an own task, if it contains one.
    cycle = TaskGraph([*specs, *others]).cycle()
    return None if cycle is None else cycle_problem("tasks", cycle)


def take_turn_in(tx: sa.Connection, batch: str) -> None:
    """Serializes the assignment of slots of a batch in all clusters, until the transaction ends.

    Later counts see what other transactions have committed.
    """
    _lock(tx, cluster=_ALL["cluster"], location=batch)


def _take_turn(tx: sa.Connection) -> None:
    _lock(tx, **_ALL)


def _lock(tx: sa.Connection, cluster: str, location: str) -> None:
    query = sa.select(task_locations.c.cluster).where(*_here(task_locations, cluster, location))
    if tx.execute(query.with_for_update()).first() is None:
        _ensure(tx, cluster, location)
        tx.execute(query.with_for_update()).one()


def _ensure(tx: sa.Connection, cluster: str, location: str) -> None:
    new = dialect.insert(tx, task_locations).values(cluster=cluster, location=location)
    tx.execute(new.on_conflict_do_nothing())


def _here(table: sa.Table, cluster: str, location: str) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.cluster == cluster, table.c.location == location
