"""Consumers with their progress, leases and partitions, for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from arctic_orchestration.consumers.partition import PartitionState, delivery_name
from arctic_orchestration.consumers.progress import Progress
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.consumers.working_set import event_of
from arctic_orchestration.documents import At, Document, source
from arctic_orchestration.errors import InvalidInput

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


class ConsumerDocument(Document):
    """A consumer, with its progress at its last reading of Dagster's event log."""

    consumer: str = source("consumer.name")
    asset: str = source("consumer.asset")
    start: str = source("consumer.start")
    until: At | None = source("consumer.until")
    registered_at: At = source("consumer.created_at")
    read_at: At | None = source("consumer.read_at")
    read_to_the_end: bool = source("consumer.at_end")
    acknowledged: int = source("progress.acknowledged")
    waiting: int = source("progress.waiting")
    resting: int = source("progress.resting")
    held: int = source("progress.held")
    leased: int = source("progress.leased")
    #: partitions that were given up
    discarded: int = source("progress.discarded")
    #: null: the service does not read the event log
    unread: int | None
    #: of the partitions that arrived, how much is done: 0 to 1
    share: float
    caught_up: bool | None
    lag_seconds: float | None
    passed_over: int = source("consumer.passed_over")
    max_attempts: int = source("consumer.max_attempts")


class LeaseDocument(Document):
    """A live lease of partitions."""

    token: int
    owner: str
    partitions: int
    taken_at: At
    expires_at: At


class ConsumerDetails(ConsumerDocument):
    """A consumer, with who has partitions of it."""

    leases: list[LeaseDocument]


class ConsumedPartitionDocument(Document):
    """A partition of a consumer."""

    partition: str
    state: PartitionState
    state_at: At
    reason: str
    #: the name of the delivery
    delivery: str
    attempts: int
    not_before: At | None
    held: bool
    arrivals: int
    first_at: At
    at: At
    arrived_again: bool
    token: int | None
    run_id: str | None
    bytes: int | None
    acknowledged_at: At | None
    acknowledgements: int


def consumer_document(standing: Standing) -> ConsumerDocument:
    """Returns a consumer."""
    progress, is_counted = standing.progress, standing.uncounted is None
    return ConsumerDocument.from_record(
        standing,
        unread=progress.unread if is_counted else None,
        share=round(progress.share, 6),
        caught_up=progress.caught_up if is_counted else None,
        lag_seconds=None if progress.lag is None else progress.lag.total_seconds(),
    )


def details_document(standing: Standing, leases: Iterable[Any]) -> ConsumerDetails:
    """Returns a consumer with the rows of its live leases."""
    described = consumer_document(standing)
    return ConsumerDetails.from_record(described, leases=LeaseDocument.from_records(leases))


def partition_document(row: Any, one: Consumer) -> ConsumedPartitionDocument:
    """Returns the row of a partition."""
    event = event_of(row)
    return ConsumedPartitionDocument.from_record(
        row,
        delivery=delivery_name(row, one),
        arrived_again=row.next_number is not None,
        run_id=event.get("run_id"),
        bytes=event.get("bytes"),
    )


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
