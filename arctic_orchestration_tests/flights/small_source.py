"""A source of two days, cut from the real one, so that a process can begin with it at once."""

import zipfile
from pathlib import Path

from arctic_orchestration.flights.source import FlightsSource


def small_source(directory: Path) -> FlightsSource:
    """The lines of 1 and 2 January in files of the same form as the package's."""
    directory.mkdir(parents=True)
    real = FlightsSource.installed()
    header, *flights = real.csv("flights").splitlines(keepends=True)
    few = [line for line in flights if line.startswith((b"2013,1,1,", b"2013,1,2,"))]
    with zipfile.ZipFile(directory / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", b"".join([header, *few]))
    header, *weather = real.csv("weather").splitlines(keepends=True)
    few = [line for line in weather if b",2013,1,1," in line or b",2013,1,2," in line]
    (directory / "weather.csv").write_bytes(b"".join([header, *few]))
    return FlightsSource(directory)
