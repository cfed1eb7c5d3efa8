"""Consumers with their progress, leases and partitions, for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.progress import Progress
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.consumers.working_set import event_of
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import iso

NOT_READ = "the event log was not read"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The progress of a consumer.

    Attributes:
        consumer: the consumer.
        progress: its partitions, done and left.
        uncounted: why ``progress`` is that of the last read, without later events; none: it
            includes them.
    """

    consumer: Consumer
    progress: Progress
    uncounted: str | None

    @classmethod
    def as_read(cls, consumer: Consumer, progress: Progress, why: str = NOT_READ) -> "Standing":
        """Returns the progress by the state database alone."""
        return cls(consumer=consumer, progress=progress, uncounted=why)


def consumer_json(standing: Standing) -> dict[str, Any]:
    """Returns a consumer for programs; its keys are stable."""
    one, progress = standing.consumer, standing.progress
    return {
        "consumer": one.name,
        "asset": one.asset,
        "start": one.start,
        "until": iso(one.until),
        "registered_at": iso(one.created_at),
        "read_at": iso(one.read_at),
        "read_to_the_end": one.at_end,
        "acknowledged": progress.acknowledged,
        "waiting": progress.waiting,
        "resting": progress.resting,
        "held": progress.held,
        "leased": progress.leased,
        "discarded": progress.discarded,
        "unread": progress.unread if standing.uncounted is None else None,
        "share": round(progress.share, 6),
        "caught_up": progress.caught_up if standing.uncounted is None else None,
        "lag_seconds": None if progress.lag is None else progress.lag.total_seconds(),
        "passed_over": one.passed_over,
        "max_attempts": one.max_attempts,
    }


def lease_json(lease: Any) -> dict[str, Any]:
    """Returns the row of a lease for programs."""
    return {
        "token": lease.token,
        "owner": lease.owner,
        "partitions": lease.partitions,
        "taken_at": iso(lease.taken_at),
        "expires_at": iso(lease.expires_at),
    }


def partition_json(row: Any, one: Consumer) -> dict[str, Any]:
    """Returns the row of a partition for programs."""
    event = event_of(row)
    return {
        "partition": row.partition,
        "state": row.state,
        "state_at": iso(row.state_at),
        "reason": row.reason,
        "delivery": f"{one.name}:{row.partition}:{row.number}",
        "attempts": row.attempts,
        "not_before": iso(row.not_before),
        "held": row.held,
        "arrivals": row.arrivals,
        "first_at": iso(row.first_at),
        "at": iso(row.at),
        "arrived_again": row.next_number is not None,
        "token": row.token,
        "run_id": event.get("run_id"),
        "bytes": event.get("bytes"),
        "acknowledged_at": iso(row.acknowledged_at),
        "acknowledgements": row.acknowledgements,
    }


def parse_states(words: Sequence[str] | None) -> list[PartitionState]:
    """Parses states of partitions; without any, all but acknowledged ones.

    Errors:
        InvalidInput: another word.
    """
    if not words:
        return [one for one in PartitionState if one is not PartitionState.ACKNOWLEDGED]
    for word in words:
        if word not in list(PartitionState):
            raise InvalidInput("--state", word, f"one of {', '.join(PartitionState)}")
    return [PartitionState(word) for word in words]
