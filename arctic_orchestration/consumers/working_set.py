"""The working set of a consumer: how arrivals become rows, and which rows leave it.

The transaction of each change locks the consumer's row, so that rows do not change between read and
write.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.quantities import format_duration
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.consumer_tables import consumer_partitions, consumers

#: The maximum length of a key in an index of Postgres, in bytes.
_LONGEST_KEY = 2_000
_PENDING = (PartitionState.WAITING.value, PartitionState.LEASED.value)


@dataclass(frozen=True)
class Existing:
    """A lookup of keys in Dagster.

    Attributes:
        of: names the dynamic partitions.
        among: returns which of some keys exist there.
    """

    of: str
    among: Callable[[Sequence[str]], Collection[str]]


@dataclass(kw_only=True, slots=True)
class _Entry:
    """A row of the working set while arrivals are written to it."""

    partition: str
    state: str
    state_at: datetime
    reason: str
    place: int
    number: int
    arrivals: int
    first_at: datetime
    at: datetime
    details: str
    next_number: int | None = None
    next_arrivals: int | None = None
    next_first_at: datetime | None = None
    next_at: datetime | None = None
    next_details: str | None = None
    event_id: int
    event_at: datetime
    attempts: int = 0
    not_before: datetime | None = None
    existed: bool = False
    held: bool = False

    def knows(self, event: Event, *, ids_ascend: bool) -> bool:
        """Returns whether an arrival is a repeated one that was already read."""
        if ids_ascend:
            return event.storage_id <= self.event_id and event.at <= self.event_at
        return (event.storage_id, event.at) == (self.event_id, self.event_at)

    def arrive(self, event: Event, number: int, now: datetime) -> None:
        """Applies another arrival of the partition."""
        self.event_id, self.event_at = event.storage_id, event.at
        details = _details(event)
        if self.state == PartitionState.LEASED:
            # Its owner may have read the previous state: it is delivered again afterwards.
            self.next_arrivals = (self.next_arrivals or 0) + 1
            self.next_first_at = min(self.next_first_at or event.at, event.at)
            self.next_number, self.next_at, self.next_details = number, event.at, details
            return
        if self.state == PartitionState.WAITING:
            if self.held:
                # It is held again, for the full duration.
                self.state_at = now
            self.arrivals += 1
            self.first_at = min(self.first_at, event.at)
        else:
            self.state, self.state_at = PartitionState.WAITING.value, now
            self.place, self.arrivals, self.first_at = number, 1, event.at
            self.held = False
        # The earlier failures belong to the previous arrival.
        self.attempts, self.not_before, self.reason = 0, None, ""
        # A deleted partition must be added again: until then this arrival is held.
        self.existed = False
        self.number, self.at, self.details = number, event.at, details


_FIELDS = tuple(field.name for field in fields(_Entry))
_COLUMNS = ("consumer_id", *_FIELDS)


def take_in(
    tx: sa.Connection,
    consumer: Consumer,
    events: Iterable[Event],
    now: datetime,
    *,
    ids_ascend: bool = False,
) -> int:
    """Writes arrivals to the working set of a consumer whose row is locked.

    Args:
        tx: the transaction that also moved the position.
        consumer: as it was read before that.
        events: the events, of any asset.
        now: the moment.
        ids_ascend: whether the log assigns ids in the order of commits, as SQLite does. Then an
            event below the newest known arrival of a partition, and not younger, is a repeated one:
            a log whose newest rows were deleted does that. The id alone may be reused.

    Returns:
        the number of arrivals that belong to the consumer.
    """
    own, passed_over, reason = [], 0, None
    for event in events:
        if event.kind is not EventKind.PARTITION or event.subject != consumer.asset:
            continue
        if not _within(consumer, event.at):
            continue
        problem = _problem(event.partition)
        if problem is None:
            own.append(event)
        else:
            passed_over, reason = passed_over + 1, problem
    entries, known = _entries(tx, consumer, {str(event.partition) for event in own})
    number = consumer.next_number
    changed: dict[str, _Entry] = {}
    for event in own:
        key = str(event.partition)
        entry = entries.get(key)
        if entry is None:
            entries[key] = entry = _new(event, number, now)
        elif entry.knows(event, ids_ascend=ids_ascend):
            continue
        else:
            entry.arrive(event, number, now)
        changed[key] = entry
        number += 1
    _write(tx, consumer, changed, known)
    if number != consumer.next_number or passed_over:
        col = consumers.c
        values: dict[str, Any] = {"next_number": number}
        if passed_over:
            values |= {
                "passed_over": col.passed_over + passed_over,
                "passed_over_reason": reason,
            }
        tx.execute(sa.update(consumers).where(col.id == consumer.id).values(values))
    return len(changed)


def keep(
    tx: sa.Connection,
    consumer: Consumer,
    existing: Existing,
    now: datetime,
    *,
    held_for: timedelta,
    after: int = 0,
) -> Mapping[str, str]:
    """Removes partitions that existed in Dagster and were deleted there.

    A partition that never existed is held until it does: reporting a partition before adding it
    does not lose it. After ``held_for`` it is discarded: it may have been added and deleted between
    two checks. Leased partitions stay until the lease ends. Where the dynamic partitions have got
    another name, each key is new.

    Args:
        tx: the transaction, which has locked the consumer's row.
        consumer: the consumer, as it was read then.
        existing: reads Dagster; it must be called under that lock, so that no older answer is
            applied after a newer one.
        now: the moment.
        held_for: how long a partition is held.
        after: only partitions after this place, if all before it were examined.

    Returns:
        the reasons, by the keys of the discarded ones.
    """
    col = consumer_partitions.c
    if consumer.keys_of != existing.of:
        if consumer.keys_of is not None:
            known = sa.update(consumer_partitions).where(col.consumer_id == consumer.id)
            tx.execute(known.values(existed=False))
        this = sa.update(consumers).where(consumers.c.id == consumer.id)
        tx.execute(this.values(keys_of=existing.of))
    mine = sa.and_(col.consumer_id == consumer.id, col.place > after)
    # Partitions that were held for too long are not looked up again.
    pending = sa.or_(
        col.state == PartitionState.WAITING.value,
        sa.and_(col.state == PartitionState.DISCARDED.value, col.held.is_(False)),
    )
    # There may be thousands at every take: the database compares their moments.
    late_now = sa.and_(col.held.is_(True), col.state_at <= now - held_for).label("late")
    query = sa.select(col.partition, col.existed, col.held, late_now).where(mine, pending)
    rows = tx.execute(query).all()
    if not rows:
        return {}
    there = existing.among([row.partition for row in rows])
    gone = [row.partition for row in rows if row.existed and row.partition not in there]
    new = [row.partition for row in rows if not row.existed and row.partition in there]
    held = [
        row.partition for row in rows
        if not row.existed and not row.held and row.partition not in there
    ]  # fmt: skip
    late = [row.partition for row in rows if row.late and row.partition not in there]

    def those(keys: Sequence[str]) -> tuple[sa.ColumnElement[bool], ...]:
        return mine, pending, dialect.among(tx, col.partition, keys)

    if gone:
        tx.execute(sa.delete(consumer_partitions).where(*those(gone)))
    reason = f"it was not added in Dagster for {format_duration(held_for)}"
    given_up = {"state": PartitionState.DISCARDED.value, "reason": reason}
    changes: tuple[tuple[list[str], dict[str, Any]], ...] = (
        (new, {"existed": True, "held": False}), (held, {"held": True}), (late, given_up),
    )  # fmt: skip
    for keys, values in changes:
        if keys:
            update = sa.update(consumer_partitions).where(*those(keys))
            tx.execute(update.values({**values, "state_at": now}))
    return dict.fromkeys(late, reason)


def end_at(tx: sa.Connection, consumer_id: int, until: datetime, now: datetime) -> None:
    """Removes arrivals at a moment or later: the consumer ends there now, and ended later.

    What was acknowledged before such an arrival is acknowledged again. Arrivals that are leased are
    delivered to the end, and so are those that began before the moment.

    Args:
        tx: the transaction, which has locked the consumer's row.
        consumer_id: the consumer.
        until: the moment.
        now: the present moment.
    """
    col = consumer_partitions.c
    mine, waits = col.consumer_id == consumer_id, col.state != PartitionState.LEASED.value
    left = (mine, waits, col.state != PartitionState.ACKNOWLEDGED.value, col.first_at >= until)
    done = {
        "state": PartitionState.ACKNOWLEDGED.value, "state_at": now, "attempts": 0,
        "not_before": None, "reason": "", "held": False,
    }  # fmt: skip
    update = sa.update(consumer_partitions)
    tx.execute(update.where(*left, col.acknowledged_at.is_not(None)).values(done))
    tx.execute(sa.delete(consumer_partitions).where(*left))
    none = {name: None for name in _FIELDS if name.startswith("next_")}
    tx.execute(update.where(mine, ~waits, col.next_first_at >= until).values(none))


def waiting(tx: sa.Connection, consumer_id: int, now: datetime) -> int:
    """Returns how many partitions can be taken: not resting, and not held."""
    col = consumer_partitions.c
    query = sa.select(sa.func.count()).where(
        col.consumer_id == consumer_id,
        col.state == sa.literal_column(f"'{PartitionState.WAITING.value}'"),
        col.held.is_(False),
        sa.or_(col.not_before.is_(None), col.not_before <= now),
    )
    return int(tx.execute(query).scalar_one())


def pending_keys(tx: sa.Connection, consumer_id: int) -> set[str]:
    """Returns the keys that wait or are leased."""
    col = consumer_partitions.c
    query = sa.select(col.partition).where(col.consumer_id == consumer_id, col.state.in_(_PENDING))
    return set(tx.execute(query).scalars())


def is_own(consumer: Consumer, event: Event) -> bool:
    """Returns whether an event is an arrival for the consumer."""
    return (
        event.kind is EventKind.PARTITION
        and event.subject == consumer.asset
        and _within(consumer, event.at)
        and _problem(event.partition) is None
    )


def _within(consumer: Consumer, at: datetime) -> bool:
    if consumer.since is not None and at < consumer.since:
        return False
    return consumer.until is None or at < consumer.until


def _problem(partition: str | None) -> str | None:
    """Returns why an arrival cannot be delivered; none: it can."""
    if partition is None:
        return "it named no partition"
    if dialect.storable(partition) != partition or len(partition.encode()) > _LONGEST_KEY:
        return f"the database cannot hold the key {partition[:80]!r}"
    return None


def _details(event: Event) -> str:
    return to_json(event.to_json()).decode()


def _new(event: Event, number: int, now: datetime) -> _Entry:
    return _Entry(
        partition=str(event.partition), state=PartitionState.WAITING.value, state_at=now, reason="",
        place=number, number=number, arrivals=1, first_at=event.at, at=event.at,
        details=_details(event), event_id=event.storage_id, event_at=event.at,
    )  # fmt: skip


def _entries(
    tx: sa.Connection, consumer: Consumer, keys: set[str]
) -> tuple[dict[str, _Entry], frozenset[str]]:
    """Returns the rows of some partitions, and the existing keys."""
    if not keys:
        return {}, frozenset()
    col = consumer_partitions.c
    query = sa.select(*(col[name] for name in _FIELDS)).where(
        col.consumer_id == consumer.id, dialect.among(tx, col.partition, sorted(keys))
    )
    rows = tx.execute(query).mappings()
    entries = {row["partition"]: _Entry(**row) for row in rows}
    return entries, frozenset(entries)


def _write(
    tx: sa.Connection, consumer: Consumer, changed: dict[str, _Entry], known: frozenset[str]
) -> None:
    new = [
        (consumer.id, *(getattr(entry, name) for name in _FIELDS))
        for key, entry in changed.items()
        if key not in known
    ]
    bulk_rows.insert_rows(tx, consumer_partitions, _COLUMNS, new)
    old = [
        {
            "of_consumer": consumer.id,
            "of_partition": key,
            **{name: getattr(entry, name) for name in _FIELDS if name != "partition"},
        }
        for key, entry in changed.items()
        if key in known
    ]
    if old:
        tx.execute(_UPDATE, old)


_UPDATE = (
    sa.update(consumer_partitions)
    .where(
        consumer_partitions.c.consumer_id == sa.bindparam("of_consumer"),
        consumer_partitions.c.partition == sa.bindparam("of_partition"),
    )
    .values({name: sa.bindparam(name) for name in _FIELDS if name != "partition"})
)


def partitions_of(
    tx: sa.Connection,
    consumer_id: int,
    states: Collection[PartitionState] = (),
    limit: int | None = None,
    *,
    after: tuple[int, str] | None = None,
) -> list[Any]:
    """Returns the rows of a consumer's partitions in delivery order, of some or all states.

    ``after`` is the place and the key of a partition: only later ones are returned.
    """
    col = consumer_partitions.c
    query = sa.select(consumer_partitions).where(col.consumer_id == consumer_id)
    if after is not None:
        place, key = after
        query = query.where((col.place > place) | ((col.place == place) & (col.partition > key)))
    if states:
        query = query.where(col.state.in_([state.value for state in states]))
    return list(tx.execute(query.order_by(col.place, col.partition).limit(limit)))


def event_of(row: Any) -> dict[str, Any]:
    """Returns the newest event of a row, as JSON values."""
    return dict(json.loads(row.details))
