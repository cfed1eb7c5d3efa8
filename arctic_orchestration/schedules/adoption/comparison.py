"""Compares what a schedule in shadow decided with what Dagster's own decided.

Both sides decide about *keys*: for what fires by the clock a moment, in seconds since 1970; for
what fires by events an id of Dagster's event log. A tick of Dagster decides about a range of keys.
A job of ours decides about the keys of its ticks or events. How many jobs and ticks there are is
not compared: each side coalesces what lies between two evaluations of its own.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.adoption.journal import Adoption
from arctic_orchestration.schedules.adoption.place import Place
from arctic_orchestration.schedules.jobs import ACTIVE, WAITING, JobState
from arctic_orchestration.schedules.launch_requests import SHADOWED
from arctic_orchestration.state.tables import events, job_events, jobs, schedules, timers

#: tags of the run queue's rules, and of the request hook of an adopted sensor
_OURS = ("arctic/", "adopted/")


class Outcome(StrEnum):
    """What one side decided."""

    RUN = "run"
    NO_RUN = "no run"
    FAILED = "failed"
    #: it has not decided yet
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The run that was, or would have been, requested."""

    partition: str | None
    tags: Mapping[str, str]
    #: None: not comparable
    run_config: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one side decided, and why."""

    outcome: Outcome
    reason: str
    at: datetime
    #: the id of our job or of Dagster's tick; None: neither decided
    source: str | None = None
    #: what the decision is about: a moment, a partition, a run
    about: str = ""
    #: ours: the keys; Dagster's: the lowest is excluded, and the highest included
    keys: Sequence[int] = ()
    #: the ids of the runs that were requested, and what was requested if it is known
    runs: Sequence[str] = ()
    requests: Sequence[Request] = ()

    def to_json(self) -> dict[str, Any]:
        return {"outcome": self.outcome.value, "reason": self.reason, "source": self.source}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A pair of decisions that differ."""

    about: str
    at: datetime
    what: str
    ours: Decision
    theirs: Decision


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """What Dagster's instigator has decided."""

    decisions: Sequence[Decision]
    #: keys up to here are not compared: Dagster keeps ticks only for so long
    above: int
    #: the last key that it has evaluated
    up_to: int
    #: its last tick failed, and comes again
    failure: Decision | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The decisions of a shadow, compared."""

    compared: int
    open: int
    differences: Sequence[Difference]


def compare(
    ours: Sequence[Decision], theirs: Theirs, is_delivered: Callable[[int], bool]
) -> Comparison:
    """Pairs the decisions of both sides; ``is_delivered`` says whether ours has had a key."""
    ours = [one for one in ours if any(key > theirs.above for key in one.keys)]
    by_key = sorted(((key, number) for number, one in enumerate(ours) for key in one.keys))
    keys = [key for key, _ in by_key]
    pairs: list[tuple[Decision | None, Decision | None]] = []
    paired: set[int] = set()
    for decision in theirs.decisions:
        low, high = (bisect_right(keys, key) for key in decision.keys)
        mine = sorted({number for _, number in by_key[low:high]})
        paired.update(mine)
        pairs += [(ours[number], decision) for number in mine]
        if not mine and decision.outcome is not Outcome.NO_RUN:
            pairs.append((None, decision))
    for number, one in enumerate(ours):
        if number not in paired:
            is_late = max(one.keys) > theirs.up_to
            pairs.append((one, theirs.failure if is_late else None))
            if is_late and theirs.failure is None:
                pairs[-1] = (one, _undecided(one, "Dagster has not evaluated it yet"))
    differences, open_ = [], 0
    for our, their in pairs:
        if our is None and their is not None and not is_delivered(their.keys[-1]):
            our = _undecided(their, "the dispatcher has not ticked since")
        if Outcome.OPEN in {side.outcome for side in (our, their) if side is not None}:
            open_ += 1
        elif (difference := _difference(our, their)) is not None:
            differences.append(difference)
    found = sorted(differences, key=lambda one: one.at)
    return Comparison(compared=len(pairs) - open_, open=open_, differences=found)


def _undecided(other: Decision, reason: str) -> Decision:
    return Decision(outcome=Outcome.OPEN, reason=reason, at=other.at)


def _difference(ours: Decision | None, theirs: Decision | None) -> Difference | None:
    known = ours or theirs
    assert known is not None
    nothing = Decision(outcome=Outcome.NO_RUN, reason="no tick of Dagster took it", at=known.at)
    our = ours or replace(nothing, reason="no job of the schedule took it")
    their = theirs or nothing
    what = None
    if our.outcome is not their.outcome:
        what = f"{our.outcome} here, {their.outcome} in Dagster"
    elif our.requests and their.requests:
        whats = [_of_requests(our.requests[0], one) for one in their.requests]
        what = None if None in whats else whats[0]
    if what is None:
        return None
    return Difference(about=known.about, at=known.at, what=what, ours=our, theirs=their)


def _of_requests(ours: Request, theirs: Request) -> str | None:
    if ours.partition != theirs.partition:
        return f"partition {ours.partition} here, {theirs.partition} in Dagster"
    for key, value in sorted(ours.tags.items()):
        if theirs.tags.get(key) != value:
            return f"tag {key}: {value} here, {theirs.tags.get(key)} in Dagster"
    if ours.run_config != theirs.run_config and None not in (ours.run_config, theirs.run_config):
        return f"run_config {ours.run_config} here, {theirs.run_config} in Dagster"
    return None


def of_shadow(
    place: Place, adoption: Adoption, *, by_clock: bool
) -> tuple[list[Decision], Callable[[int], bool]]:
    """Returns what a schedule in shadow decided, and whether it has had a key."""
    with place.state.read() as (tx, location):
        mine = (schedules.c.location_id == location.id) & (schedules.c.name == adoption.schedule)
        id = tx.execute(sa.select(schedules.c.id).where(mine)).scalar_one_or_none()
        same = (events.c.location_id == job_events.c.location_id) & (
            events.c.number == job_events.c.number
        )
        query = (
            sa.select(
                jobs.c.id, jobs.c.state, jobs.c.reason, jobs.c.created_at, jobs.c.launch,
                jobs.c.partition_start, events.c.details,
            )
            .select_from(jobs)
            .join(job_events, job_events.c.job_id == jobs.c.id)
            .join(events, same)
            .where(jobs.c.schedule_id == id, jobs.c.created_at >= adoption.at)
            .order_by(jobs.c.id, events.c.number)
        )  # fmt: skip
        rows: dict[str, list[Any]] = {}
        for row in tx.execute(query):
            rows.setdefault(row.id, []).append(row)
        due = sa.select(sa.func.min(timers.c.due_at)).where(timers.c.schedule_id == id)
        next_tick = tx.execute(due).scalar() if by_clock else None
    final, later = place.delivered(location)

    def is_delivered(key: int) -> bool:
        if by_clock:
            return next_tick is not None and key < next_tick.timestamp()
        return key <= final or key in later

    found = [_of_job(each, by_clock=by_clock) for each in rows.values()]
    return [one for one in found if one.keys], is_delivered


def _of_job(rows: Sequence[Any], *, by_clock: bool) -> Decision:
    job, taken = rows[0], [Event.parse(row.details) for row in rows]
    if by_clock:
        taken = [event for event in taken if event.kind is EventKind.TICK]
    else:
        taken = [event for event in taken if event.storage_id]
    state = JobState(job.state)
    outcome = Outcome.FAILED if state is JobState.FAILED else Outcome.NO_RUN
    if state in (*WAITING, *ACTIVE):
        outcome = Outcome.OPEN
    elif state is JobState.DISCARDED and job.reason == SHADOWED:
        outcome = Outcome.RUN
    launch = json.loads(job.launch or "{}")
    tags = launch.get("tags", {}).items()
    tags = {key: value for key, value in tags if not key.startswith(_OURS)}
    last = max(taken, key=lambda event: (event.at, event.storage_id), default=None)
    # With a partition, Dagster resolves the configuration only when it makes the run.
    has_config = job.partition_start is None
    return Decision(
        outcome=outcome,
        reason=job.reason,
        at=job.created_at if last is None else last.at,
        source=job.id,
        about="" if last is None else last.partition or last.run_id or "",
        keys=sorted({int(one.at.timestamp()) if by_clock else one.storage_id for one in taken}),
        requests=[
            Request(
                partition=job.partition_start,
                tags=tags,
                run_config=launch.get("run_config", {}) if has_config else None,
            )
        ],
    )
