"""A process that lands and announces files, and can be made to die at a given step of it."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from arctic_orchestration.flights.feeding import feed_days
from arctic_orchestration.flights.feeds import Feed
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.source import FlightsSource


@dataclass
class FileAnnouncements:
    """Announcements as lines of a file, which stands for the event log."""

    path: Path
    step: Callable[[], None] = field(default=lambda: None)

    def lines(self) -> list[str]:
        """All announcements so far, ``asset partition rows``."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    def announced(self, asset: str) -> set[str]:
        """The partitions of the asset that were announced."""
        return {line.split()[1] for line in self.lines() if line.split()[0] == asset}

    def announce(self, asset: str, partition: str, metadata: Mapping[str, str | int]) -> None:
        """Adds a line, in one write."""
        self.step()
        with self.path.open("a") as stream:
            stream.write(f"{asset} {partition} {metadata['rows']}\n")
        self.step()


def run(directory: str, source: str, days: list[date], die_at: int) -> None:
    """Feeds flights of ``days`` into ``directory``, and dies right before step ``die_at``, from 1.

    Steps are each opening, flushing and renaming of a file in the directory, and both sides of
    each announcement. ``die_at`` 0 means never.
    """
    root = Path(directory)
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.rename", "fcntl.flock") and (
            event == "fcntl.flock" or str(arguments[0]).startswith(f"{root}/landing")
        ):
            step()

    flush = os.fsync

    def flushing(descriptor: Any) -> None:
        step()
        flush(descriptor)

    sys.addaudithook(audit)
    os.fsync = flushing  # type: ignore[assignment]
    announcements = FileAnnouncements(root / "announced", step)
    feeds: list[Feed] = ["flights"]
    for _ in feed_days(
        FlightsSource(Path(source)), Landing(root / "landing"), announcements, days, feeds
    ):
        pass


def run_whole(directory: str, days: list[date]) -> None:
    """Feeds ``days`` of the real source into ``directory``, as fast as it can."""
    root = Path(directory)
    announcements = FileAnnouncements(root / "announced")
    for _ in feed_days(FlightsSource.installed(), Landing(root / "landing"), announcements, days):
        pass
