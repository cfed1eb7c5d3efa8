"""The partitions of a cluster's consumers that are not done, by cause and consumer.

Only what the consumers have read: the unread part of Dagster's event log is not in the state
database.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.store import IS_THERE
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.consumer_tables import (
    consumer_leases,
    consumer_partitions,
    consumers,
)
from arctic_orchestration.waits import (
    CLUSTER,
    NOW,
    Certainty,
    Details,
    Holder,
    Until,
    WaitKind,
    WaitRow,
    WaitRows,
    WaitScope,
    command,
    describe_each,
)

_p, _c = consumer_partitions.c, consumers.c


@cache
def wait_rows() -> tuple[WaitRows, ...]:
    """Returns the partitions that consumers of a cluster have read and not acknowledged.

    Causes, each with the consumer's name: ``delivery``, ``retry``, ``not_in_dagster``, ``leased``,
    ``given_up``.
    """
    of_state = {
        state: _p.state == sa.literal_column(f"'{state.value}'", sa.Text)
        for state in PartitionState
    }
    waits = sa.case(
        (_p.held.is_(True), "not_in_dagster"), (_p.not_before > NOW, "retry"), else_="delivery"
    )
    return (
        _rows(of_state[PartitionState.WAITING], waits, _p.first_at),
        _rows(of_state[PartitionState.LEASED], sa.literal("leased"), _p.state_at),
        _rows(of_state[PartitionState.DISCARDED], sa.literal("given_up"), _p.state_at),
    )


def _rows(
    state: sa.ColumnElement[bool],
    cause: sa.ColumnElement[str],
    since: sa.ColumnElement[datetime],
) -> WaitRows:
    name = sa.select(_c.name).where(_c.id == _p.consumer_id).scalar_subquery()
    in_cluster = sa.select(_c.id).where(_c.cluster == CLUSTER, IS_THERE)
    return WaitRows(
        kind=WaitKind.PARTITION,
        table=consumer_partitions,
        where=(state, _p.consumer_id.in_(in_cluster)),
        keys=(_p.consumer_id, _p.partition),
        id=_p.partition,
        name=name + sa.literal(" ") + _p.partition,
        location=None,
        since=since,
        cause=cause + sa.literal(":") + name,
        reason=_p.reason,
        describe=_described,
    )


def reason_of(row: Any, now: datetime) -> str:
    """Returns the reason of a partition's state."""
    notes = [row.reason] if row.reason else []
    if row.held:
        notes.append("Dagster does not have it among the asset's partitions yet")
    if row.state == PartitionState.WAITING and row.not_before is not None and row.not_before > now:
        notes.append(f"rests until {format_moment(row.not_before)}")
    if row.state == PartitionState.LEASED:
        notes.append(f"token {row.token}")
    if row.next_number is not None:
        notes.append("arrived again meanwhile")
    if row.state == PartitionState.ACKNOWLEDGED:
        notes.append(f"acknowledged {format_moment(row.acknowledged_at)}")
    return "; ".join(notes)


def _described(
    tx: sa.Connection, rows: Sequence[WaitRow], scope: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    lease = consumer_leases.c
    query = (
        sa.select(consumer_partitions, _c.name, lease.owner, lease.expires_at)
        .join(consumers, _c.id == _p.consumer_id)
        .outerjoin(
            consumer_leases,
            (lease.consumer_id == _p.consumer_id) & (lease.token == _p.token),
        )
        # Some more, where two consumers have the same key.
        .where(
            dialect.among(tx, _p.consumer_id, {row.keys[0] for row in rows}),
            dialect.among(tx, _p.partition, {row.keys[1] for row in rows}),
        )
    )
    found = {(row.consumer_id, row.partition): row for row in tx.execute(query)}
    return describe_each(rows, lambda row: _details(found[row.keys], scope.now))


def _details(row: Any, now: datetime) -> Details:
    show, reason = command("consumers", "show", row.name), reason_of(row, now) or None
    match PartitionState(row.state):
        case PartitionState.LEASED if row.owner is not None:
            held = Holder(kind="lease", id=str(row.token), text=row.owner)
            ends = Until(certainty=Certainty.KNOWN, at=row.expires_at, event="expires")
            return Details(held_by=(held,), until=ends, actions=(show,), reason=reason)
        case PartitionState.DISCARDED:
            retry = command("consumers", "retry", row.name, row.partition)
            return Details(actions=(show, retry), reason=reason)
        case _ if row.not_before is not None and row.not_before > now:
            ends = Until(certainty=Certainty.KNOWN, at=row.not_before, event="retry")
            return Details(until=ends, actions=(show,), reason=reason)
    return Details(actions=(show,), reason=reason or "waits for its consumer")
