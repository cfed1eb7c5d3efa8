"""Status events: each step of a task with its reason, and the sinks that receive them.

The transaction that makes a step also reports it. The table of events is both a task's history and
a stream for other readers. The log receives a step once it is committed. Notices for people are
written to the outbox of the notifications. Another sink is a class with one method.
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
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_events
from arctic_orchestration.state.tables import locations

_log = logging.getLogger("arctic.freshness")


class Step(StrEnum):
    """What happened to a task or to a submission of it."""

    SUBMITTED = "submitted"
    #: it is fresh enough, so nothing is run
    FRESH = "fresh"
    #: it is not to be run for now, so nothing is run
    SKIPPED = "skipped"
    #: parents are not fresh enough for it yet; it holds nothing meanwhile
    WAITS_FOR_PARENTS = "waits_for_parents"
    #: as many tasks of its batch run as may run at once
    WAITS_FOR_PLACE = "waits_for_place"
    #: a parent is not fresh enough, and will not be in time
    STALE_PARENTS = "stale_parents"
    #: another submission makes it already; the outcome is shared
    SHARES = "shares"
    #: it is for this submission to make, under a token of its own
    ACQUIRED = "acquired"
    #: the owner before fell silent, and its lease was over
    TOOK_OVER = "took_over"
    #: the run was requested from Dagster
    REQUESTED = "requested"
    #: the run has begun and renews the lease itself
    BEGUN = "begun"
    #: the run succeeded, and its token was still the task's
    PUBLISHED = "published"
    #: a run that was not the owner any more published nothing
    REFUSED = "refused"
    #: the run fell silent, and its lease was over
    LOST = "lost"
    #: the run failed and is repeated, at once or after a pause
    AGAIN = "again"
    #: no run of it could be made, or none started
    NOT_STARTED = "not_started"
    FAILED = "failed"
    #: the run that it shared failed
    SHARED_FAILURE = "shared_failure"
    CANCELED = "canceled"
    #: it was put on the skip list
    SKIP_SET = "skip_set"
    #: it was taken off the skip list
    SKIP_LIFTED = "skip_lifted"
    #: of another version of the package; its reason begins with its name
    UNKNOWN = "unknown"


_KNOWN = frozenset(Step)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusEvent:
    """One step, as sinks receive it."""

    task: str
    step: Step
    reason: str
    #: by the database's time
    at: datetime
    cluster: str
    location: str | None = None
    submission: str | None = None
    #: JSON values: run, token, parents with their ages
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> dict[str, str]:
        """Moment, step and reason, as JSON values."""
        return {"at": self.at.isoformat(), "step": self.step.value, "reason": self.reason}


class StatusSink(Protocol):
    """A receiver of steps."""

    def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        """Reports steps inside the transaction that makes them.

        An exception of one of the three built-in sinks rolls the steps back. An exception of an
        added sink is logged, and only its own writes are rolled back; steps and other sinks go on.
        """
        ...


class TableSink:
    """The table ``arctic_task_events``: the history, and a stream that is read by its ids."""

    def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
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
    """The log ``arctic.freshness``, after the step is committed."""

    def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
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


#: details of ``STALE_PARENTS``: parents that failed without another reported reason, and the moment
#: since which the task has waited
ROOTS, WAITED_SINCE = "roots", "waited_since"
#: the tag of a notice with their names
_ROOTS = "arctic/roots"


class NotificationSink:
    """Notices for the channels of ``ARCTIC_NOTIFICATIONS``: what was skipped, and what failed.

    A failure is reported once: neither by submissions that shared it, nor by tasks that could not
    run because of it. Of several tasks that fail because of one parent, in one location and while
    they waited, the first one is reported. A step without a location, such as a person's, causes no
    notice.
    """

    def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        for one in events:
            notice = _NOTICES.get(one.step)
            if notice is None or one.location is None:
                continue
            location_id = _location_id(tx, one.cluster, one.location)
            tags = {"arctic/task": one.task}
            if notice is Notice.PARENTS_STALE:
                roots = self._unreported(tx, location_id, one)
                if not roots:
                    continue
                tags[_ROOTS] = json.dumps(sorted(roots))
            news = News(event=notice, schedule=f"task {one.task}", reason=one.reason, tags=tags)
            outbox.write(tx, location_id, [news], one.at)

    @staticmethod
    def _unreported(tx: sa.Connection, location_id: int, one: StatusEvent) -> set[str]:
        """Returns the parents that made a task fail and that were not reported while it waited."""
        roots = set(one.details.get(ROOTS, ()))
        if roots:
            for known in outbox.tags_since(
                tx, location_id, Notice.PARENTS_STALE, one.details[WAITED_SINCE]
            ):
                roots -= set(json.loads(known.get(_ROOTS, "[]")))
        return roots


def _location_id(tx: sa.Connection, cluster: str, name: str) -> int:
    """Returns the id of the scheduler's row of a location; the row is not locked."""
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
    """The sinks that were added in this process."""

    def __init__(self) -> None:
        self.sinks: list[StatusSink] = []

    def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
        for sink in self.sinks:
            try:
                with tx.begin_nested():
                    sink.report(tx, events)
            except Exception as error:
                # A failing sink must not keep tasks from going on.
                _log.warning("the sink %r failed", sink, exc_info=error)


_added = _Added()

#: the default sinks
SINKS: tuple[StatusSink, ...] = (TableSink(), LogSink(), NotificationSink(), _added)


def add_sink(sink: StatusSink) -> None:
    """Adds a sink for all steps of this process, besides the three built-in ones.

    Called in the module of a code location, it applies to its ticks and its runs.
    """
    if sink not in _added.sinks:
        _added.sinks.append(sink)


def report(
    tx: sa.Connection, events: Sequence[StatusEvent], sinks: Sequence[StatusSink] = SINKS
) -> None:
    """Reports steps to each sink, in the transaction that makes them."""
    if events:
        for sink in sinks:
            sink.report(tx, events)


def events_of(
    tx: sa.Connection,
    *,
    task: str | None = None,
    submission: str | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[tuple[int, StatusEvent]]:
    """Returns stored steps with their ids, in the order in which they were reported.

    Args:
        tx: the transaction.
        task: only of this task.
        submission: only of this submission.
        after: only steps with greater ids: to follow the stream.
        limit: the maximum number, from the last; none: all.
    """
    col = task_events.c
    query = sa.select(task_events).where(col.id > after).order_by(col.id.desc())
    if task is not None:
        query = query.where(col.task == task)
    if submission is not None:
        query = query.where(col.submission == submission)
    rows = tx.execute(query.limit(limit)).mappings().all()
    return [(row["id"], _stored(row)) for row in reversed(rows)]


def history_of(database: Database, submission: str) -> list[dict[str, str]]:
    """Returns a submission's steps so far, as JSON values; none if they cannot be read."""
    try:
        with database.read() as tx:
            return [one.entry for _, one in events_of(tx, submission=submission)]
    except Exception as error:
        # It only informs: the run goes on.
        _log.warning("the history of submission %s is unknown: %s", submission, error)
        return []


def _stored(row: Mapping[Any, Any]) -> StatusEvent:
    known = row["step"] in _KNOWN
    return StatusEvent(
        task=row["task"],
        step=Step(row["step"]) if known else Step.UNKNOWN,
        reason=row["reason"] if known else f"{row['step']}: {row['reason']}",
        at=row["at"],
        cluster=row["cluster"],
        location=row["location"],
        submission=row["submission"],
        details=json.loads(row["details"]),
    )
