"""``python -m arctic_orchestration.flights.feeder``: the year arrives, file by file, at a pace.

It waits until the dispatcher follows Dagster's event log, because earlier
files are ignored. It can be stopped at any point; started again, it continues with the next file.
"""

import argparse
import fcntl
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import dagster as dg

from arctic_orchestration import private_files
from arctic_orchestration.errors import ArcticError, ConfigurationError
from arctic_orchestration.flights.demo_instance import LOCATION
from arctic_orchestration.flights.feeding import DagsterAnnouncements, feed_days
from arctic_orchestration.flights.feeds import asset_of, files_of, first_days
from arctic_orchestration.flights.landing import LandedFile, Landing
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.schedules.views.overview import overview
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

_DAYS = 365
_LOOK_EVERY_SECONDS = 1.0


class Ending:
    """Whether it is time to end: after SIGTERM or SIGINT, or after the end of the given process.

    A file that is landing when a signal comes still lands, and is reported.
    """

    def __init__(self, beside: int | None = None) -> None:
        """Makes signals only end pauses from now on.

        Args:
            beside: the id of the process with which this one ends, if any.
        """
        self._beside = beside
        self._signals, self._signalled = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.write(self._signalled, b"."))

    def within(self, seconds: float) -> bool:
        """Pauses for that long, or until it is time to end; returns whether it is."""
        while True:
            pause = min(seconds, _LOOK_EVERY_SECONDS)
            if select.select([self._signals], [], [], pause)[0]:
                return True
            if self._beside is not None and os.getppid() != self._beside:
                return True
            seconds -= pause
            if seconds <= 0:
                return False


def feed(settings: Settings, every: float, ending: Ending) -> None:
    """Lands and reports a third of a day every ``every`` seconds, until the year is over.

    That is eight hours of weather, and then the flights of the day from one airport. It returns
    earlier when the process has to end.

    Errors:
        ConfigurationError: another feeder feeds this lake.
    """
    landing = Landing.of(settings)
    with _alone(landing):
        if not _followed(settings, ending):
            return
        _feed(landing, every, ending)


def _feed(landing: Landing, every: float, ending: Ending) -> None:
    files = len(files_of(first_days(_DAYS)))
    # Not before the first tick of the dispatcher: creating one instance's storage in two processes
    # at once breaks it.
    with dg.DagsterInstance.get() as instance:
        feeding = feed_days(
            FlightsSource.installed(), landing, DagsterAnnouncements(instance), first_days(_DAYS)
        )
        for landed in feeding:
            paces = landed.file.feed == "flights"
            if paces:
                _log_line(
                    f"{_name(landed)} has landed, {landing.count():,} of {files:,}; "
                    f"a third of a day every {every:g} s"
                )
            if ending.within(every if paces else 0):
                return
        _log_line(f"all {files:,} files of the year have landed")


def _followed(settings: Settings, ending: Ending) -> bool:
    """Waits for the dispatcher's first tick; returns False when it is time to end instead."""
    _log_line("waiting for the dispatcher's first tick")
    with closing(Database(settings.database_url)) as database:
        while True:
            # The dispatcher creates the tables.
            if database.revision() is not None:
                with database.read() as tx:
                    if overview(tx, settings.cluster, LOCATION).following:
                        return True
            if ending.within(_LOOK_EVERY_SECONDS):
                return False


@contextmanager
def _alone(landing: Landing) -> Iterator[None]:
    landing.root.mkdir(parents=True, exist_ok=True)
    # The kernel releases the lock when its holder dies.
    with private_files.opened(landing.root / ".feeder", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"another feeder feeds {landing.root}; end it first") from None
        yield


def _name(landed: LandedFile) -> str:
    return f"{asset_of(landed.file.feed)} {landed.file.key}"


def _log_line(what: str) -> None:
    if sys.stdout.isatty():
        # The cursor stays at the beginning, so that Dagster's lines do not follow ours.
        print(f"feeder: {what}\x1b[K", end="\r", flush=True)
    else:
        print(f"feeder: {what}", flush=True)


def main() -> None:
    """Runs the command; exit code 0 when the year is over or the feeder was stopped."""
    parser = argparse.ArgumentParser(prog="feeder", description=__doc__)
    parser.add_argument("--every", type=float, default=20, help="seconds for a third of a day")
    parser.add_argument("--beside", type=int, help="id of the parent process, to end with it")
    given = parser.parse_args()
    if given.every <= 0:
        parser.error(f"--every: got {given.every:g}, expected more than 0 seconds")
    ending = Ending(given.beside)
    try:
        feed(Settings.from_environment(), given.every, ending)
    except ArcticError as error:
        sys.exit(f"feeder: {error}")


if __name__ == "__main__":
    main()
