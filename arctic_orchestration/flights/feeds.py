"""Feeds and their files: the content, and its partition key."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, Literal, get_args
from zoneinfo import ZoneInfo

from arctic_orchestration.errors import InvalidInput

Feed = Literal["flights", "weather"]

FEEDS: tuple[Feed, ...] = get_args(Feed)
ORIGINS = ("EWR", "JFK", "LGA")
FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(2013, 12, 31)
#: days and hours of both feeds are those of New York
TIMEZONE = "America/New_York"

_ZONE = ZoneInfo(TIMEZONE)
_ORIGIN_KEY = re.compile(r"(\d{4}-\d{2}-\d{2})\|([A-Z]{3})")
_HOUR_KEY = re.compile(r"(\d{4}-\d{2}-\d{2})-(\d{2}):00([+-]\d{4})?")


@dataclass(frozen=True, kw_only=True, order=True)
class OriginFile:
    """A file of flights: one day from one airport."""

    feed: ClassVar[Feed] = "flights"

    day: date
    origin: str

    @property
    def key(self) -> str:
        """The partition key in Dagster, ``2013-01-01|EWR``."""
        return f"{self.day.isoformat()}|{self.origin}"

    @property
    def name(self) -> str:
        """The name of the file among those of its day, without a suffix."""
        return self.origin

    @classmethod
    def from_name(cls, day: str, name: str) -> "OriginFile":
        """Like :meth:`from_key`, from the name."""
        return cls.from_key(f"{day}|{name}")

    @classmethod
    def from_key(cls, key: str) -> "OriginFile":
        """Returns the file of a partition key.

        Errors:
            InvalidInput: it is not a day of 2013 and one of the three origins.
        """
        match = _ORIGIN_KEY.fullmatch(key)
        day = _day_of_2013(match[1]) if match else None
        if match is None or day is None or match[2] not in ORIGINS:
            raise InvalidInput(
                "partition", key, "a day of 2013 and EWR, JFK or LGA, as in 2013-01-01|EWR"
            )
        return cls(day=day, origin=match[2])


@dataclass(frozen=True, kw_only=True, order=True)
class HourFile:
    """A file of weather: one hour at all airports; ``begins_at`` is in UTC."""

    feed: ClassVar[Feed] = "weather"

    begins_at: datetime

    @property
    def day(self) -> date:
        """The day in New York that contains the hour."""
        return self.begins_at.astimezone(_ZONE).date()

    @property
    def key(self) -> str:
        """The partition key in Dagster, ``2013-01-01-05:00``.

        The second of two hours at 01:00, in autumn, has its offset: ``2013-11-03-01:00-0500``.
        """
        local = self.begins_at.astimezone(_ZONE)
        return f"{local:%Y-%m-%d-%H:%M}{local:%z}" if local.fold else f"{local:%Y-%m-%d-%H:%M}"

    @property
    def name(self) -> str:
        """The name of the file among those of its day, without a suffix: ``05``."""
        # Hadoop allows no colon in a path.
        return self.key.removeprefix(f"{self.day.isoformat()}-").replace(":00", "", 1)

    @classmethod
    def from_name(cls, day: str, name: str) -> "HourFile":
        """Like :meth:`from_key`, from the name."""
        return cls.from_key(f"{day}-{name[:2]}:00{name[2:]}")

    @classmethod
    def from_key(cls, key: str) -> "HourFile":
        """Returns the file of a partition key.

        Errors:
            InvalidInput: it is not an hour of 2013 in New York.
        """
        match = _HOUR_KEY.fullmatch(key)
        day = _day_of_2013(match[1]) if match else None
        if match is not None and day is not None and int(match[2]) < 24:
            local = datetime(
                day.year, day.month, day.day, int(match[2]), tzinfo=_ZONE, fold=bool(match[3])
            )
            file = cls(begins_at=local.astimezone(UTC))
            # An hour that was skipped in spring has the key of another one.
            if file.key == key:
                return file
        raise InvalidInput("partition", key, "an hour of 2013, as in 2013-01-01-05:00")


FeedFile = OriginFile | HourFile


def _day_of_2013(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if FIRST_DAY <= day <= LAST_DAY else None


def file_of(feed: Feed, key: str) -> FeedFile:
    """Returns the file of a feed with this partition key.

    Errors:
        InvalidInput: the feed has no such file.
    """
    return OriginFile.from_key(key) if feed == "flights" else HourFile.from_key(key)


def asset_of(feed: Feed) -> str:
    """Returns the asset key of a feed's file set, with slashes."""
    return f"raw/{feed}"


def hours_of(day: date) -> list[HourFile]:
    """Returns the files of weather of a day: 24, or 23 or 25 where clocks change."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=_ZONE).astimezone(UTC)
    hours = [HourFile(begins_at=midnight + timedelta(hours=number)) for number in range(25)]
    return [file for file in hours if file.day == day]


def files_of(days: Iterable[date], feeds: Sequence[Feed] = FEEDS) -> list[FeedFile]:
    """Returns the files of each day in the order in which they land.

    A third of the day's weather, and then the flights from one airport, three times.
    """
    found: list[FeedFile] = []
    for day in days:
        hours = hours_of(day)
        for number, origin in enumerate(ORIGINS):
            begin, end = (len(hours) * part // len(ORIGINS) for part in (number, number + 1))
            found += [*hours[begin:end], OriginFile(day=day, origin=origin)]
    return [file for file in found if file.feed in feeds]


def first_days(count: int) -> list[date]:
    """Returns the first ``count`` days of 2013.

    Errors:
        InvalidInput: the year has fewer days.
    """
    if not 0 <= count <= 365:
        raise InvalidInput("days", count, "0 to 365")
    return [FIRST_DAY + timedelta(days=number) for number in range(count)]
