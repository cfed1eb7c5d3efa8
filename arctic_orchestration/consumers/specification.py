"""What a partition consumer is, as its user writes it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from arctic_orchestration.quantities import Duration, PositiveDuration
from arctic_orchestration.specification import Specification

FROM_BEGINNING: Literal["from_beginning"] = "from_beginning"
FROM_NOW: Literal["from_now"] = "from_now"
ONE_BY_ONE: Literal["one_by_one"] = "one_by_one"

#: What a column of whole numbers holds.
_MOST = 2**31 - 1
#: So long a partition is held that Dagster does not have, unless told otherwise.
HELD_FOR = timedelta(days=1)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MOMENT = "a moment with a time zone, such as 2026-01-01T00:00:00Z"


def parse_moment(value: object) -> datetime:
    """An aware moment in UTC, from a ``datetime`` or ISO 8601 text.

    Errors:
        ValueError: anything else, and what names no time zone.
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
    """``from_beginning``, ``from_now`` or a moment.

    Errors:
        ValueError: anything else.
    """
    if value in (FROM_BEGINNING, FROM_NOW):
        return str(value)
    try:
        return parse_moment(value)
    except ValueError as error:
        raise ValueError(f"from_beginning, from_now or {error}") from None


def format_start(value: str | datetime) -> str:
    """The text that :func:`parse_start` reads back."""
    return value if isinstance(value, str) else value.isoformat()


Moment = Annotated[
    datetime, BeforeValidator(parse_moment), PlainSerializer(format_start, return_type=str)
]


class ConsumerSpec(Specification):
    """A consumer of the partitions of one asset.

    Attributes:
        name: under which all is kept; runs of one name share the partitions among them.
        asset: its key, as ``raw/flights``.
        start: where a consumer begins that is not there yet: ``from_beginning`` of the event log,
            ``from_now``, or with arrivals of a moment or later. One that is there goes on.
        until: arrivals of this moment or later are not its own; none: it never ends.
        working_set: the log is not read further while so many partitions can be taken.
        lease: how long partitions are somebody's until that is renewed.
        attempts: after so many that failed a partition is discarded, and listed.
        retry_after: how long a partition rests after one that failed.
        retry: ``one_by_one``: a partition that failed comes again in a block of its own, so that
            only the one to blame is given up; ``together``: in a block with others.
        held_for: how long what arrived is held until Dagster has it among the asset's partitions.
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
        """Whether a partition that failed comes again in a block of its own."""
        return self.retry == ONE_BY_ONE

    @property
    def since(self) -> datetime | None:
        """The moment from which arrivals are its own; none: from where it began to read."""
        return self.start if isinstance(self.start, datetime) else None
