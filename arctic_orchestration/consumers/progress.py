"""The progress of a consumer."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.state import dialect
from arctic_orchestration.state.consumer_tables import consumer_partitions


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How many of a consumer's partitions are done, and how old its oldest open partition is.

    Attributes:
        acknowledged: partitions that are done.
        waiting: partitions to deliver.
        leased: leased partitions.
        discarded: partitions that were given up after their attempts.
        unread: partitions of the event log that are not in the working set yet.
        held: waiting partitions that do not exist in Dagster.
        resting: waiting partitions that rest after a failed attempt.
        oldest_at: the arrival of the oldest partition that is neither done, discarded nor held.
        lag: how long that one has waited; none: nothing is left.
    """

    acknowledged: int
    waiting: int
    leased: int
    discarded: int
    unread: int
    held: int
    resting: int
    oldest_at: datetime | None
    lag: timedelta | None

    @property
    def left(self) -> int:
        """How many partitions are open, except those that do not exist in Dagster yet."""
        return self.waiting - self.held + self.leased + self.unread

    @property
    def total(self) -> int:
        """How many partitions have arrived, done or not."""
        return self.acknowledged + self.left + self.discarded

    @property
    def share(self) -> float:
        """The share of done partitions, from 0 to 1; given up partitions are not done."""
        return self.acknowledged / self.total if self.total else 1.0

    @property
    def caught_up(self) -> bool:
        """Whether all arrived partitions are done: nothing is left, and nothing was given up."""
        return not self.left and not self.discarded

    def __str__(self) -> str:
        text = f"{self.acknowledged} of {self.total} ({self.share:.1%})"
        if self.discarded:
            text += f", {self.discarded} given up"
        if self.lag is not None:
            text += f", lag {timedelta(seconds=int(self.lag.total_seconds()))}"
        return text


def counted(
    tx: sa.Connection,
    consumer_id: int,
    now: datetime,
    *,
    unread: Mapping[str, datetime] | None = None,
) -> Progress:
    """Counts a consumer's partitions.

    Args:
        tx: the transaction.
        consumer_id: the consumer.
        now: the moment.
        unread: partitions of the log that are not in the working set, with their arrivals.
    """
    col = consumer_partitions.c
    unread = unread or {}
    query = (
        sa.select(
            col.state,
            sa.func.count().label("partitions"),
            sa.func.min(sa.case((col.held.is_(False), col.first_at))).label("oldest_at"),
            sa.func.sum(sa.case((col.held.is_(True), 1), else_=0)).label("held"),
            sa.func.sum(sa.case((col.not_before > now, 1), else_=0)).label("resting"),
        )
        .where(col.consumer_id == consumer_id, ~dialect.among(tx, col.partition, unread))
        .group_by(col.state)
    )
    by_state = {PartitionState(row.state): row for row in tx.execute(query)}

    def number(state: PartitionState) -> int:
        return int(by_state[state].partitions) if state in by_state else 0

    pending = [by_state[one] for one in _PENDING if one in by_state]
    moments = [row.oldest_at for row in pending if row.oldest_at is not None]
    oldest_at = min([*moments, *unread.values()], default=None)
    waiting = by_state.get(PartitionState.WAITING)
    return Progress(
        acknowledged=number(PartitionState.ACKNOWLEDGED),
        waiting=number(PartitionState.WAITING),
        leased=number(PartitionState.LEASED),
        discarded=number(PartitionState.DISCARDED),
        unread=len(unread),
        held=int(waiting.held) if waiting else 0,
        resting=int(waiting.resting) if waiting else 0,
        oldest_at=oldest_at,
        lag=None if oldest_at is None else max(now - oldest_at, timedelta(0)),
    )


_PENDING = (PartitionState.WAITING, PartitionState.LEASED)
