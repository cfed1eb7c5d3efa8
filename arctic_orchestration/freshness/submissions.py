"""Submissions: requests to bring a task up to date, by a person, a schedule, code or a child.

Submissions are not limited. Each belongs to one code location of one cluster, whose ticks process
it; a task that is submitted twice, there or elsewhere, runs once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.freshness import definitions
from arctic_orchestration.freshness.criteria import TaskSpec, required_since
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.ownership import TaskRow, Time
from arctic_orchestration.freshness.status import StatusEvent, Step, report
from arctic_orchestration.freshness.submission import BAD, Submission, SubmissionState
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.state import dialect
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import is_live, task_definitions, task_submissions

#: up to 100 years, as for criteria
_MOST_HOURS = 876_000


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSubmission:
    """One submission to create."""

    task: str
    cluster: str
    location: str
    batch: str | None
    required_since: datetime
    reason: str
    by: str
    force: bool = False
    submits_parents: bool = True
    wanted_by: str | None = None


def submit(
    tx: sa.Connection,
    names: Sequence[str],
    *,
    cluster: str,
    location: str | None = None,
    by: str = "an unnamed caller",
    force: bool = False,
    freshness_hours: float | None = None,
    only: Sequence[str] | None = None,
    with_parents: bool = False,
    time: Time = database_time,
) -> list[Submission]:
    """Submits tasks; all of them, or none if one cannot be submitted.

    Args:
        tx: the transaction.
        names: tasks, or batches, which stand for all of their tasks.
        cluster: of the clusters that declare a task, this one is preferred, if it was seen lately.
        location: its code location; needed only if several of the cluster declare the task.
        by: who submits, for people.
        force: only a success that begins from now on counts.
        freshness_hours: the maximum age of the last success, instead of the task's own. Neither
            this nor ``force`` applies to the tasks that ``with_parents`` adds.
        only: restricts ``names`` to these; their parents are waited for, not submitted.
        with_parents: also submits all ancestors, in any location; each with its own required
            freshness and that of its children here.
        time: the source of the time.

    Errors:
        NotFound: no location of any cluster declares a name.
        InvalidInput: contradicting options, invalid hours, a task of several locations, or a
            location that declares none of the tasks.
    """
    _check(names, force, freshness_hours, only, with_parents)
    found = _named(tx, names)
    if only is not None:
        left_out = [name for name in only if name not in found]
        if left_out:
            listed = ", ".join(sorted(found))
            raise InvalidInput("only", left_out[0], f"one of the tasks that are named: {listed}")
        found = {name: found[name] for name in only}
    _require_place(found, location)
    named = frozenset(found)
    now, new = time(tx), []
    seen = definitions.live_locations(tx, now)
    chosen = _chosen(found, cluster, location, seen)
    if with_parents:
        _add_parents(tx, chosen, cluster, location, seen)
    needed = _needed_since([one.spec for one in chosen.values()], now)
    for name, one in chosen.items():
        is_named = name in named
        hours = one.spec.freshness_hours
        if is_named and (force or freshness_hours is not None):
            hours = 0.0 if force else freshness_hours
        since = required_since(hours, one.spec.timezone, now)
        forced = force and is_named
        new.append(
            NewSubmission(
                task=name,
                cluster=one.cluster,
                location=one.location,
                batch=one.spec.batch,
                required_since=since if is_named else max(since, needed[name]),
                reason=f"submitted by {by}" + (", whatever was made before" if forced else ""),
                by=by,
                force=forced,
                submits_parents=only is None,
            )
        )
    return make(tx, new, now=now)


def make(
    tx: sa.Connection,
    new: Sequence[NewSubmission],
    *,
    now: datetime,
    group: str | None = None,
) -> list[Submission]:
    """Writes submissions, which are due at once."""
    group = group or new_id(now)
    made = [
        Submission(
            id=new_id(now),
            task=one.task,
            cluster=one.cluster,
            location=one.location,
            batch=one.batch,
            group_id=group,
            by=one.by,
            wanted_by=one.wanted_by,
            state=SubmissionState.SUBMITTED,
            reason=one.reason,
            state_at=now,
            required_since=one.required_since,
            force=one.force,
            submits_parents=one.submits_parents,
            submitted_at=now,
            next_check_at=now,
        )
        for one in new
    ]
    if made:
        tx.execute(_NEW, [one.as_row() for one in made])
    report(
        tx,
        [
            StatusEvent(
                task=one.task, step=Step.SUBMITTED, reason=one.reason, at=now,
                cluster=one.cluster, location=one.location, submission=one.id,
                details={"required_since": one.required_since, "force": one.force, "by": one.by,
                         "wanted_by": one.wanted_by},
            )
            for one in made
        ],
    )  # fmt: skip
    return made


def by_id(tx: sa.Connection, id: str, *, lock: bool = False) -> Submission | None:
    """Returns a submission by id; with ``lock``, its row is locked until the transaction ends."""
    query = _LOCKED_BY_ID if lock else _BY_ID
    row = tx.execute(query, {"of": id}).mappings().one_or_none()
    return None if row is None else Submission.from_row(row)


def by_ids(tx: sa.Connection, ids: Iterable[str]) -> dict[str, Submission]:
    """Returns submissions by id."""
    wanted = list(ids)
    if not wanted:
        return {}
    query = sa.select(task_submissions).where(dialect.among(tx, task_submissions.c.id, wanted))
    return {row["id"]: Submission.from_row(row) for row in tx.execute(query).mappings()}


def live_of(tx: sa.Connection, names: Sequence[str]) -> dict[str, list[Submission]]:
    """Returns the live submissions of some tasks, in all clusters, oldest first."""
    if not names:
        return {}
    query = (
        sa.select(task_submissions)
        .where(dialect.among(tx, task_submissions.c.task, names), is_live)
        .order_by(task_submissions.c.id)
    )
    found: dict[str, list[Submission]] = {}
    for row in tx.execute(query).mappings():
        found.setdefault(row["task"], []).append(Submission.from_row(row))
    return found


def has_work(submission: Submission, row: TaskRow | None) -> bool:
    """Returns whether a live submission has work: it owns the task, or the task is stale for it."""
    return (
        submission.state.owns
        or row is None
        or not row.is_fresh(submission.required_since, force=submission.force)
    )


def failed_last(tx: sa.Connection, names: Sequence[str]) -> dict[str, Submission]:
    """Returns the newest ended submission of each declared task, if it did not succeed."""
    if not names:
        return {}
    col, task = task_submissions.c, task_definitions.c.task
    # By the index, from its end: a task may have thousands of ended submissions.
    newest = (
        sa.select(col.id)
        .where(col.task == task, col.ended_at.is_not(None))
        .order_by(col.submitted_at.desc(), col.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    declared = sa.select(newest).where(dialect.among(tx, task, names))
    query = sa.select(task_submissions).where(
        col.id.in_(declared), col.state.in_(sorted(state.value for state in BAD))
    )
    return {row["task"]: Submission.from_row(row) for row in tx.execute(query).mappings()}


def latest_of(tx: sa.Connection, task: str, limit: int = 20) -> list[Submission]:
    """Returns the last submissions of a task, newest first."""
    col = task_submissions.c
    query = sa.select(task_submissions).where(col.task == task)
    rows = tx.execute(query.order_by(col.submitted_at.desc(), col.id.desc()).limit(limit))
    return [Submission.from_row(row) for row in rows.mappings()]


def update(tx: sa.Connection, id: str, **values: Any) -> None:
    """Updates columns of a locked submission."""
    tx.execute(sa.update(task_submissions).where(task_submissions.c.id == id).values(**values))


_NEW = sa.insert(task_submissions)
_BY_ID = sa.select(task_submissions).where(task_submissions.c.id == sa.bindparam("of"))
_LOCKED_BY_ID = _BY_ID.with_for_update()


def _check(
    names: object,
    force: bool,
    hours: object,
    only: object,
    with_parents: bool,
) -> None:
    for field, value in (("names", names), ("only", only)):
        if field == "only" and value is None:
            continue
        if (
            not isinstance(value, (list, tuple))
            or not value
            or not all(isinstance(one, str) and one for one in value)
        ):
            raise InvalidInput(field, value, "at least one name of a task")
    if hours is not None:
        if isinstance(hours, bool) or not isinstance(hours, (int, float)):
            raise InvalidInput("freshness_hours", hours, "a number of hours")
        if not 0 < hours <= _MOST_HOURS:
            expected = f"more than 0 and at most {_MOST_HOURS} hours; to run it anyway, force it"
            raise InvalidInput("freshness_hours", hours, expected)
        if force:
            expected = "no hours when it is forced: what was made before does not count then"
            raise InvalidInput("freshness_hours", hours, expected)
    if only is not None and with_parents:
        raise InvalidInput("with_parents", True, "false where only some tasks are to run")


def _named(tx: sa.Connection, names: Sequence[str]) -> dict[str, list[Definition]]:
    """Returns the declarations of the given names, by task."""
    found = definitions.by_task(definitions.definitions(tx, names))
    ordered: dict[str, list[Definition]] = {}
    for number, name in enumerate(names):
        if name in found:
            ordered[name] = found[name]
            continue
        batch = definitions.definitions(tx, batch=name)
        if not batch:
            raise definitions.unknown(tx, f"names[{number}]", name)
        for one in batch:
            places = ordered.setdefault(one.spec.name, [])
            if one not in places:
                places.append(one)
    return ordered


def _chosen(
    found: Mapping[str, Sequence[Definition]],
    cluster: str,
    location: str | None,
    seen: Collection[tuple[str, str]],
) -> dict[str, Definition]:
    """Returns the declaration of each task that is to run it."""
    return {
        name: _place_of(name, places, cluster, location, seen) for name, places in found.items()
    }


def _add_parents(
    tx: sa.Connection,
    chosen: dict[str, Definition],
    cluster: str,
    location: str | None,
    seen: Collection[tuple[str, str]],
) -> None:
    """Adds all ancestors that are tasks, by the chosen declarations: others run other tasks."""
    last = dict(chosen)
    while last:
        parents = {parent.name for one in last.values() for parent in one.spec.parents}
        declared = definitions.definitions(tx, sorted(parents - set(chosen)))
        found = definitions.by_task(declared)
        last = _chosen(found, cluster, location, seen)
        chosen.update(last)


def _needed_since(specs: Iterable[TaskSpec], now: datetime) -> dict[str, datetime]:
    """Returns the earliest success of each parent that is fresh enough for all of these tasks."""
    needed: dict[str, datetime] = {}
    for spec in specs:
        for parent in spec.parents:
            since = required_since(parent.hours, spec.timezone, now)
            needed[parent.name] = max(since, needed.get(parent.name, since))
    return needed


def _require_place(found: Mapping[str, Sequence[Definition]], location: str | None) -> None:
    """Refuses a location that declares none of the given tasks."""
    known = {one.location for places in found.values() for one in places}
    if location is not None and location not in known:
        listed = ", ".join(sorted(known))
        raise InvalidInput("location", location, f"one that declares what is named: {listed}")


def _place_of(
    name: str,
    places: Sequence[Definition],
    cluster: str,
    location: str | None,
    seen: Collection[tuple[str, str]],
) -> Definition:
    """Returns the declaration of a task that is to run it, preferring one that was seen lately."""
    if location is not None:
        near = [one for one in places if one.cluster == cluster] or places
        named = [one for one in near if one.location == location]
        if len(named) == 1:
            return named[0]
    alive = [one for one in places if (one.cluster, one.location) in seen] or places
    near = [one for one in alive if one.cluster == cluster] or alive
    if len(near) == 1:
        return near[0]
    listed = ", ".join(f"{one.location} of cluster {one.cluster}" for one in near)
    raise InvalidInput("location", location, f"one that declares task {name}: {listed}")
