"""Feeds and their files: what lands, and under which partition key."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, get_args

from arctic_orchestration.errors import InvalidInput

Feed = Literal["flights", "weather"]

FEEDS: tuple[Feed, ...] = get_args(Feed)
ORIGINS = ("EWR", "JFK", "LGA")
FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(2013, 12, 31)

_KEY = re.compile(r"(\d{4}-\d{2}-\d{2})\|([A-Z]{3})")


@dataclass(frozen=True, kw_only=True, order=True)
class FeedFile:
    """One file of a feed: the rows of one day (New York's date) and one origin."""

    day: date
    origin: str

    @property
    def key(self) -> str:
        """The partition key in Dagster, ``2013-01-01|EWR``."""
        return f"{self.day.isoformat()}|{self.origin}"

    @classmethod
    def from_key(cls, key: str) -> "FeedFile":
        """The file of a partition key.

        Errors:
            InvalidInput: it is not a day of 2013 and one of the three origins.
        """
        match = _KEY.fullmatch(key)
        try:
            file = cls(day=date.fromisoformat(match[1]), origin=match[2]) if match else None
        except ValueError:
            file = None
        if file is None or file.origin not in ORIGINS or not FIRST_DAY <= file.day <= LAST_DAY:
            raise InvalidInput(
                "partition", key, "a day of 2013 and EWR, JFK or LGA, as in 2013-01-01|EWR"
            )
        return file


def asset_of(feed: Feed) -> str:
    """The asset key of a feed's file set, with slashes."""
    return f"raw/{feed}"


def files_of(days: Iterable[date]) -> list[FeedFile]:
    """The three files of each day, in the order in which they land."""
    return [FeedFile(day=day, origin=origin) for day in days for origin in ORIGINS]


def first_days(count: int) -> list[date]:
    """The first ``count`` days of 2013.

    Errors:
        InvalidInput: the year has not that many.
    """
    if not 0 <= count <= 365:
        raise InvalidInput("days", count, "0 to 365")
    return [FIRST_DAY + timedelta(days=number) for number in range(count)]
