"""The feeder of ``make dev``, as a process: when it begins, how it goes on, and how it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import dagster as dg
import psutil
import pytest

from arctic_orchestration.flights.demo_instance import LOCATION
from arctic_orchestration.flights.feeds import FEEDS, asset_of, files_of, first_days
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

FEEDER = [sys.executable, "-m", "arctic_orchestration.flights.feeder"]

Starting = Callable[..., "subprocess.Popen[str]"]


class House:
    """A Dagster home whose dispatcher is played by the test."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ARCTIC_")},
            "DAGSTER_HOME": instance.root_directory,
        }
        self.settings = Settings.from_environment(self.environment)

    def follow(self) -> None:
        """What the dispatcher's first tick leaves behind: tables, and a position in the feed."""
        database = Database.open(self.settings.database_url)
        with database.begin() as tx:
            place = locations.locked(tx, self.settings.cluster, LOCATION)
            locations.update(tx, place, position="{}")
        database.close()

    def landed(self) -> list[str]:
        """What lies in the landing directory, sorted."""
        landing = Landing.of(self.settings)
        found = [landed for feed in FEEDS for landed in landing.landed(feed)]
        return sorted(f"{asset_of(landed.file.feed)} {landed.file.key}" for landed in found)

    def announced(self) -> list[str]:
        """What was reported to Dagster, sorted, as often as it was reported."""
        return sorted(
            f"{asset_of(feed)} {record.partition_key}"
            for feed in FEEDS
            for record in self.instance.fetch_materializations(
                dg.AssetKey.from_user_string(asset_of(feed)), limit=1000
            ).records
        )


@pytest.fixture
def house(dagster_instance: Callable[[str], dg.DagsterInstance]) -> House:
    return House(dagster_instance("sqlite"))


@pytest.fixture
def start(house: House) -> Iterator[Starting]:
    """Starts a command in the house."""
    started: list[subprocess.Popen[str]] = []

    def run(*command: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command,
            env=house.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line that it writes."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_feeder_waits_to_be_followed_and_goes_on_where_it_was(
    house: House, start: Starting, number: signal.Signals
) -> None:
    """Nothing lands before; each file is announced once, though the feeder was ended twice.

    Nine files land together: eight hours of weather, and the flights from an airport.
    """
    feeder = start(*FEEDER, "--every", "0.05")
    assert line_of(feeder) == "feeder: waiting for the dispatcher's first tick"
    assert house.landed() == []
    house.follow()
    assert line_of(feeder) == (
        "feeder: raw/flights 2013-01-01|EWR has landed, 9 of 9,855; a third of a day every 0.05 s"
    )
    feeder.send_signal(number)
    assert feeder.wait(30) == 0
    first = house.landed()
    assert house.announced() == first

    again = start(*FEEDER, "--every", "0.05")
    line_of(again)
    assert f"has landed, {len(first) // 9 * 9 + 9} of 9,855" in line_of(again)
    again.send_signal(number)
    assert again.wait(30) == 0
    assert len(house.landed()) > len(first)
    assert house.announced() == house.landed()


def test_a_feeder_that_still_waits_can_be_ended(house: House, start: Starting) -> None:
    """No dispatcher ever came."""
    feeder = start(*FEEDER)
    line_of(feeder)
    feeder.terminate()
    assert feeder.wait(30) == 0
    assert house.landed() == []


def test_a_second_feeder_of_a_lake_is_refused(house: House, start: Starting) -> None:
    """Two would announce files twice."""
    feeder = start(*FEEDER)
    line_of(feeder)
    second = start(*FEEDER)
    output, _ = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 1
    assert output.strip() == (
        f"feeder: another feeder feeds {Landing.of(house.settings).root}; end it first"
    )
    assert feeder.poll() is None


def test_a_feeder_ends_with_the_process_that_it_was_started_beside(
    house: House, start: Starting
) -> None:
    """Its parent is killed, and can tell it nothing; it ends by itself within seconds."""
    house.follow()
    script = f"{' '.join(FEEDER)} --every 3600 --beside $$ & echo $!; exec sleep 3600"
    parent = start("sh", "-c", script)
    feeder = psutil.Process(int(line_of(parent)))
    assert line_of(parent) == "feeder: waiting for the dispatcher's first tick"
    assert "2013-01-01|EWR has landed" in line_of(parent)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    feeder.wait(30)
    third_of_a_day = [f"{asset_of(file.feed)} {file.key}" for file in files_of(first_days(1))[:9]]
    assert house.announced() == house.landed() == sorted(third_of_a_day)


def test_a_pace_that_cannot_be_is_refused(start: Starting) -> None:
    """Field, value and what was expected."""
    feeder = start(*FEEDER, "--every", "0")
    output, _ = feeder.communicate(timeout=PATIENCE_SECONDS)
    assert feeder.returncode == 2
    assert "--every: got 0, expected more than 0 seconds" in output
