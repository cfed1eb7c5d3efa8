"""Time zones: the moment of a wall time in a zone, on days of clock changes too."""

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator


@cache
def _zones() -> frozenset[str]:
    """Returns the names of all zones; finding them takes milliseconds."""
    # localtime is another zone on each machine.
    return frozenset(available_timezones()) - {"localtime", "Factory"}


def known_zone(name: str) -> str:
    """Returns the name itself, if it is one of the IANA database.

    Errors:
        ValueError: it is not.
    """
    if name not in _zones():
        raise ValueError("a time zone of the IANA database, such as Europe/Berlin")
    return name


#: the name of a time zone in a specification
ZoneName = Annotated[str, AfterValidator(known_zone)]


@lru_cache(maxsize=16_384)
def first_shown(wall: datetime, zone: ZoneInfo) -> datetime:
    """Returns the first moment, in UTC, when the zone's clock shows ``wall`` or, in a gap, later.

    A wall time that does not exist gives the first moment after the gap, an ambiguous one its first
    occurrence. Of two wall times the later one never gives an earlier moment.
    """
    first, second = (wall_to_utc(wall, zone, fold=fold) for fold in (0, 1))
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return first
    return end_of_gap(second, first, zone)


def wall_to_utc(wall: datetime, zone: ZoneInfo, *, fold: int) -> datetime:
    """Returns the moment of a naive wall time; ``fold`` 1 is the second of two."""
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Returns the moment between two in UTC at which the zone's offset changes, to the second."""
    old = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0) if middle.microsecond else middle
        if middle <= before:
            break
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after
