"""The landing directory: where feed files arrive, each with a marker when it is complete.

::

    <root>/flights/2013-01-01/EWR.csv             the rows
    <root>/flights/2013-01-01/EWR.csv.complete    {"bytes": 28191, "rows": 305}
    <root>/weather/2013-01-01/05.csv              the rows of an hour

A file is written under another name, flushed to disk, renamed, and only then marked; the marker is
written in the same way. So a marked file is complete, wherever the writer was killed, and landing
again ends with the same bytes.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from arctic_orchestration import private_files
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.flights.feeds import FEEDS, Feed, FeedFile, HourFile, OriginFile, asset_of
from arctic_orchestration.flights.source import FileContent
from arctic_orchestration.settings import Settings

_MARKER = ".complete"


@dataclass(frozen=True, kw_only=True)
class LandedFile:
    """A complete file in the landing directory; ``bytes`` and ``rows`` measure its content."""

    file: FeedFile
    path: Path
    bytes: int
    rows: int


@dataclass(frozen=True)
class Landing:
    """A landing directory; it need not exist."""

    root: Path

    @classmethod
    def of(cls, settings: Settings) -> "Landing":
        """Returns the landing directory of the configured lake, ``$ARCTIC_LAKE/landing``."""
        return cls(settings.lake.resolve() / "landing")

    def path(self, file: FeedFile) -> Path:
        """Returns the path of the file."""
        return self.root / file.feed / file.day.isoformat() / f"{file.name}.csv"

    def find(self, file: FeedFile) -> LandedFile | None:
        """Returns the file, if it is complete; else none."""
        path = self.path(file)
        try:
            marker = json.loads(_marker(path).read_text())
            size = path.stat().st_size
            rows = int(marker["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if size != marker.get("bytes"):
            return None
        return LandedFile(file=file, path=path, bytes=size, rows=rows)

    def get(self, file: FeedFile) -> LandedFile:
        """Returns the file.

        Errors:
            NotFound: it has not landed, or not completely.
        """
        landed = self.find(file)
        if landed is None:
            raise NotFound(
                f"{asset_of(file.feed)} {file.key}: no complete file at {self.path(file)}; "
                f"land it with: dagster asset materialize --select {asset_of(file.feed)} "
                f"--partition '{file.key}'"
            )
        return landed

    def landed(self, feed: Feed, days: Iterable[date] | None = None) -> list[LandedFile]:
        """Returns all complete files of a feed in their order, or those of some days."""
        kind = OriginFile if feed == "flights" else HourFile
        folders = ["*"] if days is None else sorted({day.isoformat() for day in days})
        found = []
        for folder in folders:
            for marker in sorted((self.root / feed).glob(f"{folder}/*.csv{_MARKER}")):
                name = marker.name.removesuffix(f".csv{_MARKER}")
                try:
                    found.append(self.find(kind.from_name(marker.parent.name, name)))
                except InvalidInput:
                    continue
        return [file for file in found if file is not None]

    def count(self) -> int:
        """Returns how many files of all feeds are marked as complete; reads none of them."""
        return sum(1 for feed in FEEDS for _ in (self.root / feed).glob(f"*/*.csv{_MARKER}"))

    def land(self, file: FeedFile, content: FileContent) -> LandedFile:
        """Lands the file; leaves a complete one unchanged.

        Writers of the same directory take turns, even across processes.
        """
        path = self.path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing():
            landed = self.find(file)
            if landed is not None:
                return landed
            marker = {"bytes": len(content.content), "rows": content.rows}
            _write(path, content.content)
            _write(_marker(path), json.dumps(marker).encode())
        return self.get(file)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        # The kernel releases the lock when its holder dies.
        with private_files.opened(self.root / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _marker(path: Path) -> Path:
    return path.with_name(path.name + _MARKER)


def _write(path: Path, content: bytes) -> None:
    """Writes the file atomically: with all of its content or not at all."""
    # One fixed name: leftovers of a killed writer are overwritten, and do not accumulate.
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
