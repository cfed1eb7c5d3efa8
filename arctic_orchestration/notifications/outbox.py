"""Notices for people, in an outbox until they are sent.

A notice is written in the same transaction as its cause, so that neither exists without the other.
A sender claims it first: a short transaction of its own moves its ``send_at`` into the future,
which is a lease. If the sender dies, the next one sends the notice after the lease; a notice is
therefore sent at least once, and twice only after such a death.

A notice that a channel could not send is retried there after 1, 5, 30 minutes and 2 hours, and then
given up for this channel. Each channel has attempts of its own: a dead one takes none of another. A
notice that was not sent for a day after it was due is given up too: a channel that is configured
today does not begin with the news of last week. While a limit holds it back, it is not due.
"""

import json
import re
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
#: the wait after each failed attempt of a channel; after the last it is given up for the channel
WAITS = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
)
ATTEMPTS = len(WAITS) + 1
#: how long a limit may hold a notice back
LONGEST_LIMIT = timedelta(days=1)
_STALE_AFTER = timedelta(days=1)
#: no older notice is sent, so that reading the sent messages has an end
_OLDEST = LONGEST_LIMIT + _STALE_AFTER
#: notices that one call deletes
PRUNED_AT_ONCE = 500
#: A failure beside the channels that have the notice; no name of a channel has a space. Earlier
#: versions read it as a channel that they do not have.
_FAILURE = re.compile(r"(\S+) failed ([0-9]+)")


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
class Failure:
    """The failed attempts of a channel to send a notice."""

    attempts: int
    #: None: they are used up
    retry_at: datetime | None


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
    #: failed attempts, of the channel with the most
    attempts: int
    #: the channels that have it already
    sent_to: "SentTo"
    #: of the channels that failed and do not have it, by name
    failures: Mapping[str, Failure] = field(default_factory=dict)

    def after_failure(self, channel: str, now: datetime) -> Failure:
        """Returns the failures of a channel that has failed once more."""
        before = self.failures.get(channel)
        attempts = before.attempts + 1 if before else 1
        retry_at = now + WAITS[attempts - 1] if attempts < ATTEMPTS else None
        return Failure(attempts=attempts, retry_at=retry_at)


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

    Without a location there is no sender, and nothing is written.

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


def claim(tx: sa.Connection, location_id: int, now: datetime, limit: int) -> list[StoredNotice]:
    """Claims the oldest due notices, which no other sender gets while the lease lasts."""
    # On a host whose clock is ahead, nothing is older than it is.
    then = dialect.not_ahead(tx, now)
    stale = sa.or_(notices.c.send_at < then - _STALE_AFTER, notices.c.at < then - _OLDEST)
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
        tx.execute(sa.update(notices).where(mine).values(send_at=now + LEASE))
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


def unsent(
    tx: sa.Connection,
    notice: StoredNotice,
    sent_to: SentTo,
    failures: Mapping[str, Failure],
    send_at: datetime | None,
    problem: str | None,
) -> None:
    """Records that not all channels have a notice.

    Args:
        tx: the transaction.
        notice: as it was claimed.
        sent_to: the channels that have it.
        failures: of the channels that do not.
        send_at: the next moment for any of them; None: it is given up.
        problem: the errors of this attempt; None: there were none, and earlier ones stay.
    """
    attempts = max([notice.attempts, *(failure.attempts for failure in failures.values())])
    values: dict[str, object] = {"problem": problem} if problem is not None else {}
    tx.execute(
        sa.update(notices)
        .where(notices.c.id == notice.id)
        .values(attempts=attempts, send_at=send_at, sent_to=_as_text(sent_to, failures), **values)
    )


def messages_since(
    tx: sa.Connection, location_id: int, since: datetime
) -> dict[str, list[datetime]]:
    """Returns when messages were sent after ``since``, in order, by the name of the channel."""
    query = sa.select(notices.c.sent_to).where(
        notices.c.location_id == location_id,
        # No notice is sent later than that.
        notices.c.at > since - _OLDEST - LEASE,
        notices.c.sent_to != "{}",
    )
    found: dict[str, list[datetime]] = defaultdict(list)
    for text in tx.execute(query).scalars():
        for name, at in _sent_to(text)[0].items():
            if at is not None and at > since:
                found[name].append(at)
    return {name: sorted(moments) for name, moments in found.items()}


def prune(tx: sa.Connection, location_id: int, now: datetime) -> int:
    """Deletes some of the notices older than ``KEEP``; returns how many."""
    before = dialect.not_ahead(tx, now) - KEEP
    old = (
        sa.select(notices.c.id)
        .where(notices.c.location_id == location_id, notices.c.at < before)
        .order_by(notices.c.id)
        .limit(PRUNED_AT_ONCE)
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
    sent_to, failures = _sent_to(row["sent_to"])
    return StoredNotice(
        id=row["id"],
        at=row["at"],
        event=Notice(row["event"]),
        schedule=row["schedule"],
        reason=row["reason"],
        job_id=row["job_id"],
        tags=json.loads(row["tags"]),
        attempts=row["attempts"],
        sent_to=sent_to,
        failures=failures,
    )


def _as_text(sent_to: SentTo, failures: Mapping[str, Failure] | None = None) -> str:
    moments = dict(sent_to)
    for name, failure in (failures or {}).items():
        moments[f"{name} failed {failure.attempts}"] = failure.retry_at
    return json.dumps({name: at and at.isoformat() for name, at in sorted(moments.items())})


def _sent_to(text: str) -> tuple[dict[str, datetime | None], dict[str, Failure]]:
    """Returns the channels that have a notice, and the failures of others."""
    sent_to: dict[str, datetime | None] = {}
    failures: dict[str, Failure] = {}
    for name, written in json.loads(text).items():
        at = written and datetime.fromisoformat(written)
        if failed := _FAILURE.fullmatch(name):
            failures[failed[1]] = Failure(attempts=int(failed[2]), retry_at=at)
        else:
            sent_to[name] = at
    return sent_to, failures
