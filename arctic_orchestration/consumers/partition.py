"""A partition in a consumer's working set and in its deliveries."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from arctic_orchestration.errors import InvalidInput

if TYPE_CHECKING:
    from arctic_orchestration.consumers.store import Consumer


class PartitionState(StrEnum):
    """The state of a consumer's partition."""

    #: It is to be delivered: now, after its rest, or when it exists in Dagster.
    WAITING = "waiting"
    #: An owner has leased it.
    LEASED = "leased"
    #: It failed too often and is not delivered, until a person retries it or it arrives again.
    DISCARDED = "discarded"
    #: It is done, until it arrives again.
    ACKNOWLEDGED = "acknowledged"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumedPartition:
    """A partition that is new for a consumer, with its newest arrival.

    Attributes:
        key: the partition key.
        delivery: the name of the delivery, unique for the consumer: the same in each attempt,
            another one when the partition arrives again. A record under this name, beside one's
            data, identifies a redelivered partition.
        attempt: 1 for the first; a delivery that was put back does not count.
        arrivals: how often it arrived since its last acknowledgement.
        first_at: its first arrival since then.
        at: its last arrival.
        run_id: the run of its last arrival; None if it was reported without one.
        bytes: the size of the last arrival, if the metadata contains it.
        rows: its number of rows, if the metadata contains it.
        metadata: of the last arrival: label to a JSON value.
    """

    key: str
    delivery: str
    attempt: int
    arrivals: int
    first_at: datetime
    at: datetime
    run_id: str | None
    bytes: int | None
    rows: int | None
    metadata: Mapping[str, Any]

    @classmethod
    def from_row(cls, row: Any, consumer: "Consumer") -> "ConsumedPartition":
        """Returns the partition in a row of the working set, for its next attempt."""
        event = json.loads(row.details)
        return cls(
            key=row.partition,
            delivery=delivery_name(row, consumer),
            attempt=row.attempts + 1,
            arrivals=row.arrivals,
            first_at=row.first_at,
            at=row.at,
            run_id=event.get("run_id"),
            bytes=event.get("bytes"),
            rows=event.get("rows"),
            metadata=event.get("metadata", {}),
        )


def delivery_name(row: Any, consumer: "Consumer") -> str:
    """Returns the name of the delivery of a row of the working set.

    It has the moment of the arrival besides its number: a restored state database counts the
    numbers since its backup again. An event that is read again gets its former name, and another
    arrival does not get it. What had arrived before the upgrade keeps its name without a moment.
    """
    name = f"{consumer.name}:{row.partition}:{row.number}"
    if row.number < consumer.moments_from:
        return name
    return f"{name}:{int(row.at.timestamp() * 1000)}"


#: A filter of partitions: a glob on the key, keys, or a function.
Where = str | Collection[str] | Callable[[ConsumedPartition], bool]


def matcher(where: Where | None) -> Callable[[ConsumedPartition], bool] | None:
    """Returns the function that applies a filter; none: all partitions pass.

    Errors:
        InvalidInput: ``where`` is not a filter.
    """
    if where is None:
        return None
    if isinstance(where, str):
        glob = where
        return lambda partition: fnmatchcase(partition.key, glob)
    if callable(where):
        return where
    if isinstance(where, Collection) and all(isinstance(key, str) for key in where):
        keys = frozenset(where)
        return lambda partition: partition.key in keys
    expected = "a glob on the key, a collection of keys, or a function of a partition"
    raise InvalidInput("where", where, expected)
