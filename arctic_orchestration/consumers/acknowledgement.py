"""The ends of a delivery: acknowledged, put back, failed.

Each function moves leased rows in one or two statements, and returns how many. An arrival during
the delivery is a delivery of its own, however the previous one ended.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.state.consumer_tables import consumer_partitions

_p = consumer_partitions.c

#: the rows: all of them leased, and under one token
Which = Sequence[sa.ColumnElement[bool]]
_free: Mapping[str, Any] = {
    "token": None, "next_number": None, "next_arrivals": None, "next_first_at": None,
    "next_at": None, "next_details": None,
}  # fmt: skip
#: An arrival during a lease starts again.
_as_arrived: Mapping[str, Any] = {
    **_free, "state": PartitionState.WAITING.value, "number": _p.next_number, "at": _p.next_at,
    "details": _p.next_details, "attempts": 0, "not_before": None, "reason": "",
    "existed": sa.false(),
}  # fmt: skip
_and_before: Mapping[str, Any] = {
    "arrivals": _p.arrivals + _p.next_arrivals,
    "first_at": sa.case((_p.next_first_at < _p.first_at, _p.next_first_at), else_=_p.first_at),
}


def acknowledge(tx: sa.Connection, these: Which, now: datetime) -> int:
    """Acknowledges partitions; later arrivals of them wait."""
    done = {
        "state_at": now, "acknowledged_at": now, "acknowledgements": _p.acknowledgements + 1,
    }  # fmt: skip
    number = _changed(
        tx,
        (*these, _p.next_number.is_not(None)),
        {
            **_as_arrived, **done, "place": _p.next_number, "arrivals": _p.next_arrivals,
            "first_at": _p.next_first_at,
        },
    )  # fmt: skip
    return number + _changed(
        tx,
        these,
        {
            **_free, **done, "state": PartitionState.ACKNOWLEDGED.value,
            "attempts": 0, "not_before": None, "reason": "",
        },
    )  # fmt: skip


def put_back(tx: sa.Connection, these: Which, reason: str, now: datetime) -> int:
    """Makes partitions wait again as if they had not been taken."""
    number = _arrived_meanwhile(tx, these, now)
    values = {"state": PartitionState.WAITING.value, "not_before": None, "reason": reason}
    return number + _changed(tx, these, {**_free, **values, "state_at": now})


def fail(
    tx: sa.Connection,
    consumer: Consumer,
    these: Which,
    reason: str,
    now: datetime,
    *,
    rests: bool,
    shared: bool = False,
) -> tuple[int, Sequence[str]]:
    """Counts an attempt of each: it waits again, after its rest, or is discarded.

    Args:
        tx: the transaction.
        consumer: the consumer of the partitions.
        these: the partitions.
        reason: for people.
        now: the moment.
        rests: whether it waits for ``retry_after`` before the next delivery.
        shared: the block failed with several partitions, so the cause is unknown: none is
            discarded, whatever its attempts.

    Returns:
        how many failed, and the keys of the discarded ones.
    """
    failed = _arrived_meanwhile(tx, these, now)
    counted = {**_free, "attempts": _p.attempts + 1, "reason": reason, "state_at": now}
    given_up: Sequence[str] = ()
    if not shared:
        last = (*these, _p.attempts + 1 >= consumer.max_attempts)
        discarded = {"state": PartitionState.DISCARDED.value, "not_before": None}
        update = sa.update(consumer_partitions).where(*last).values({**counted, **discarded})
        given_up = tx.execute(update.returning(_p.partition)).scalars().all()
    waits = {
        "state": PartitionState.WAITING.value,
        "not_before": now + consumer.retry_after if rests and consumer.retry_seconds else None,
    }
    return failed + len(given_up) + _changed(tx, these, {**counted, **waits}), given_up


def _arrived_meanwhile(tx: sa.Connection, these: Which, now: datetime) -> int:
    """Starts a new delivery at the same place; the failure of the previous one does not count."""
    return _changed(
        tx, (*these, _p.next_number.is_not(None)), {**_as_arrived, **_and_before, "state_at": now}
    )


def _changed(tx: sa.Connection, these: Which, values: Mapping[str, Any]) -> int:
    return tx.execute(sa.update(consumer_partitions).where(*these).values(dict(values))).rowcount
