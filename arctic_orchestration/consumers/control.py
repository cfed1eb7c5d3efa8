"""What people do to a consumer: have partitions delivered again, let it begin anew, delete it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers import store
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.partition_leases import LIVE, LOST, live_leases
from arctic_orchestration.consumers.specification import FROM_NOW, format_start, parse_start
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.errors import InvalidInput, NotFound, TransitionRefused
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.consumer_tables import consumer_leases, consumer_partitions
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEnd:
    """Where an event log ends: what is committed later is read from this position on."""

    storage_id: str
    position: str


_p = consumer_partitions.c


def retry(
    tx: sa.Connection,
    consumer: Consumer,
    keys: Sequence[str] | None,
    now: datetime,
    *,
    by: str = "a person",
) -> list[str]:
    """Has partitions delivered again, with all their attempts.

    What is discarded or rests waits again under the name of its delivery, so that what was
    recorded of it is recognised; what is acknowledged becomes a delivery of its own.

    Args:
        tx: the transaction.
        consumer: of the partitions.
        keys: which; none: all that are discarded.
        now: the moment.
        by: who asks for it.

    Returns:
        their keys, in the order of delivery.

    Errors:
        NotFound: the consumer does not know one of them. Nothing was changed.
        TransitionRefused: somebody has one of them. Nothing was changed.
    """
    held = store.locked(tx, consumer.id)
    mine = _p.consumer_id == held.id
    if keys is None:
        which = _p.state == PartitionState.DISCARDED.value
    else:
        # No database can be asked for the others.
        asked = [key for key in keys if dialect.storable(key) == key]
        which = dialect.among(tx, _p.partition, asked)
    query = sa.select(_p.partition, _p.state, _p.token).where(mine, which).order_by(_p.place)
    rows = tx.execute(query).all()
    unknown = sorted(set(keys or ()) - {row.partition for row in rows})
    if unknown:
        said = dialect.storable(", ".join(unknown))
        raise NotFound(f"consumer {held.name} knows no partition {said}; nothing was changed")
    leased = [row.partition for row in rows if row.state == PartitionState.LEASED]
    if leased:
        raise TransitionRefused(
            f"{', '.join(leased)} of consumer {held.name} is somebody's: it comes again when it "
            "is put back, fails or arrives again; nothing was changed"
        )
    again: dict[str, Any] = {
        "state": PartitionState.WAITING.value, "state_at": now, "attempts": 0,
        "not_before": None, "reason": f"delivered again by {by}", "held": False,
    }  # fmt: skip
    number = held.next_number
    for row in rows:
        values = again
        if row.state == PartitionState.ACKNOWLEDGED:
            values = {**again, "place": number, "number": number, "arrivals": 1, "first_at": _p.at}
            number += 1
        this = sa.update(consumer_partitions).where(mine, _p.partition == row.partition)
        tx.execute(this.values(values))
    if number != held.next_number:
        this = sa.update(consumer_rows).where(consumer_rows.c.id == held.id)
        # The version, too: a reading that is under way has the old number.
        tx.execute(this.values(next_number=number, version=consumer_rows.c.version + 1))
    return [row.partition for row in rows]


def check_reset(start: str | datetime, asset: str | None) -> str | datetime:
    """Where a consumer would begin anew.

    Errors:
        InvalidInput: ``start`` or ``asset`` cannot be used.
    """
    try:
        begins = parse_start(start)
    except ValueError as error:
        raise InvalidInput("start", start, str(error)) from None
    if asset is not None and not (all(asset.split("/")) and dialect.storable(asset) == asset):
        raise InvalidInput("asset", asset, "an asset key such as raw/flights")
    return begins


def reset(
    tx: sa.Connection,
    consumer: Consumer,
    start: str | datetime,
    now: datetime,
    *,
    asset: str | None = None,
    end: LogEnd | None = None,
    by: str = "a person",
) -> Consumer:
    """Lets a consumer begin anew: its working set and what it acknowledged are forgotten.

    Whoever has partitions of it at the moment can acknowledge nothing more.

    Args:
        tx: the transaction.
        consumer: which.
        start: where it begins: ``from_beginning``, ``from_now`` or a moment.
        now: the moment.
        asset: what it reads from now on; none: what it did.
        end: of the log, for ``from_now``. Without it, or where that is not the log which the
            consumer has read, ``from_now`` means the arrivals that bear this moment or a later
            one: not those of a writer whose clock is behind, or whose transaction began before.
        by: who resets it.

    Errors:
        InvalidInput: ``start`` or ``asset`` cannot be used.
    """
    begins = check_reset(start, asset)
    held = store.locked(tx, consumer.id)
    since = now if begins == FROM_NOW else begins if isinstance(begins, datetime) else None
    if held.until is not None and since is not None and since >= held.until:
        expected = f"a start before {held.until.isoformat()}, where this consumer ends"
        raise InvalidInput("start", start, expected)
    position = storage_id = None
    if begins == FROM_NOW and end is not None and end.storage_id == held.storage_id:
        since, position, storage_id = None, end.position, end.storage_id
    here = consumer_leases.c
    # One that its owner ends or renews at this moment finds its partitions gone.
    free = (
        sa.select(here.token)
        .where(here.consumer_id == held.id, here.state == LIVE)
        .with_for_update(skip_locked=True)
    )
    tokens = list(tx.execute(free).scalars())
    tx.execute(
        sa.update(consumer_leases)
        .where(here.consumer_id == held.id, dialect.among(tx, here.token, tokens))
        .values(state=LOST, reason=f"the consumer was reset by {by}", ended_at=now)
    )
    tx.execute(sa.delete(consumer_partitions).where(_p.consumer_id == held.id))
    tx.execute(
        sa.update(consumer_rows)
        .where(consumer_rows.c.id == held.id)
        .values(
            asset=asset or held.asset, start=format_start(begins), since=since,
            position=position, storage_id=storage_id, version=consumer_rows.c.version + 1,
            at_end=False, read_at=None, passed_over=0, passed_over_reason=None,
        )
    )  # fmt: skip
    return store.locked(tx, held.id)


def check_delete(tx: sa.Connection, consumer: Consumer, now: datetime) -> None:
    """Whether a consumer may be deleted: nobody has partitions of it.

    Errors:
        TransitionRefused: somebody has, and the lease is not over.
    """
    for lease in live_leases(tx, consumer.id):
        if lease.expires_at > now:
            raise TransitionRefused(
                f"{lease.owner} has partitions of consumer {consumer.name} until "
                f"{format_moment(lease.expires_at)}, and may renew that: stop it, or wait until "
                "its lease is over; nothing was changed"
            )


def delete(tx: sa.Connection, consumer: Consumer, now: datetime) -> None:
    """Deletes a consumer: its position, its working set and what it has done are forgotten.

    Whoever uses the name later makes it anew. Whoever has partitions by a lease that is over can
    acknowledge nothing more, also when the consumer was made anew: its tokens go on where they
    were, and so do the names of its deliveries.

    Args:
        tx: the transaction.
        consumer: which.
        now: the moment.

    Errors:
        NotFound: it was deleted already.
        TransitionRefused: somebody has partitions of it. Nothing was changed.
    """
    held = store.locked(tx, consumer.id)
    here = consumer_leases.c
    live = (here.consumer_id == held.id, here.state == LIVE)
    query = sa.select(here.token).where(*live).with_for_update(skip_locked=True)
    free = set(tx.execute(query).scalars())
    # As they are now: a renewal that was under way is done or waits for this transaction.
    check_delete(tx, held, now)
    if any(lease.token not in free for lease in live_leases(tx, held.id)):
        raise TransitionRefused(
            f"an owner of partitions of consumer {held.name} ends its lease at this moment: "
            "try again; nothing was changed"
        )
    tx.execute(sa.delete(consumer_partitions).where(_p.consumer_id == held.id))
    tx.execute(sa.delete(consumer_leases).where(here.consumer_id == held.id))
    tx.execute(
        sa.update(consumer_rows)
        .where(consumer_rows.c.id == held.id)
        .values(
            asset=store.DELETED, start="", since=None, until=None, storage_id=None,
            position=None, version=consumer_rows.c.version + 1, at_end=False, read_at=None,
            passed_over=0, passed_over_reason=None,
        )
    )  # fmt: skip
