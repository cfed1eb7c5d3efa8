"""Tasks as people see them: their freshness, their holders, and the freshness of their parents.

One read of the database serves any number of tasks; the views are consistent with each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.freshness import definitions, ownership, skip_list, submissions
from arctic_orchestration.freshness.criteria import (
    Parent,
    TaskSpec,
    age_in_words,
    fresh_until,
    is_fresh,
    need_in_words,
    required_since,
)
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.ownership import TaskRow
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.submission_facts import NO_ASSETS, Assets
from arctic_orchestration.freshness.views.wait_roots import Root, roots


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeView:
    """One parent, and its freshness for one child.

    Attributes:
        child: the task that needs it.
        parent: its name.
        hours: the maximum age; none: succeeded since the start of today.
        need: the same in words.
        kind: ``task``, ``asset`` for a parent that is no task, or ``missing``: it is unknown.
        last_success_at: its last success.
        age: the same in words.
        fresh: whether that is fresh enough.
        fresh_until: until when it stays fresh without another success; none: it has no success.
        places: the places that declare it, as ``cluster/location``.
        skipped: why it is skipped; none: it is not.
        holder: the run that owns it; none: no run.
    """

    child: str
    parent: str
    hours: float | None
    need: str
    kind: str
    last_success_at: datetime | None
    age: str
    fresh: bool
    fresh_until: datetime | None
    places: tuple[str, ...]
    skipped: str | None
    holder: str | None

    @property
    def age_if_it_exists(self) -> str:
        """Its age in words, if it exists: only its child's location knows some parents."""
        return f"{self.age}, nor known here to exist"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskView:
    """One task.

    Attributes:
        name: its name in all clusters.
        spec: its declaration; if several locations declare it, the first one's.
        places: the places that declare it, as ``cluster/location``.
        row: lease, token and last success.
        need: its own required freshness, in words.
        age: its age, in words.
        fresh: whether it meets its own required freshness.
        fresh_until: until when it does; none: it has no success.
        holder: the run that owns it; none: no run.
        skipped: why it is skipped; none: it is not.
        live: its submissions that have not ended, oldest first.
        roots: by the ids of waiting submissions, where their waits end.
        failed: its newest ended submission, if that failed and the task has not succeeded since.
        parents: the freshness of each parent for it; with the requirements of all its locations.
    """

    name: str
    spec: TaskSpec
    places: tuple[str, ...]
    row: TaskRow
    need: str
    age: str
    fresh: bool
    fresh_until: datetime | None
    holder: str | None
    skipped: str | None
    live: tuple[Submission, ...]
    roots: Mapping[str, Root]
    failed: Submission | None
    parents: tuple[EdgeView, ...]

    @property
    def state(self) -> str:
        """One word: ``running``, ``waiting``, ``skipped``, ``fresh``, ``failed``, ``stale`` or
        ``never``.
        """
        if self.holder is not None:
            return "running"
        if self.live:
            return "waiting"
        if self.skipped is not None:
            return "skipped"
        if self.fresh:
            return "fresh"
        if self.failed is not None:
            return "failed"
        return "never" if self.row.last_success_at is None else "stale"


def task_views(
    tx: sa.Connection,
    now: datetime,
    *,
    names: Sequence[str] | None = None,
    assets: Assets = NO_ASSETS,
) -> list[TaskView]:
    """Returns the views of all or some tasks, by name.

    Args:
        tx: the transaction.
        now: the database's time.
        names: only these tasks.
        assets: what is known of assets that are no tasks.

    Errors:
        NotFound: a name is no task's.
    """
    found = definitions.definitions(tx, names)
    by_name = definitions.by_task(found)
    for number, name in enumerate(names or ()):
        if name not in by_name:
            raise definitions.unknown(tx, f"names[{number}]", name)
    parents = {parent.name for one in found for parent in one.spec.parents}
    whole = sorted(parents | set(by_name))
    known = _Known(tx, whole, now, assets)
    return [_view(name, places, known) for name, places in sorted(by_name.items())]


class _Known:
    """What is known of tasks and their parents."""

    def __init__(
        self, tx: sa.Connection, names: Sequence[str], now: datetime, assets: Assets
    ) -> None:
        self.now = now
        self.rows: Mapping[str, TaskRow] = ownership.rows_of(tx, list(names))
        self.places = definitions.declared(tx, names)
        self.skips = skip_list.reasons(tx, list(names))
        self.live = submissions.live_of(tx, names)
        self.roots = roots(tx, [one for found in self.live.values() for one in found])
        self.failed = submissions.failed_last(tx, names)
        others = [name for name in names if name not in self.places]
        self.made = assets.materialized_at(others) if others else {}
        self.assets = (assets.known(others) if others else frozenset()) | set(self.made)

    def holder(self, name: str) -> str | None:
        row = self.rows.get(name)
        return row.holder if row is not None and row.is_held(self.now) else None

    def places_of(self, name: str) -> tuple[str, ...]:
        return tuple(f"{cluster}/{location}" for cluster, location in self.places.get(name, ()))


def _view(name: str, places: Sequence[Definition], known: _Known) -> TaskView:
    spec = places[0].spec
    row = known.rows.get(name) or TaskRow(task=name)
    at, now = row.last_success_at, known.now
    since = required_since(spec.freshness_hours, spec.timezone, now)
    until = fresh_until(at, spec.freshness_hours, spec.timezone) if at is not None else None
    failed = known.failed.get(name)
    live = tuple(known.live.get(name, ()))
    return TaskView(
        name=name,
        spec=spec,
        places=known.places_of(name),
        row=row,
        need=need_in_words(spec.freshness_hours, spec.timezone),
        age=age_in_words(at, now),
        fresh=is_fresh(at, since),
        fresh_until=until,
        holder=known.holder(name),
        skipped=known.skips.get(name) or spec.skip,
        live=live,
        roots={one.id: known.roots[one.id] for one in live if one.id in known.roots},
        failed=failed if failed is not None and _is_later(failed.ended_at, at) else None,
        parents=_edges(places, known),
    )


def _is_later(moment: datetime | None, than: datetime | None) -> bool:
    return than is None or (moment is not None and moment > than)


def _edges(places: Sequence[Definition], known: _Known) -> tuple[EdgeView, ...]:
    """Returns the parents by all declarations of a task; equal ones appear once."""
    found: dict[tuple[str, str], EdgeView] = {}
    for one in places:
        for parent in one.spec.parents:
            edge = _edge(one.spec, parent, known)
            found.setdefault((edge.parent, edge.need), edge)
    return tuple(found.values())


def _edge(spec: TaskSpec, parent: Parent, known: _Known) -> EdgeView:
    name = parent.name
    if name in known.places:
        row = known.rows.get(name)
        kind, at = "task", row.last_success_at if row is not None else None
    else:
        kind, at = ("asset" if name in known.assets else "missing"), known.made.get(name)
    since = required_since(parent.hours, spec.timezone, known.now)
    until = fresh_until(at, parent.hours, spec.timezone) if at is not None else None
    return EdgeView(
        child=spec.name,
        parent=name,
        hours=parent.hours,
        need=need_in_words(parent.hours, spec.timezone),
        kind=kind,
        last_success_at=at,
        age=age_in_words(at, known.now),
        fresh=is_fresh(at, since),
        fresh_until=until,
        places=known.places_of(name),
        skipped=known.skips.get(name),
        holder=known.holder(name),
    )
