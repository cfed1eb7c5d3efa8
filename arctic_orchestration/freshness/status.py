"""Status events: each step of a task with its reason, and the sinks that take them.

A step is told in the transaction that makes it. The table of events is both a task's history and
the stream that others may read; the log hears of a step once it is committed; notices of what
people must know are written into the outbox of the scheduler's notifications. Another sink is a
class with one method.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import sqlalchemy as sa

from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.state import dialect
from arctic_orchestration.state.freshness_tables import task_events
from arctic_orchestration.state.tables import locations

_log = logging.getLogger("arctic.freshness")


class Step(StrEnum):
    """What happened to a task or to a submission of it."""

    SUBMITTED = "submitted"
    FRESH = "fresh"
    SKIPPED = "skipped"
    WAITS_FOR_PARENTS = "waits_for_parents"
    WAITS_FOR_PLACE = "waits_for_place"
    STALE_PARENTS = "stale_parents"
    SHARES = "shares"
    ACQUIRED = "acquired"
    TOOK_OVER = "took_over"
    REQUESTED = "requested"
    BEGUN = "begun"
    PUBLISHED = "published"
    REFUSED = "refused"
    LOST = "lost"
    AGAIN = "again"
    NOT_STARTED = "not_started"
    FAILED = "failed"
    SHARED_FAILURE = "shared_failure"
    CANCELED = "canceled"
    SKIP_SET = "skip_set"
    SKIP_LIFTED = "skip_lifted"

    @property
    def sentence(self) -> str:
        """What it means, for people."""
        return _SENTENCES[self]


_SENTENCES: Mapping[Step, str] = {
    Step.SUBMITTED: "Somebody, or a child, wants it to be fresh.",
    Step.FRESH: "It is fresh enough, so nothing is run.",
    Step.SKIPPED: "It is not to be run for now, so nothing is run.",
    Step.WAITS_FOR_PARENTS: "Parents are not fresh enough for it yet; it holds nothing meanwhile.",
    Step.WAITS_FOR_PLACE: "As many tasks of its batch run as may run at once.",
    Step.STALE_PARENTS: "A parent is not fresh enough, and will not be in time.",
    Step.SHARES: "Another submission makes it already; the outcome is shared.",
    Step.ACQUIRED: "It is for this submission to make, under a token of its own.",
    Step.TOOK_OVER: "The owner before fell silent, and its lease was over.",
    Step.REQUESTED: "Dagster was asked for the run.",
    Step.BEGUN: "The run has begun and renews the lease itself.",
    Step.PUBLISHED: "The run succeeded, and its token was still the task's.",
    Step.REFUSED: "A run that was not the owner any more published nothing.",
    Step.LOST: "The run fell silent, and its lease was over.",
    Step.AGAIN: "The run failed and is repeated, at once or after a pause.",
    Step.NOT_STARTED: "No run of it could be made, or none started.",
    Step.FAILED: "It could not be made.",
    Step.SHARED_FAILURE: "The run that it shared failed.",
    Step.CANCELED: "Its run was canceled.",
    Step.SKIP_SET: "Somebody put it on the skip list.",
    Step.SKIP_LIFTED: "Somebody took it off the skip list.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusEvent:
    """One step, as sinks are told of it."""

    task: str
    step: Step
    reason: str
    #: by the database's time
    at: datetime
    cluster: str
    location: str | None = None
    submission: str | None = None
    #: what JSON can hold: run, token, parents with their ages
    details: Mapping[str, Any] = field(default_factory=dict)


class StatusSink(Protocol):
    """What takes steps."""

    def tell(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        """Takes steps inside the transaction that makes them.

        What one of the three that there are raises undoes the steps. What an added one raises is
        logged, and what it has written by then undone; steps and other sinks go on.
        """
        ...


class TableSink:
    """The table ``arctic_task_events``: the history, and a stream to read by its ids."""

    def tell(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        rows = [
            {
                "task": one.task,
                "submission": one.submission,
                "cluster": one.cluster,
                "location": one.location,
                "at": one.at,
                "step": one.step.value,
                "reason": one.reason,
                "details": json.dumps(dict(one.details), default=str),
            }
            for one in events
        ]
        tx.execute(_NEW_EVENT, rows)


_NEW_EVENT = sa.insert(task_events)


class LogSink:
    """The log ``arctic.freshness``, once the step is committed."""

    def tell(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        lines = [f"task {one.task}: {one.step.value}: {one.reason}" for one in events]
        levels = [logging.WARNING if one.step in _BAD else logging.INFO for one in events]

        def committed(_: sa.Connection) -> None:
            for level, line in zip(levels, lines, strict=True):
                _log.log(level, line)

        sa.event.listen(tx, "commit", committed, once=True)


_BAD = {
    Step.STALE_PARENTS,
    Step.NOT_STARTED,
    Step.FAILED,
    Step.SHARED_FAILURE,
    Step.LOST,
    Step.REFUSED,
    Step.CANCELED,
}

_NOTICES: Mapping[Step, Notice] = {
    Step.SKIPPED: Notice.SKIPPED,
    Step.STALE_PARENTS: Notice.PARENTS_STALE,
    Step.NOT_STARTED: Notice.LAUNCH_FAILED,
    Step.FAILED: Notice.RUN_FAILED,
    Step.CANCELED: Notice.RUN_CANCELED,
}


#: details of ``STALE_PARENTS``: parents that failed for no other reason that was told, and the
#: moment since which the task has waited
ROOTS, WAITED_SINCE = "roots", "waited_since"
#: the tag of a notice that names them
_ROOTS = "arctic/roots"


class NotificationSink:
    """Notices for the channels of ``ARCTIC_NOTIFICATIONS``: what was skipped, and what failed.

    A failure is told once: neither by those who shared it, nor by those that could not run because
    of it. Of several tasks that one parent made fail, in one location and while they waited, the
    first one is told. A step without a location, such as a person's, is no news to people.
    """

    def tell(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        for one in events:
            notice = _NOTICES.get(one.step)
            if notice is None or one.location is None:
                continue
            location_id = _location_id(tx, one.cluster, one.location)
            tags = {"arctic/task": one.task}
            if notice is Notice.PARENTS_STALE:
                roots = self._untold(tx, location_id, one)
                if not roots:
                    continue
                tags[_ROOTS] = json.dumps(sorted(roots))
            news = News(event=notice, schedule=f"task {one.task}", reason=one.reason, tags=tags)
            outbox.write(tx, location_id, [news], one.at)

    @staticmethod
    def _untold(tx: sa.Connection, location_id: int, one: StatusEvent) -> set[str]:
        """The parents by which a task failed of which nothing was told while it waited."""
        roots = set(one.details.get(ROOTS, ()))
        if roots:
            for known in outbox.tags_since(
                tx, location_id, Notice.PARENTS_STALE, one.details[WAITED_SINCE]
            ):
                roots -= set(json.loads(known.get(_ROOTS, "[]")))
        return roots


def _location_id(tx: sa.Connection, cluster: str, name: str) -> int:
    """The id of the scheduler's row of a location, which is not locked."""
    query = sa.select(locations.c.id).where(
        locations.c.cluster == cluster, locations.c.name == name
    )
    found = tx.execute(query).scalar()
    if found is None:
        new = dialect.insert(tx, locations).values(cluster=cluster, name=name)
        tx.execute(new.on_conflict_do_nothing())
        found = tx.execute(query).scalar_one()
    return int(found)


class _Added:
    """Sinks that were added in this process."""

    def __init__(self) -> None:
        self.sinks: list[StatusSink] = []

    def tell(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        for sink in self.sinks:
            try:
                with tx.begin_nested():
                    sink.tell(tx, events)
            except Exception as error:
                # One that cannot be told must not keep tasks from going on.
                _log.warning("the sink %r was not told", sink, exc_info=error)


_added = _Added()

#: what steps are told to unless others are named
SINKS: tuple[StatusSink, ...] = (TableSink(), LogSink(), NotificationSink(), _added)


def add_sink(sink: StatusSink) -> None:
    """Has a sink told of all steps in this process, besides the three there are.

    Called where a code location's module is loaded, it holds for its ticks and for its runs.
    """
    if sink not in _added.sinks:
        _added.sinks.append(sink)


def tell(tx: sa.Connection, events: Sequence[StatusEvent], sinks: Sequence[StatusSink]) -> None:
    """Tells steps to each sink, in the transaction that makes them."""
    if events:
        for sink in sinks:
            sink.tell(tx, events)


def events_of(
    tx: sa.Connection,
    *,
    task: str | None = None,
    submission: str | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[tuple[int, StatusEvent]]:
    """Stored steps with their ids, in the order in which they were told.

    Args:
        tx: the transaction.
        task: only of this one.
        submission: only of this one.
        after: only those with greater ids: to follow the stream.
        limit: the last so many; none: all.
    """
    here = task_events.c
    query = sa.select(task_events).where(here.id > after).order_by(here.id.desc())
    if task is not None:
        query = query.where(here.task == task)
    if submission is not None:
        query = query.where(here.submission == submission)
    rows = tx.execute(query.limit(limit)).mappings().all()
    return [(row["id"], _stored(row)) for row in reversed(rows)]


def _stored(row: Mapping[Any, Any]) -> StatusEvent:
    return StatusEvent(
        task=row["task"],
        step=Step(row["step"]),
        reason=row["reason"],
        at=row["at"],
        cluster=row["cluster"],
        location=row["location"],
        submission=row["submission"],
        details=json.loads(row["details"]),
    )
