"""Notices for people, in an outbox until they are sent.

A notice is written in the same transaction as its cause, so that neither exists without the other.
A sender claims it first: a short transaction of its own moves its ``send_at`` into the future,
which is a lease. If the sender dies, the next one sends the notice after the lease; a notice is
therefore sent at least once, and twice only after such a death.

A notice that could not be sent is retried after 1, 5, 30 minutes and 2 hours, and then given up. A
notice that was not sent for a day is given up too: a channel that is configured today does not
begin with the news of last week.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa

from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import locations, notices

#: how long a notice is kept, sent or not
KEEP = timedelta(days=30)
#: how long a claimed notice belongs to its sender
LEASE = timedelta(minutes=5)
#: the wait after each failed attempt; after the last the notice is given up
WAITS = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
)
ATTEMPTS = len(WAITS) + 1
_STALE_AFTER = timedelta(days=1)
_PRUNED_AT_ONCE = 500


class Notice(StrEnum):
    """The kinds of notices."""

    #: a job ended before it was launched: a constraint or a person canceled it
    JOB_DISCARDED = "job_discarded"
    #: a job waited until its timeout, and was discarded or launched past its constraints
    JOB_TIMED_OUT = "job_timed_out"
    #: no run could be made of a job
    LAUNCH_FAILED = "launch_failed"
    #: the run of a job, or of a task, failed
    RUN_FAILED = "run_failed"
    #: the run of a task was canceled
    RUN_CANCELED = "run_canceled"
    #: a task was not run, because a parent was not fresh enough in time
    PARENTS_STALE = "parents_stale"
    #: work that failed too often was set aside until a person retries it
    QUARANTINED = "quarantined"
    #: due work was left out on purpose
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    """A new notice."""

    event: Notice
    #: the name of the schedule, or of another subject
    schedule: str
    reason: str
    job_id: str | None = None
    #: the tags of the schedule, by which channels select
    tags: Mapping[str, str] = field(default_factory=dict)


#: when a channel was sent the notice; None: it was only counted in another one's message
SentTo = Mapping[str, datetime | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredNotice:
    """A row of ``arctic_notices``."""

    id: int
    at: datetime
    event: Notice
    schedule: str
    reason: str
    job_id: str | None
    tags: Mapping[str, str]
    #: failed attempts
    attempts: int
    #: the channels that have it already
    sent_to: "SentTo"


def write(tx: sa.Connection, location_id: int, news: Sequence[News], now: datetime) -> None:
    """Puts news into the outbox, to be sent at once."""
    if not news:
        return
    rows = [
        {
            "location_id": location_id,
            "at": now,
            "event": one.event.value,
            "schedule": one.schedule,
            "job_id": one.job_id,
            "reason": one.reason,
            "tags": json.dumps(dict(one.tags)),
            "send_at": now,
        }
        for one in news
    ]
    tx.execute(sa.insert(notices), rows)


def write_for_all(
    tx: sa.Connection, news: Sequence[News], now: datetime, *, cluster: str | None = None
) -> None:
    """Puts news that belong to no location into the outbox of the one that ticked last.

    Without a location, nobody sends them, and nothing is written.

    Args:
        tx: the transaction of their cause.
        news: what to send.
        now: the moment.
        cluster: only locations of this cluster; none: of all.
    """
    col = locations.c
    last = sa.select(col.id).order_by(col.ticked_at.desc().nulls_last()).limit(1)
    if cluster is not None:
        last = last.where(col.cluster == cluster)
    location_id = tx.execute(last).scalar()
    if location_id is not None:
        write(tx, location_id, news, now)


def tags_since(
    tx: sa.Connection, location_id: int, event: Notice, since: datetime
) -> list[Mapping[str, str]]:
    """Returns the tags of the notices of an event that were written since a moment, inclusive."""
    query = sa.select(notices.c.tags).where(
        notices.c.location_id == location_id, notices.c.event == event.value,
        notices.c.at >= since,
    )  # fmt: skip
    return [json.loads(tags) for tags in tx.execute(query).scalars()]


def due(tx: sa.Connection, location_id: int, now: datetime) -> bool:
    """Returns whether there is a notice to send; only reads."""
    some = sa.select(notices.c.id).where(*_due(location_id, now)).limit(1)
    return tx.execute(some).first() is not None


def claim(
    tx: sa.Connection, location_id: int, now: datetime, limit: int, lease: timedelta = LEASE
) -> list[StoredNotice]:
    """Claims the oldest due notices, which no other sender gets while the lease lasts."""
    stale = notices.c.at < now - _STALE_AFTER
    tx.execute(
        sa.update(notices)
        .where(*_due(location_id, now), stale)
        .values(send_at=None, problem=_could_not_be_sent_in_time())
    )
    query = (
        sa.select(notices)
        .where(*_due(location_id, now))
        .order_by(notices.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    found = [_stored(row) for row in tx.execute(query).mappings()]
    if found:
        mine = dialect.among(tx, notices.c.id, [notice.id for notice in found])
        tx.execute(sa.update(notices).where(mine).values(send_at=now + lease))
    return found


def sent(tx: sa.Connection, done: Mapping[int, SentTo]) -> None:
    """Records that these notices, given by id, are done for all channels."""
    if done:
        statement = (
            sa.update(notices)
            .where(notices.c.id == sa.bindparam("of"))
            .values(send_at=None, problem=None, sent_to=sa.bindparam("to"))
        )
        tx.execute(statement, [{"of": id, "to": _as_text(names)} for id, names in done.items()])


def failed(
    tx: sa.Connection, notice: StoredNotice, sent_to: SentTo, problem: str, now: datetime
) -> bool:
    """Records that a channel failed; returns whether the notice is retried."""
    attempts = notice.attempts + 1
    retry_at = now + WAITS[attempts - 1] if attempts < ATTEMPTS else None
    tx.execute(
        sa.update(notices)
        .where(notices.c.id == notice.id)
        .values(attempts=attempts, send_at=retry_at, sent_to=_as_text(sent_to), problem=problem)
    )
    return retry_at is not None


def postponed(tx: sa.Connection, notice: StoredNotice, sent_to: SentTo, send_at: datetime) -> None:
    """Puts a notice back that a channel was not sent yet; no attempt is counted."""
    tx.execute(
        sa.update(notices)
        .where(notices.c.id == notice.id)
        .values(send_at=send_at, sent_to=_as_text(sent_to))
    )


def messages_since(
    tx: sa.Connection, location_id: int, since: datetime
) -> dict[str, list[datetime]]:
    """Returns when messages were sent after ``since``, in order, by the name of the channel."""
    query = sa.select(notices.c.sent_to).where(
        notices.c.location_id == location_id,
        # No notice is sent later than that.
        notices.c.at > since - _STALE_AFTER - LEASE,
        notices.c.sent_to != "{}",
    )
    found: dict[str, list[datetime]] = defaultdict(list)
    for text in tx.execute(query).scalars():
        for name, at in _sent_to(text).items():
            if at is not None and at > since:
                found[name].append(at)
    return {name: sorted(moments) for name, moments in found.items()}


def prune(tx: sa.Connection, location_id: int, now: datetime, keep: timedelta = KEEP) -> int:
    """Deletes some of the notices older than ``keep``; returns how many."""
    old = (
        sa.select(notices.c.id)
        .where(notices.c.location_id == location_id, notices.c.at < now - keep)
        .order_by(notices.c.id)
        .limit(_PRUNED_AT_ONCE)
    )
    ids = list(tx.execute(old).scalars())
    if ids:
        tx.execute(sa.delete(notices).where(dialect.among(tx, notices.c.id, ids)))
    return len(ids)


def _due(location_id: int, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    # A later version with the same tables may write kinds of its own: they wait for it.
    known = notices.c.event.in_([event.value for event in Notice])
    return notices.c.location_id == location_id, notices.c.send_at <= now, known


def _could_not_be_sent_in_time() -> sa.ColumnElement[str]:
    """Returns the last problem of a notice, else that it was not sent."""
    return sa.func.coalesce(notices.c.problem, f"not sent within {_STALE_AFTER.days} day")


def _stored(row: sa.RowMapping) -> StoredNotice:
    return StoredNotice(
        id=row["id"],
        at=row["at"],
        event=Notice(row["event"]),
        schedule=row["schedule"],
        reason=row["reason"],
        job_id=row["job_id"],
        tags=json.loads(row["tags"]),
        attempts=row["attempts"],
        sent_to=_sent_to(row["sent_to"]),
    )


def _as_text(sent_to: SentTo) -> str:
    return json.dumps({name: at and at.isoformat() for name, at in sorted(sent_to.items())})


def _sent_to(text: str) -> dict[str, datetime | None]:
    return {name: at and datetime.fromisoformat(at) for name, at in json.loads(text).items()}
