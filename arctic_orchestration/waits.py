"""Waits: what each feature says of that which waits in the state database.

A feature names its waiting rows as :class:`WaitRows`, columns of a statement, so that any number of
them is counted, grouped and paged by the database. It describes only those that are shown.
"""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.documents import At, Document
from arctic_orchestration.state.dialect import UtcTime

_log = logging.getLogger("arctic.waiting")


class WaitKind(StrEnum):
    """What waits."""

    #: a job of a schedule that has no run yet
    JOB = "job"
    #: an arrival that no job has yet
    ARRIVAL = "arrival"
    #: a run in Dagster's queue
    RUN = "run"
    #: a submission of a task with freshness dependencies
    TASK = "task"
    #: a merge task of compaction
    MERGE_TASK = "merge_task"
    #: a lake table that is due for compaction, or may not be compacted now
    TABLE = "table"
    #: a partition of a consumer
    PARTITION = "partition"


class Certainty(StrEnum):
    """How certain the end of a wait is."""

    #: the wait ends at this moment, or at the latest then
    KNOWN = "known"
    #: predicted from the present state
    FORECAST = "forecast"
    #: nothing says when; a moment is that of the next check
    UNKNOWN = "unknown"


class Until(Document):
    """When a wait ends."""

    certainty: Certainty = Certainty.UNKNOWN
    at: At | None = None
    #: what happens then: ``opens``, ``retry``, ``expires``, ``deadline``, ``tick``, ``claim``,
    #: ``check``; empty: unknown
    event: str = ""


class Holder(Document):
    """Who or what holds something that waits."""

    #: ``job``, ``run``, ``group``, ``pause``, ``submission``, ``worker``, ``queue``, ``lease``
    kind: str
    #: its id or name
    id: str
    #: for people
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """What a feature finds out about one wait that is shown."""

    held_by: tuple[Holder, ...] = ()
    until: Until = field(default_factory=Until)
    #: commands for a person, quoted for a shell
    actions: tuple[str, ...] = ()
    #: replaces the stored reason; none: that one holds
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitRow:
    """One waiting row, by the columns that all features have."""

    #: the values of :attr:`WaitRows.keys`
    keys: tuple[Any, ...]
    id: str
    name: str
    location: str | None
    since: datetime
    cause: str
    reason: str


#: The parameters of statements: built once, they are executed for any cluster and moment.
CLUSTER = sa.bindparam("cluster", type_=sa.Text)
NOW = sa.bindparam("now", type_=UtcTime)


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitScope:
    """The cluster and the moment for which waits are read."""

    cluster: str
    now: datetime

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of :data:`CLUSTER` and :data:`NOW`."""
        return {"cluster": self.cluster, "now": self.now}


#: returns the details of rows by their keys, or the error of a row
Describe = Callable[
    [sa.Connection, Sequence[WaitRow], WaitScope], Mapping[tuple[Any, ...], Details | Exception]
]


# Without equality: that of columns is an expression.
@dataclass(frozen=True, kw_only=True, eq=False)
class WaitRows:
    """Waiting rows of one feature, as parts of a statement; see :data:`CLUSTER` and :data:`NOW`.

    Attributes:
        kind: what waits.
        table: where the rows are.
        where: the conditions that select them.
        keys: the columns that identify a row; within a cause all but the last are the same.
        id: by which commands name it.
        name: for people; may be a subquery, which is evaluated for shown and searched rows only.
        location: its code location; none: it belongs to none. As ``name``.
        in_location: the condition that it belongs to a code location; none: by ``location``.
        since: since when it waits.
        cause: a stable key, such as ``window`` or ``concurrency:group:spark``; what follows the
            first colon names the shared thing.
        reason: the stored sentence.
        describe: returns the details of rows by their keys, or the error of a row.
    """

    kind: WaitKind
    table: sa.FromClause
    where: tuple[sa.ColumnElement[bool], ...]
    keys: tuple[sa.ColumnElement[Any], ...]
    id: sa.ColumnElement[str]
    name: sa.ColumnElement[str]
    location: sa.ColumnElement[str] | None
    since: sa.ColumnElement[datetime]
    cause: sa.ColumnElement[str]
    reason: sa.ColumnElement[str]
    describe: Describe
    in_location: Callable[[str], sa.ColumnElement[bool]] | None = None


#: the cause of what a feature cannot describe
UNREADABLE = "unreadable"


class Wait(Document):
    """Something that waits: since when, for what, held by whom, until when, and what helps."""

    kind: WaitKind
    id: str
    name: str
    #: none: it belongs to no code location
    location: str | None
    since: At
    cause: str
    #: the sentence of the feature
    reason: str
    held_by: tuple[Holder, ...]
    until: Until
    actions: tuple[str, ...]

    @classmethod
    def of_row(cls, kind: WaitKind, row: WaitRow, details: Details | Exception | None) -> "Wait":
        """Returns the wait of a row; an error in place of details makes it unreadable."""
        cause, reason = row.cause, row.reason
        if isinstance(details, Exception):
            cause, reason = UNREADABLE, f"it cannot be read: {details}"
        known = details if isinstance(details, Details) else Details()
        return cls(
            kind=kind,
            id=row.id,
            name=row.name,
            location=row.location,
            since=row.since,
            cause=cause,
            reason=known.reason or reason,
            held_by=known.held_by,
            until=known.until,
            actions=known.actions,
        )


def describe_each(
    rows: Sequence[WaitRow], describe: Callable[[WaitRow], Details]
) -> dict[tuple[Any, ...], Details | Exception]:
    """Returns the details of each row; an error of one is its value, and hides no other."""
    found: dict[tuple[Any, ...], Details | Exception] = {}
    for row in rows:
        try:
            found[row.keys] = describe(row)
        except Exception as error:
            _log.warning("a waiting row cannot be described: %r", row.id, exc_info=error)
            found[row.keys] = error
    return found


def command(*words: str, options: Sequence[str] = ()) -> str:
    """Returns a command of ``arctic`` that a person can paste into a shell, whatever its names."""
    given = list(words)
    first = next((n for n, word in enumerate(given) if word.startswith("-")), len(given))
    if first < len(given):
        given.insert(first, "--")
    return f"arctic {shlex.join([*given[:first], *options, *given[first:]])}"
