"""Partitions that are given up: notices to people, and failures of runs."""

import logging
from collections.abc import Mapping
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.errors import PartitionsGivenUp
from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.state.consumer_tables import consumer_partitions
from arctic_orchestration.state.dialect import storable

_log = logging.getLogger("arctic.consumers")

#: the maximum number of named partitions in one message
_NAMED = 5
_p = consumer_partitions.c


def report(
    tx: sa.Connection, consumer: Consumer, reasons: Mapping[str, str], now: datetime
) -> None:
    """Writes one notice for partitions that this transaction gives up; logs it after the commit.

    A consumer belongs to a cluster and to no code location. The notice goes to the outbox of the
    location of that cluster whose dispatcher ticked last. Without one, only the log, the commands
    and ``arctic doctor`` show it.

    Args:
        tx: the transaction that gives them up.
        consumer: the consumer of the partitions.
        reasons: the reasons, by key.
        now: the moment.
    """
    if not reasons:
        return
    reason = f"{_listed(reasons, len(reasons))}. {_advice(consumer)}"
    line = f"consumer {consumer.name}: {reason}"

    def committed(_: sa.Connection) -> None:
        _log.warning(line)

    sa.event.listen(tx, "commit", committed, once=True)
    news = News(
        event=Notice.QUARANTINED,
        schedule=f"consumer {consumer.name}",
        reason=storable(reason),
        tags={"arctic/consumer": consumer.name},
    )
    outbox.write_for_all(tx, [news], now, cluster=consumer.cluster)


def check(tx: sa.Connection, consumer: Consumer) -> None:
    """Returns if a consumer has given up nothing.

    Errors:
        PartitionsGivenUp: names partitions, their reasons, and what to do.
    """
    given_up = (_p.consumer_id == consumer.id, _p.state == PartitionState.DISCARDED.value)
    number = tx.execute(sa.select(sa.func.count()).where(*given_up)).scalar_one()
    if not number:
        return
    rows = sa.select(_p.partition, _p.reason).where(*given_up).order_by(_p.place).limit(_NAMED)
    reasons = {row.partition: row.reason for row in tx.execute(rows)}
    raise PartitionsGivenUp(
        f"consumer {consumer.name}: {_listed(reasons, number)}. {_advice(consumer)}"
    )


def _listed(reasons: Mapping[str, str], number: int) -> str:
    """Returns some partitions with their reasons, and how many more there are."""
    named = [f"{key}: {reason}" for key, reason in islice(reasons.items(), _NAMED)]
    if number > len(named):
        named.append(f"and {number - len(named)} more")
    what = "1 partition is" if number == 1 else f"{number} partitions are"
    return f"{what} given up: {'; '.join(named)}"


def _advice(consumer: Consumer) -> str:
    return f"Mend the cause, then run: arctic consumers retry {consumer.name} --all"
