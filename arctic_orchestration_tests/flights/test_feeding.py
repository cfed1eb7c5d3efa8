"""Files land whole and are announced once, wherever the feeder is killed."""

import os
import random
import signal
from collections.abc import Callable
from datetime import date
from multiprocessing.context import ForkServerContext
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration.errors import NotFound
from arctic_orchestration.flights.feeding import DagsterAnnouncements, feed_days
from arctic_orchestration.flights.feeds import OriginFile, files_of, first_days
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.source import FileContent, FlightsSource
from arctic_orchestration_tests.flights import feeder_process
from arctic_orchestration_tests.flights.feeder_process import FileAnnouncements
from arctic_orchestration_tests.flights.small_source import small_source
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

EWR = OriginFile(day=date(2013, 1, 1), origin="EWR")


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that begin with everything imported."""
    return forkserver()


def tree(root: Path) -> dict[str, bytes]:
    """Every file beneath a directory, with its content."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_a_feeder_killed_at_each_step_ends_with_the_same_files_each_announced_once(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    """Each opening, flush and rename and both sides of each announcement is a place to die."""
    source = small_source(tmp_path / "source")
    days = [date(2013, 1, 1)]

    def feed(directory: Path, die_at: int) -> int | None:
        arguments = (str(directory), str(source.directory), days, die_at)
        process = processes.Process(target=feeder_process.run, args=arguments)
        process.start()
        process.join(PATIENCE_SECONDS)
        return process.exitcode

    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    assert feed(undisturbed, 0) == 0
    expected = tree(undisturbed / "landing")
    announced = FileAnnouncements(undisturbed / "announced").lines()
    assert len(announced) == 3
    # Three files with a marker each, and the lock.
    assert len(expected) == 7

    kills = 0
    while True:
        directory = tmp_path / f"killed-{kills + 1}"
        directory.mkdir()
        code = feed(directory, kills + 1)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        landing = Landing(directory / "landing")
        for landed in landing.landed("flights"):
            assert landed.path.read_bytes() == source.file(landed.file).content
        assert feed(directory, 0) == 0
        assert tree(directory / "landing") == expected
        assert sorted(FileAnnouncements(directory / "announced").lines()) == sorted(announced)
    # A file is a lock, and for content and marker an opening, two flushes, a rename and the
    # directory's opening; then two sides of the announcement: at least twelve steps.
    assert kills >= 3 * 12


def test_a_week_fed_by_feeders_that_are_killed_at_random_is_whole(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    """Each feeder is killed by its pid after some files more; the last one finds all 189 there."""
    chance = random.Random(2013)
    days = first_days(7)
    announcements = FileAnnouncements(tmp_path / "announced")
    kills = 0
    while len(announcements.lines()) < 189:
        until = min(189, len(announcements.lines()) + chance.randint(1, 36))
        process = processes.Process(target=feeder_process.run_whole, args=(str(tmp_path), days))
        process.start()
        while process.is_alive() and len(announcements.lines()) < until:
            process.join(0.001)
        assert process.pid is not None
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join(PATIENCE_SECONDS)
    assert kills > 3
    source, landing = FlightsSource.installed(), Landing(tmp_path / "landing")
    for file in files_of(days):
        landed = landing.get(file)
        assert landed.path.read_bytes() == source.file(file).content
        assert landed.rows == source.file(file).rows
    assert len(announcements.lines()) == len(set(announcements.lines())) == 189
    assert landing.count() == 189


def test_a_file_without_its_marker_is_not_there(tmp_path: Path) -> None:
    """A reader learns how to land it."""
    landing = Landing(tmp_path)
    path = landing.path(EWR)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a fi")
    assert landing.find(EWR) is None
    with pytest.raises(NotFound, match=r"--select raw/flights --partition '2013-01-01\|EWR'"):
        landing.get(EWR)


def test_a_file_that_was_cut_short_after_landing_is_landed_again(tmp_path: Path) -> None:
    """The marker counts the bytes."""
    landing = Landing(tmp_path)
    content = FileContent(content=b"header\nrow\n", rows=1)
    landed = landing.land(EWR, content)
    assert (landed.bytes, landed.rows) == (11, 1)
    landed.path.write_bytes(b"header\n")
    assert landing.landed("flights") == []
    assert landing.land(EWR, content) == landed
    assert landing.landed("flights") == [landed]


def test_each_file_is_reported_to_dagster_with_path_bytes_and_rows(
    tmp_path: Path, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> None:
    """27 files of a day; a second feeder has nothing to tell."""
    instance = dagster_instance("sqlite")
    source, landing = small_source(tmp_path / "source"), Landing(tmp_path / "landing")
    announcements = DagsterAnnouncements(instance)
    days = [date(2013, 1, 1)]
    fed = list(feed_days(source, landing, announcements, days))
    assert [landed.file for landed in fed] == files_of(days)
    hours = instance.get_materialized_partitions(dg.AssetKey(["raw", "weather"]))
    assert hours == {f"2013-01-01-{hour:02}:00" for hour in range(24)}
    records = instance.fetch_materializations(dg.AssetKey(["raw", "flights"]), limit=10).records
    events = {record.partition_key: record.asset_materialization for record in records}
    assert set(events) == {"2013-01-01|EWR", "2013-01-01|JFK", "2013-01-01|LGA"}
    materialization = events["2013-01-01|EWR"]
    assert materialization is not None
    assert {name: value.value for name, value in materialization.metadata.items()} == {
        "path": str(landing.path(EWR)),
        "bytes": landing.path(EWR).stat().st_size,
        "rows": 305,
    }
    assert list(feed_days(source, landing, announcements, days)) == []


def test_files_that_landed_before_are_reported_to_a_fresh_instance(
    tmp_path: Path, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> None:
    """They come first, whatever days are requested."""
    source, landing = small_source(tmp_path / "source"), Landing(tmp_path / "landing")
    first = DagsterAnnouncements(dagster_instance("sqlite"))
    list(feed_days(source, landing, first, [date(2013, 1, 1)], feeds=["flights"]))
    second = DagsterAnnouncements(dagster_instance("sqlite"))
    # A folder and a file of something else.
    (landing.root / "flights" / "2013-01-03").mkdir()
    (landing.root / "flights" / "2013-01-03" / "BOS.csv.complete").write_text("{}")
    fed = feed_days(source, landing, second, [date(2013, 1, 2)], feeds=["flights"])
    assert [landed.file.key for landed in fed] == [
        f"2013-01-0{day}|{origin}" for day in (1, 2) for origin in ("EWR", "JFK", "LGA")
    ]
