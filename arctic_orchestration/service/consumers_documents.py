"""The answers about partition consumers, in the forms of ``arctic consumers ... --json``."""

from typing import Annotated

from pydantic import Field

from arctic_orchestration.consumers.views.consumers import (
    ConsumedPartitionDocument,
    ConsumerDocument,
)
from arctic_orchestration.documents import Document
from arctic_orchestration.service.documents import Page
from arctic_orchestration.specification import Specification

#: the maximum number of partitions that one request names
_MOST = 10_000


class ConsumerPage(Page):
    """Consumers by name."""

    consumers: list[ConsumerDocument]


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
