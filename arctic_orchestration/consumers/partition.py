"""A partition as a consumer knows it, and as it is handed out."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from arctic_orchestration.errors import InvalidInput


class PartitionState(StrEnum):
    """Where a partition of a consumer stands."""

    #: It is to be delivered: now, after its rest, or when Dagster has it among the partitions.
    WAITING = "waiting"
    #: Somebody has it.
    LEASED = "leased"
    #: It failed so often that it is delivered no more, until a person or a new arrival says so.
    DISCARDED = "discarded"
    #: It is done, until it arrives again.
    ACKNOWLEDGED = "acknowledged"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumedPartition:
    """A partition that is new for a consumer, with the newest of its arrivals.

    Attributes:
        key: the partition key.
        delivery: names what is delivered, unique among all deliveries of the consumer: the same
            in each attempt, another one when the partition arrives again. What is recorded
            beside one's data under this name is recognised when the partition comes back.
        attempt: 1 for the first; what was put back does not count.
        arrivals: how often it arrived since it was last acknowledged.
        first_at: when it first did.
        at: when it last did.
        run_id: the run that wrote it last; None for what was reported without one.
        bytes: how much arrived last, if the metadata says it.
        rows: how many rows, if the metadata says it.
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
    def from_row(cls, row: Any, consumer: str) -> "ConsumedPartition":
        """The partition that a row of the working set holds, as its next attempt gets it."""
        event = json.loads(row.details)
        return cls(
            key=row.partition,
            delivery=f"{consumer}:{row.partition}:{row.number}",
            attempt=row.attempts + 1,
            arrivals=row.arrivals,
            first_at=row.first_at,
            at=row.at,
            run_id=event.get("run_id"),
            bytes=event.get("bytes"),
            rows=event.get("rows"),
            metadata=event.get("metadata", {}),
        )


#: Which partitions one wants: a glob on the key, keys, or a function.
Where = str | Collection[str] | Callable[[ConsumedPartition], bool]


def matcher(where: Where | None) -> Callable[[ConsumedPartition], bool] | None:
    """The function that says whether a partition is wanted; none: all are.

    Errors:
        InvalidInput: ``where`` is nothing of that kind.
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
