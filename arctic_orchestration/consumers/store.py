"""The rows of consumers: one for each name in a cluster."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers.specification import FROM_NOW, ConsumerSpec, format_start
from arctic_orchestration.errors import ConfigurationError, InvalidInput, NotFound
from arctic_orchestration.state import dialect
from arctic_orchestration.state.consumer_tables import consumers

#: the asset of a deleted consumer: its row is kept, so that no id, token or delivery name is reused
DELETED = ""

#: whether a row is a consumer, and not the remainder of a deleted one
IS_THERE = consumers.c.asset != DELETED

#: the source of the time: the database's time, in tests a fixed clock
Time = Callable[[sa.Connection], datetime]


@dataclass(frozen=True, kw_only=True, slots=True)
class Consumer:
    """The row of a consumer, as a transaction read it."""

    id: int
    cluster: str
    name: str
    asset: str
    start: str
    since: datetime | None
    until: datetime | None
    storage_id: str | None
    position: str | None
    version: int
    resets: int
    at_end: bool
    read_at: datetime | None
    next_number: int
    moments_from: int
    next_token: int
    max_attempts: int
    retry_seconds: float
    lease_seconds: float
    working_set: int
    passed_over: int
    passed_over_reason: str | None
    created_at: datetime
    keys_of: str | None

    @property
    def retry_after(self) -> timedelta:
        """How long a partition rests after a failed attempt."""
        return timedelta(seconds=self.retry_seconds)

    @classmethod
    def from_row(cls, row: Any) -> "Consumer":
        """Returns the consumer in a row of ``arctic_consumers``."""
        return cls(**{field.name: getattr(row, field.name) for field in fields(cls)})


def find(tx: sa.Connection, cluster: str, name: str) -> Consumer | None:
    """Returns the consumer with a name, if it was registered and is not deleted."""
    if dialect.storable(name) != name:
        # Such a name cannot be stored in any database.
        return None
    col = consumers.c
    query = sa.select(consumers).where(col.cluster == cluster, col.name == name, IS_THERE)
    row = tx.execute(query).one_or_none()
    return None if row is None else Consumer.from_row(row)


def by_name(tx: sa.Connection, cluster: str, name: str) -> Consumer:
    """Returns the consumer with a name.

    Errors:
        NotFound: it does not exist; the message lists the existing ones.
    """
    one = find(tx, cluster, name)
    if one is None:
        known = ", ".join(other.name for other in all_of(tx, cluster)) or "none"
        lost = dialect.storable(name)
        raise NotFound(f"cluster {cluster} has no consumer {lost}; it has: {known}")
    return one


def all_of(tx: sa.Connection, cluster: str) -> list[Consumer]:
    """Returns the consumers of a cluster, by name."""
    col = consumers.c
    query = sa.select(consumers).where(col.cluster == cluster, IS_THERE).order_by(col.name)
    return [Consumer.from_row(row) for row in tx.execute(query)]


def locked(tx: sa.Connection, id: int) -> Consumer:
    """Locks a consumer's row, and so its working set, until the transaction ends.

    Errors:
        NotFound: it was deleted.
    """
    query = sa.select(consumers).where(consumers.c.id == id).with_for_update()
    row = tx.execute(query).one()
    if row.asset == DELETED:
        raise NotFound(f"consumer {row.name} was deleted")
    return Consumer.from_row(row)


def register(
    tx: sa.Connection,
    spec: ConsumerSpec,
    cluster: str,
    *,
    storage_id: str,
    position: str | None,
    now: datetime,
) -> Consumer | None:
    """Creates a missing consumer; updates an existing one with the declaration of the code.

    Args:
        tx: the transaction.
        spec: the declaration of the code.
        cluster: the cluster of its event log.
        storage_id: the id of that log.
        position: where a new or deleted one begins to read; none: at the beginning.
        now: the moment.

    Returns:
        none: it was deleted since ``position`` was read; the caller must repeat both.

    Errors:
        InvalidInput: the name belongs to a consumer of another asset, or has read and ends earlier.
            Nothing was changed.
        ConfigurationError: it has read another event log. Nothing was changed.
    """
    declared: dict[str, Any] = {
        "max_attempts": spec.attempts,
        "retry_seconds": spec.retry_after.total_seconds(),
        "lease_seconds": spec.lease.total_seconds(),
        "working_set": spec.working_set,
        "until": spec.until,
    }
    begins = {
        "asset": spec.asset, "start": format_start(spec.start), "since": spec.since,
        "storage_id": storage_id, "position": position, "created_at": now, **declared,
    }  # fmt: skip
    new = dialect.insert(tx, consumers).values(cluster=cluster, name=spec.name, **begins)
    tx.execute(new.on_conflict_do_nothing(index_elements=["cluster", "name"]))
    if find(tx, cluster, spec.name) is None:
        if spec.start == FROM_NOW and position is None:
            return None
        col = consumers.c
        deleted = (col.cluster == cluster, col.name == spec.name, ~IS_THERE)
        tx.execute(sa.update(consumers).where(*deleted).values(begins))
    one = by_name(tx, cluster, spec.name)
    check(one, spec, storage_id)
    # A reset consumer belongs to the next log that reads it.
    declared["storage_id"] = storage_id
    if {name: getattr(one, name) for name in declared} != declared:
        _check_end(locked(tx, one.id), spec)
        # A read in progress has the old moment of its end.
        values = {**declared, "version": consumers.c.version + 1}
        tx.execute(sa.update(consumers).where(consumers.c.id == one.id).values(values))
        one = by_name(tx, cluster, spec.name)
    return one


def check(one: Consumer, spec: ConsumerSpec, storage_id: str) -> None:
    """Checks that an existing consumer is the one that the code declares.

    Errors:
        InvalidInput: it reads another asset.
        ConfigurationError: it has read another event log.
    """
    if one.asset != spec.asset:
        raise InvalidInput(
            f"PartitionConsumer({spec.name}).asset",
            spec.asset,
            f"{one.asset}, which the consumer of this name reads; take another name, or reset "
            f"it: arctic consumers reset {spec.name} --start from_beginning "
            f"--asset {shlex.quote(spec.asset)}",
        )
    if one.storage_id not in (None, storage_id):
        raise ConfigurationError(
            f"Consumer {spec.name} has read another event log (storage {one.storage_id}, this is "
            f"{storage_id}). Its position means nothing here. Reset it: "
            f"arctic consumers reset {spec.name} --start from_now, or another start"
        )


def _check_end(one: Consumer, spec: ConsumerSpec) -> None:
    """Checks that a consumer may end where the code declares.

    Errors:
        InvalidInput: later than before, although arrivals in between may have been skipped.
    """
    if one.until is None or one.read_at is None:
        return
    if spec.until is None or spec.until > one.until:
        raise InvalidInput(
            f"PartitionConsumer({spec.name}).until",
            None if spec.until is None else spec.until.isoformat(),
            f"{one.until.isoformat()} or earlier: what arrived later was passed over when the "
            f"log was read; take another name, or reset it: "
            f"arctic consumers reset {spec.name} --start from_beginning",
        )


def moved(tx: sa.Connection, seen: Consumer, position: str, *, at_end: bool, now: datetime) -> bool:
    """Moves a consumer's position, if it is unchanged since it was read; locks its row.

    Returns:
        false: another process has read the same, and this read must be dropped.
    """
    col = consumers.c
    changed = tx.execute(
        sa.update(consumers)
        .where(col.id == seen.id, col.version == seen.version)
        .values(position=position, version=col.version + 1, at_end=at_end, read_at=now)
    )
    return changed.rowcount == 1
