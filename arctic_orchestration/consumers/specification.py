"""The specification of a partition consumer, as its user writes it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from arctic_orchestration.quantities import Duration, PositiveDuration
from arctic_orchestration.specification import Specification

FROM_BEGINNING: Literal["from_beginning"] = "from_beginning"
FROM_NOW: Literal["from_now"] = "from_now"
ONE_BY_ONE: Literal["one_by_one"] = "one_by_one"

#: The range of an integer column.
_MOST = 2**31 - 1
#: How long a partition is held by default that does not exist in Dagster.
HELD_FOR = timedelta(days=1)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MOMENT = "a moment with a time zone, such as 2026-01-01T00:00:00Z"


def parse_moment(value: object) -> datetime:
    """Parses an aware moment in UTC, from a ``datetime`` or ISO 8601 text.

    Errors:
        ValueError: another value, or one without a time zone.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(_MOMENT) from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(_MOMENT)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(_MOMENT) from None


def parse_start(value: object) -> str | datetime:
    """Parses ``from_beginning``, ``from_now`` or a moment.

    Errors:
        ValueError: another value.
    """
    if value in (FROM_BEGINNING, FROM_NOW):
        return str(value)
    try:
        return parse_moment(value)
    except ValueError as error:
        raise ValueError(f"from_beginning, from_now or {error}") from None


def format_start(value: str | datetime) -> str:
    """Formats a start as text for :func:`parse_start`."""
    return value if isinstance(value, str) else value.isoformat()


Moment = Annotated[
    datetime, BeforeValidator(parse_moment), PlainSerializer(format_start, return_type=str)
]


class ConsumerSpec(Specification):
    """A consumer of the partitions of one asset.

    Attributes:
        name: the name of its state; runs with the same name share the partitions.
        asset: its key, such as ``raw/flights``.
        start: where a new consumer begins: ``from_beginning`` of the event log, ``from_now``, or
            with arrivals at a moment or later. An existing one continues.
        until: arrivals at this moment or later are excluded; none: no end.
        working_set: the log is not read further while this many partitions can be taken.
        lease: the duration of a lease of partitions.
        attempts: a partition is discarded, and listed, after this many failures.
        retry_after: how long a partition rests after a failure.
        retry: ``one_by_one``: a failed partition is delivered again in a block of its own, so that
            only the culprit is given up; ``together``: in a block with others.
        held_for: how long an arrival is held until its partition exists in Dagster.
    """

    name: str
    asset: str = Field(min_length=1)
    start: Any = FROM_BEGINNING
    until: Moment | None = None
    working_set: int = Field(default=10_000, ge=1, le=_MOST, strict=True)
    lease: PositiveDuration = timedelta(seconds=60)
    attempts: int = Field(default=3, ge=1, le=_MOST, strict=True)
    retry_after: Duration = timedelta(minutes=1)
    retry: Literal["one_by_one", "together"] = ONE_BY_ONE
    held_for: PositiveDuration = HELD_FOR

    @field_validator("name", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ValueError("1 to 100 of the characters A-Z a-z 0-9 _ . -")
        return value

    @field_validator("asset", mode="after")
    @classmethod
    def _is_key(cls, value: str) -> str:
        if not all(value.split("/")):
            raise ValueError("an asset key such as raw/flights")
        return value

    @field_validator("start", mode="before")
    @classmethod
    def _begins(cls, value: object) -> str | datetime:
        return parse_start(value)

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "ConsumerSpec":
        if self.until is not None and self.since is not None and self.until <= self.since:
            raise ValueError("a moment for until that is after start")
        return self

    @property
    def one_by_one(self) -> bool:
        """Whether a failed partition is delivered again in a block of its own."""
        return self.retry == ONE_BY_ONE

    @property
    def since(self) -> datetime | None:
        """The earliest moment of its arrivals; none: from where it began to read."""
        return self.start if isinstance(self.start, datetime) else None
