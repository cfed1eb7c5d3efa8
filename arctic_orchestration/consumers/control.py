"""Manual control of a consumer: redeliver partitions, reset it, delete it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers import store
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.partition_leases import LIVE, LOST, live_leases
from arctic_orchestration.consumers.progress import counted
from arctic_orchestration.consumers.specification import FROM_NOW, format_start, parse_start
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.errors import InvalidInput, NotFound, TransitionRefused, naming
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.audit import NO_ACTOR, Actor
from arctic_orchestration.state.consumer_tables import consumer_leases, consumer_partitions
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEnd:
    """The end of an event log: later commits are read from this position on."""

    storage_id: str
    position: str


_p = consumer_partitions.c


def retry(
    tx: sa.Connection,
    consumer: Consumer,
    keys: Sequence[str] | None,
    now: datetime,
    *,
    actor: Actor = NO_ACTOR,
) -> list[str]:
    """Redelivers partitions, with all of their attempts.

    A discarded or resting partition waits again under its delivery name, so that records under that
    name are recognized; an acknowledged one gets a new delivery.

    Args:
        tx: the transaction.
        consumer: the consumer of the partitions.
        keys: the partitions; none: all discarded ones.
        now: the moment.
        actor: who requests it, for the audit log.

    Returns:
        their keys, in the order of delivery.

    Errors:
        NotFound: the consumer does not know a key. Nothing was changed.
        TransitionRefused: a partition is leased. Nothing was changed.
    """
    held = store.locked(tx, consumer.id)
    mine = _p.consumer_id == held.id
    if keys is None:
        which = _p.state == PartitionState.DISCARDED.value
    else:
        # Other keys cannot be stored in any database.
        storable = [key for key in keys if dialect.storable(key) == key]
        which = dialect.among(tx, _p.partition, storable)
    query = sa.select(_p.partition, _p.state, _p.token).where(mine, which).order_by(_p.place)
    rows = tx.execute(query).all()
    unknown = sorted(set(keys or ()) - {row.partition for row in rows})
    if unknown:
        listed = dialect.storable(", ".join(unknown))
        raise NotFound(f"consumer {held.name} knows no partition {listed}; nothing was changed")
    leased = [row.partition for row in rows if row.state == PartitionState.LEASED]
    if leased:
        raise TransitionRefused(
            f"{', '.join(leased)} of consumer {held.name} is leased: it is delivered again when it "
            "is put back, fails or arrives again; nothing was changed"
        )
    waiting: dict[str, Any] = {
        "state": PartitionState.WAITING.value, "state_at": now, "attempts": 0,
        "not_before": None, "reason": f"delivered again by {_name(actor)}", "held": False,
    }  # fmt: skip
    done = [row.partition for row in rows if row.state == PartitionState.ACKNOWLEDGED]
    open_ = [row.partition for row in rows if row.state != PartitionState.ACKNOWLEDGED]
    this = sa.update(consumer_partitions).where(mine)
    if open_:
        tx.execute(this.where(dialect.among(tx, _p.partition, open_)).values(waiting))
    if done:
        number = sa.bindparam("number_", type_=sa.BigInteger())
        anew = {"place": number, "number": number, "arrivals": 1, "first_at": _p.at}
        tx.execute(
            this.where(_p.partition == sa.bindparam("partition_")).values({**waiting, **anew}),
            [
                {"partition_": key, "number_": held.next_number + place}
                for place, key in enumerate(done)
            ],
        )
        # The version as well: a read in progress has the old number.
        tx.execute(
            sa.update(consumer_rows)
            .where(consumer_rows.c.id == held.id)
            .values(next_number=held.next_number + len(done), version=consumer_rows.c.version + 1)
        )
    redelivered = [row.partition for row in rows]
    if actor is not NO_ACTOR:
        audit.record(
            tx, actor, "consumers", "retry", held.name, partitions=redelivered,
            before={row.partition: row.state for row in rows},
            after=dict.fromkeys(redelivered, PartitionState.WAITING.value),
        )  # fmt: skip
    return redelivered


def check_reset(start: str | datetime, asset: str | None) -> str | datetime:
    """Returns where a reset consumer would begin.

    Errors:
        InvalidInput: ``start`` or ``asset`` is invalid.
    """
    with naming("start", start):
        begins = parse_start(start)
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
    actor: Actor = NO_ACTOR,
) -> Consumer:
    """Resets a consumer: deletes its working set and its acknowledgements.

    Owners of its partitions cannot acknowledge them any more.

    Args:
        tx: the transaction.
        consumer: the consumer.
        start: where it begins: ``from_beginning``, ``from_now`` or a moment.
        now: the moment.
        asset: the asset that it reads from now on; none: unchanged.
        end: the end of the log, for ``from_now``. Without it, or for another log than the consumer
            has read, ``from_now`` means arrivals with this moment or a later one: it misses those
            of a writer whose clock is behind, or whose transaction began before.
        actor: who resets it, for the audit log.

    Errors:
        InvalidInput: ``start`` or ``asset`` is invalid.
    """
    begins = check_reset(start, asset)
    held = store.locked(tx, consumer.id)
    since = now if begins == FROM_NOW else begins if isinstance(begins, datetime) else None
    if held.until is not None and since is not None and since >= held.until:
        expected = f"a start before {held.until.isoformat()}, where this consumer ends"
        raise InvalidInput("start", start, expected)
    progress = counted(tx, held.id, now)
    left = f"{progress.acknowledged} acknowledged and {progress.waiting} waiting partitions"
    position = storage_id = None
    if begins == FROM_NOW and end is not None and end.storage_id == held.storage_id:
        since, position, storage_id = None, end.position, end.storage_id
    col = consumer_leases.c
    # An owner that ends or renews its lease at this moment finds its partitions gone.
    free = (
        sa.select(col.token)
        .where(col.consumer_id == held.id, col.state == LIVE)
        .with_for_update(skip_locked=True)
    )
    tokens = list(tx.execute(free).scalars())
    tx.execute(
        sa.update(consumer_leases)
        .where(col.consumer_id == held.id, dialect.among(tx, col.token, tokens))
        .values(state=LOST, reason=f"the consumer was reset by {_name(actor)}", ended_at=now)
    )
    tx.execute(sa.delete(consumer_partitions).where(_p.consumer_id == held.id))
    tx.execute(
        sa.update(consumer_rows)
        .where(consumer_rows.c.id == held.id)
        .values(
            asset=asset or held.asset, start=format_start(begins), since=since,
            position=position, storage_id=storage_id, version=consumer_rows.c.version + 1,
            resets=consumer_rows.c.resets + 1,
            at_end=False, read_at=None, passed_over=0, passed_over_reason=None,
        )
    )  # fmt: skip
    after = store.locked(tx, held.id)
    if actor is not NO_ACTOR:
        audit.record(
            tx, actor, "consumers", "reset", held.name,
            start=after.start, asset=asset, forgotten=left,
            before={"asset": held.asset, "start": held.start},
            after={"asset": after.asset, "start": after.start},
        )  # fmt: skip
    return after


def check_delete(tx: sa.Connection, consumer: Consumer, now: datetime) -> None:
    """Checks that a consumer may be deleted: none of its partitions is leased.

    Errors:
        TransitionRefused: a partition has an unexpired lease.
    """
    for lease in live_leases(tx, consumer.id):
        if lease.expires_at > now:
            raise TransitionRefused(
                f"{lease.owner} has partitions of consumer {consumer.name} until "
                f"{format_moment(lease.expires_at)}, and may renew that: stop it, or wait until "
                "its lease is over; nothing was changed"
            )


def delete(tx: sa.Connection, consumer: Consumer, now: datetime) -> None:
    """Deletes a consumer with its position, its working set and its acknowledgements.

    The next use of the name creates it again. Owners with expired leases cannot acknowledge any
    more, even then: tokens and delivery names continue from the deleted consumer.

    Args:
        tx: the transaction.
        consumer: the consumer.
        now: the moment.

    Errors:
        NotFound: it was deleted already.
        TransitionRefused: a partition is leased. Nothing was changed.
    """
    held = store.locked(tx, consumer.id)
    col = consumer_leases.c
    live = (col.consumer_id == held.id, col.state == LIVE)
    query = sa.select(col.token).where(*live).with_for_update(skip_locked=True)
    free = set(tx.execute(query).scalars())
    # Their present state: a renewal in progress is done or waits for this transaction.
    check_delete(tx, held, now)
    if any(lease.token not in free for lease in live_leases(tx, held.id)):
        raise TransitionRefused(
            f"an owner of partitions of consumer {held.name} ends its lease at this moment: "
            "retry then; nothing was changed"
        )
    tx.execute(sa.delete(consumer_partitions).where(_p.consumer_id == held.id))
    tx.execute(sa.delete(consumer_leases).where(col.consumer_id == held.id))
    tx.execute(
        sa.update(consumer_rows)
        .where(consumer_rows.c.id == held.id)
        .values(
            asset=store.DELETED, start="", since=None, until=None, storage_id=None,
            position=None, version=consumer_rows.c.version + 1, at_end=False, read_at=None,
            passed_over=0, passed_over_reason=None,
        )
    )  # fmt: skip


def _name(actor: Actor) -> str:
    return actor.name or "a person"
