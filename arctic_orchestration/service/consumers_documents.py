"""The answers about partition consumers, in the forms of ``arctic consumers ... --json``."""

from typing import Annotated

from pydantic import Field

from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.service.documents import At, Document, Page
from arctic_orchestration.specification import Specification

#: the maximum number of partitions that one request names
_MOST = 10_000


class ConsumerDocument(Document):
    """A consumer, with its progress at its last reading of Dagster's event log."""

    consumer: str
    asset: str
    start: str
    until: At | None
    registered_at: At
    read_at: At | None
    read_to_the_end: bool
    acknowledged: int
    waiting: int
    resting: int
    held: int
    leased: int
    #: partitions that were given up
    discarded: int
    #: null: the service does not read the event log
    unread: int | None
    #: of the partitions that arrived, how much is done: 0 to 1
    share: float
    caught_up: bool | None
    lag_seconds: float | None
    passed_over: int
    max_attempts: int


class ConsumerPage(Page):
    """Consumers by name."""

    consumers: list[ConsumerDocument]


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


class ConsumedPartitionPage(Page):
    """Partitions of a consumer, in the order of delivery."""

    consumer: str
    partitions: list[ConsumedPartitionDocument]


class Redelivery(Document):
    """The partitions that wait to be delivered again, in the order of delivery."""

    consumer: str
    partitions: list[str]


class RetryForm(Specification):
    """Which partitions to deliver again: those named, or all that were given up."""

    partitions: Annotated[list[str], Field(min_length=1, max_length=_MOST)] | None = None
    all: bool = False


class ResetForm(Specification):
    """Where a consumer begins again: ``from_beginning``, ``from_now`` or a moment."""

    start: str
    #: null: the one that it read
    asset: str | None = None
