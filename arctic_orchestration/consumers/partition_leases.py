"""Leases of partitions: take, renew, and end with results.

Each take is one lease with one fencing token, for any number of partitions. An owner may write
while the lease's row is ``live``. The end of a lease is decided under the lock of that row: by the
owner that ends it, or by another process that takes over its expired partitions. The later one
finds it ended, and changes nothing. An expired lease that was not taken over still belongs to its
owner: no other owner has had the partitions.

Locks are taken in the order lease, consumer, partitions. A take-over locks the consumer's row
first, and therefore skips leases that their owners have locked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers import acknowledgement, given_up_partitions, store, working_set
from arctic_orchestration.consumers.partition import ConsumedPartition, PartitionState
from arctic_orchestration.consumers.specification import HELD_FOR
from arctic_orchestration.consumers.store import Consumer, Time
from arctic_orchestration.consumers.working_set import Existing
from arctic_orchestration.errors import LeaseLost, NotFound
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.consumer_tables import consumer_leases, consumer_partitions
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows
from arctic_orchestration.state.dialect import database_time

LIVE, ENDED, LOST = "live", "ended", "lost"
_RESET = "the consumer was reset"
_TAKEN_OVER = "its time was over, and others were given its partitions"
#: how many rows a filter examines at once
_ROWS_AT_ONCE = 1_000
#: how many ended leases are kept
_REMEMBERED = 1_000

_p, _l = consumer_partitions.c, consumer_leases.c
_waiting = _p.state == sa.literal_column(f"'{PartitionState.WAITING.value}'")
_leased = _p.state == sa.literal_column(f"'{PartitionState.LEASED.value}'")
_live = _l.state == sa.literal_column(f"'{LIVE}'")


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """Partitions that were taken together, with the token of their lease."""

    consumer_id: int
    token: int
    owner: str
    partitions: tuple[ConsumedPartition, ...]
    #: of the last one of them: all before it were examined
    place: int
    taken_at: datetime
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseResult:
    """The result of the partitions of a lease."""

    acknowledged: int
    failed: int
    put_back: int

    def __str__(self) -> str:
        parts = [
            f"{number} {what}"
            for number, what in (
                (self.acknowledged, "acknowledged"),
                (self.failed, "failed"),
                (self.put_back, "put back"),
            )
            if number
        ]
        return ", ".join(parts) or "nothing was left"


def may_take(tx: sa.Connection, consumer_id: int, now: datetime, *, after: int = 0) -> bool:
    """Returns whether there may be something to take after a place; locks nothing."""
    due = sa.exists().where(
        _p.consumer_id == consumer_id, _waiting, _p.place > after,
        sa.or_(_p.not_before.is_(None), _due(now)),
    )  # fmt: skip
    over = sa.exists().where(_l.consumer_id == consumer_id, _live, _l.expires_at <= now)
    return bool(tx.execute(sa.select(sa.or_(due, over))).scalar())


def take(
    tx: sa.Connection,
    consumer_id: int,
    owner: str,
    *,
    life: timedelta,
    limit: int | None = None,
    wanted: Callable[[ConsumedPartition], bool] | None = None,
    existing: Existing | None = None,
    held_for: timedelta = HELD_FOR,
    after: int = 0,
    checks_existing: bool = True,
    one_by_one: bool = True,
    time: Time = database_time,
) -> Taken | None:
    """Leases waiting partitions, in the order of their arrival.

    First returns the partitions of expired leases to the waiting ones; each counts an attempt. With
    ``one_by_one``, a failed partition is taken alone, when it is the first that waits; partitions
    without failures are taken together, without it.

    Args:
        tx: the transaction.
        consumer_id: the consumer.
        owner: the owner's name, for people.
        life: the duration of the lease.
        limit: the maximum number; none: all that wait.
        wanted: the filter. Called while the consumer is locked.
        existing: looks keys up in Dagster; none: all exist.
        checks_existing: whether it is called; false: only keys that existed at its last call.
        held_for: how long a key is held that does not exist yet.
        after: only partitions after this place, if all before it were examined.
        one_by_one: whether a failed partition is taken alone.
        time: the source of the time.

    Returns:
        none: there is nothing to take; or the consumer was deleted.
    """
    try:
        consumer = store.locked(tx, consumer_id)
    except NotFound:
        return None
    now = time(tx)
    expire(tx, consumer, now, one_by_one=one_by_one)
    if existing is not None and checks_existing:
        late = working_set.keep(tx, consumer, existing, now, held_for=held_for, after=after)
        given_up_partitions.report(tx, consumer, late, now)
    found: list[ConsumedPartition] = []
    place = after
    most = limit if wanted is None else None
    for row in _ready(tx, consumer_id, now, most, after, has_all=existing is None):
        alone = one_by_one and row.attempts > 0
        if alone and found:
            continue
        partition = ConsumedPartition.from_row(row, consumer)
        if wanted is None or wanted(partition):
            found.append(partition)
            place = row.place
            if alone or len(found) == limit:
                break
    if not found:
        return None
    token, keys = consumer.next_token, [partition.key for partition in found]
    tx.execute(
        sa.update(consumer_rows)
        .where(consumer_rows.c.id == consumer_id)
        .values(next_token=token + 1)
    )
    tx.execute(
        sa.insert(consumer_leases).values(
            consumer_id=consumer_id, token=token, owner=owner, state=LIVE, reason="",
            partitions=len(keys), taken_at=now, expires_at=now + life,
        )
    )  # fmt: skip
    old = (_l.consumer_id == consumer_id, _l.token < token - _REMEMBERED, ~_live)
    tx.execute(sa.delete(consumer_leases).where(*old))
    tx.execute(
        sa.update(consumer_partitions)
        .where(_p.consumer_id == consumer_id, dialect.among(tx, _p.partition, keys))
        .values(state=PartitionState.LEASED.value, token=token, state_at=now, held=False)
    )
    return Taken(
        consumer_id=consumer_id, token=token, owner=owner, partitions=tuple(found), place=place,
        taken_at=now, expires_at=now + life,
    )  # fmt: skip


def renew(
    tx: sa.Connection,
    consumer_id: int,
    token: int,
    *,
    life: timedelta,
    time: Time = database_time,
) -> bool:
    """Renews a lease for another ``life`` from now.

    Returns:
        false: it was taken over, or has ended; or the consumer was reset or deleted.
    """
    has_some = sa.exists().where(_p.consumer_id == consumer_id, _p.token == token, _leased)
    changed = tx.execute(
        sa.update(consumer_leases)
        .where(_l.consumer_id == consumer_id, _l.token == token, _live, has_some)
        .values(expires_at=time(tx) + life)
    )
    return changed.rowcount == 1


def lock_lease(tx: sa.Connection, consumer_id: int, token: int) -> int:
    """Locks a lease until the transaction ends, against a take-over.

    Returns:
        its number of partitions.

    Errors:
        LeaseLost: it was taken over, or has ended.
    """
    query = sa.select(_l.state, _l.partitions).where(
        _l.consumer_id == consumer_id, _l.token == token
    )
    row = tx.execute(query.with_for_update()).one_or_none()
    if row is None or row.state != LIVE:
        raise LeaseLost(_why_lost(tx, consumer_id, token))
    return int(row.partitions)


def end_lease(
    tx: sa.Connection,
    consumer_id: int,
    token: int,
    *,
    failed: Mapping[str, str] | None = None,
    shared: Mapping[str, str] | None = None,
    put_back: Mapping[str, str] | None = None,
    time: Time = database_time,
) -> LeaseResult:
    """Ends a lease: acknowledges its partitions, except the ones that are listed.

    Args:
        tx: the transaction; its other writes are atomic with this.
        consumer_id: the consumer.
        token: the token of the lease.
        failed: reasons by key: the attempt counts, and the partition rests or is discarded.
        shared: reasons by key: several failed together, with an unknown cause. The attempt counts,
            and the partition rests; it is not discarded.
        put_back: reasons by key: it waits again as if it had not been taken.
        time: the source of the time.

    Errors:
        LeaseLost: it was taken over, it has ended, or the consumer was reset or deleted; the
            transaction must be rolled back.
    """
    partitions = lock_lease(tx, consumer_id, token)
    consumer = store.locked(tx, consumer_id)
    now = time(tx)
    own = (_p.consumer_id == consumer_id, _p.token == token, _leased)
    counts = {"failed": 0, "put_back": 0}
    given_up: dict[str, str] = {}
    for is_shared, named in ((False, failed), (True, shared)):
        for reason, keys in _by_reason(named):
            these = (*own, dialect.among(tx, _p.partition, keys))
            recorded = _of_a_block(reason, partitions) if is_shared else reason
            number, discarded = acknowledgement.fail(
                tx, consumer, these, recorded, now, rests=True, shared=is_shared
            )
            counts["failed"] += number
            given_up |= dict.fromkeys(discarded, recorded)
    given_up_partitions.report(tx, consumer, given_up, now)
    for reason, keys in _by_reason(put_back):
        these = (*own, dialect.among(tx, _p.partition, keys))
        counts["put_back"] += acknowledgement.put_back(tx, these, reason, now)
    result = LeaseResult(acknowledged=acknowledgement.acknowledge(tx, own, now), **counts)
    check_number(result, partitions, token)
    tx.execute(
        sa.update(consumer_leases)
        .where(_l.consumer_id == consumer_id, _l.token == token)
        .values(state=ENDED, reason=str(result), ended_at=now)
    )
    return result


def check_number(result: LeaseResult, partitions: int, token: int) -> None:
    """Checks that all partitions of a lease still existed.

    Errors:
        LeaseLost: the consumer was reset: a reset skips a lease that its owner has locked, and
            takes its partitions. The transaction must be rolled back.
    """
    if result.acknowledged + result.failed + result.put_back != partitions:
        raise LeaseLost(f"{_RESET}: the lease with token {token} is over; nothing was changed")


def expire(tx: sa.Connection, consumer: Consumer, now: datetime, *, one_by_one: bool = True) -> int:
    """Takes partitions from expired leases; the consumer's row is locked.

    Each partition counts an attempt: one that kills its process must not do so forever. With
    ``one_by_one``, partitions that were lost together are not discarded: they are delivered again
    alone, so that only the one that kills its process uses up its attempts.

    Returns:
        the number of lost leases.
    """
    query = sa.select(_l.token, _l.owner, _l.expires_at, _l.partitions).where(
        _l.consumer_id == consumer.id, _live, _l.expires_at <= now
    )
    over = tx.execute(query.with_for_update(skip_locked=True)).all()
    given_up: dict[str, str] = {}
    for row in over:
        reason = f"{row.owner} was silent: its lease was over at {format_moment(row.expires_at)}"
        shared = one_by_one and row.partitions > 1
        if shared:
            reason = _of_a_block(reason, row.partitions)
        these = (_p.consumer_id == consumer.id, _p.token == row.token, _leased)
        _, discarded = acknowledgement.fail(
            tx, consumer, these, reason, now, rests=False, shared=shared
        )
        given_up |= dict.fromkeys(discarded, reason)
        tx.execute(
            sa.update(consumer_leases)
            .where(_l.consumer_id == consumer.id, _l.token == row.token)
            .values(
                state=LOST,
                reason=_TAKEN_OVER,
                ended_at=now,
            )
        )
    given_up_partitions.report(tx, consumer, given_up, now)
    return len(over)


def live_leases(tx: sa.Connection, consumer_id: int) -> list[Any]:
    """Returns the rows of live leases, in the order in which they were taken."""
    query = sa.select(consumer_leases).where(_l.consumer_id == consumer_id, _live)
    return list(tx.execute(query.order_by(_l.token)))


def ended_by_its_owner(tx: sa.Connection, consumer_id: int, token: int) -> bool:
    """Returns whether the owner of a lease ended it: it was not taken over."""
    query = sa.select(_l.state).where(_l.consumer_id == consumer_id, _l.token == token)
    return tx.execute(query).scalar() == ENDED


def _of_a_block(reason: str, partitions: int) -> str:
    return f"{reason} (in a block of {partitions}; it comes again alone)"


def _due(now: datetime) -> sa.ColumnElement[bool]:
    return _p.not_before <= now


def _ready(
    tx: sa.Connection,
    consumer_id: int,
    now: datetime,
    limit: int | None,
    after: int,
    *,
    has_all: bool,
) -> Iterator[Any]:
    """Yields rows that can be taken, by place, in batches of the likely size."""
    # Held partitions stop waiting where the code no longer declares that keys can be deleted.
    exists = sa.true() if has_all else _p.existed.is_(True)
    while True:
        query = (
            sa.select(consumer_partitions)
            .where(
                _p.consumer_id == consumer_id, _waiting, _p.place > after, exists,
                sa.or_(_p.not_before.is_(None), _due(now)),
            )
            .order_by(_p.place)
            .limit(_ROWS_AT_ONCE if limit is None else min(limit, _ROWS_AT_ONCE))
        )  # fmt: skip
        rows = tx.execute(query).all()
        if not rows:
            return
        yield from rows
        after = rows[-1].place


def _by_reason(named: Mapping[str, str] | None) -> Iterator[tuple[str, Sequence[str]]]:
    """Groups keys by their reason."""
    reasons: dict[str, list[str]] = {}
    for key, reason in (named or {}).items():
        reasons.setdefault(reason, []).append(key)
    yield from reasons.items()


def _why_lost(tx: sa.Connection, consumer_id: int, token: int) -> str:
    query = sa.select(consumer_leases).where(_l.consumer_id == consumer_id, _l.token == token)
    row = tx.execute(query).one_or_none()
    if row is None:
        return (
            f"the lease with token {token} ended so long ago that nothing is known of it, or the "
            "consumer was deleted; nothing was changed"
        )
    how = "taken from its owner" if row.state == LOST else "ended"
    return (
        f"the lease with token {token} was {how} at {format_moment(row.ended_at)}: {row.reason}; "
        "nothing was changed"
    )
