"""The numbers of lake tables, which Dagster plots: when they are reported, and what they say."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration.compaction import service
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.dagster import sensor as compaction_sensor
from arctic_orchestration.compaction.dagster.table_metrics import ReportClock, key_of
from arctic_orchestration.compaction.queue import table_queues
from arctic_orchestration_tests.code_location.compaction_place import (
    CompactedPlace,
    a_location,
    compacted,
)
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.schedules.simulated import at


class Clock:
    """The sensor's clock, and the database's, set manually."""

    def __init__(self) -> None:
        self.begin = datetime.now(UTC)
        self.passed = timedelta(0)

    def __call__(self) -> datetime:
        return self.begin + self.passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(compaction_sensor, "utc_now", made)
    monkeypatch.setattr(service, "not_ahead", lambda _, now: now)
    return made


@pytest.fixture
def lake(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompactedPlace:
    return compacted(place, tmp_path / "lake", monkeypatch)


def commit(lake: CompactedPlace, table: str, snapshot_id: int) -> None:
    """Compaction notes a commit of 12 files to 1."""
    record = CompactionRecord(
        table=table, snapshot_id=snapshot_id, at=at(0), tasks=("a", "b"), files_in=12, files_out=1,
        delete_files_removed=3, bytes_in=1200, bytes_out=900, rows=100, rows_deleted=7,
        merge_seconds=1.5, waited_seconds=4.25, ways={"decode": 2},
    )  # fmt: skip
    with lake.place.database.begin() as tx:
        assert records.write(tx, record)


def test_a_table_is_reported_as_soon_as_it_is_known(lake: CompactedPlace, clock: Clock) -> None:
    """Three files where one would do, all of them small; numbers, so that they are plotted."""
    lake.append("nyc.small", files=3)
    location = a_location()
    lake.tick(location)
    lake.tick(location)
    (found,) = lake.reported("nyc.small")
    size = found.pop("bytes")
    snapshot = lake.catalog.load_table("nyc.small").current_snapshot()
    assert found == {
        "snapshot": str(snapshot.snapshot_id) if snapshot else "",
        "tasks": 1,
        "files": 3,
        "small files": 3,
        "rows": 9,
        "delete files": 0,
        "partitions": 1,
        "read amplification": 3.0,
    }
    assert 1_000 < size < 10_000
    stored = lake.place.instance.fetch_observations(key_of("nyc.small"), limit=9).records
    assert len(stored) == 1


def test_nothing_is_reported_twice_and_changes_every_few_minutes(
    lake: CompactedPlace, clock: Clock
) -> None:
    """Five minutes after the last time, if there is something to tell."""
    lake.append("nyc.small", files=3)
    location = a_location()
    for _ in range(3):
        lake.tick(location)
    assert len(lake.reported("nyc.small")) == 1
    clock.passed = timedelta(minutes=10)
    lake.tick(location)
    lake.tick(location)
    assert len(lake.reported("nyc.small")) == 1, "it is as it was"
    lake.append("nyc.small")
    clock.passed = timedelta(minutes=11)
    lake.tick(location)
    lake.tick(location)
    assert [one["files"] for one in lake.reported("nyc.small")] == [3, 4]
    lake.append("nyc.small")
    clock.passed = timedelta(minutes=15)
    lake.tick(location)
    lake.tick(location)
    assert len(lake.reported("nyc.small")) == 2, "five minutes are not over"
    clock.passed = timedelta(minutes=17)
    lake.tick(location)
    assert [one["files"] for one in lake.reported("nyc.small")] == [3, 4, 5]


def test_a_commit_is_reported_at_once_with_its_record(lake: CompactedPlace, clock: Clock) -> None:
    """Once, however many ticks follow."""
    lake.append("nyc.small", files=2)
    location = a_location()
    lake.tick(location)
    lake.tick(location)
    commit(lake, "nyc.small", 77)
    for _ in range(3):
        lake.tick(location)
    _, found = lake.reported("nyc.small")
    kept = ("last commit of compaction", "tasks committed", "files merged", "files written",
            "delete files removed", "bytes merged", "bytes written", "merging (s)",
            "waiting (s)")  # fmt: skip
    assert [found[name] for name in kept] == ["77", 2, 12, 1, 3, 1200, 900, 1.5, 4.25]


def test_a_new_code_server_does_not_repeat_a_report(lake: CompactedPlace, clock: Clock) -> None:
    """It finds the last report in Dagster's storage."""
    lake.append("nyc.small", files=2)
    commit(lake, "nyc.small", 77)
    first = a_location()
    lake.tick(first)
    lake.tick(first)
    assert len(lake.reported("nyc.small")) == 1
    second = a_location()
    lake.tick(second)
    lake.tick(second)
    assert len(lake.reported("nyc.small")) == 1


def test_many_tables_are_looked_up_once_and_a_few_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lookup is a query of Dagster's storage within the tick; all have their turn."""
    looked_up: list[dg.AssetKey] = []
    fetch = place.instance.fetch_observations

    def counted(key: dg.AssetKey, limit: int) -> object:
        looked_up.append(key)
        return fetch(key, limit=limit)

    monkeypatch.setattr(place.instance, "fetch_observations", counted)
    now = datetime.now(UTC)
    names = [f"nyc.t{number:04}" for number in range(1_000)]
    with place.database.begin() as tx:
        for name in names:
            table_queues.see_table(tx, name, queue=None, level=0, now=now)
    clock, read = ReportClock(timedelta(hours=1)), set[str]()
    for calls in range(1, 51):
        due = clock.due(place.database, place.instance, now, lambda _: True)
        assert len(due) == ReportClock.MOST
        assert len(looked_up) == min(200 * calls, 1_000)
        for name, state in due.items():
            clock.note_reading(name, state, now)
        read |= due.keys()
    assert read == set(names)
    assert set(looked_up) == {key_of(name) for name in names}
    assert clock.due(place.database, place.instance, now, lambda _: True) == {}


def test_a_table_that_is_not_compacted_says_why(lake: CompactedPlace, clock: Clock) -> None:
    """Beside its numbers."""
    lake.table("nyc.off", {"arctic.compaction.enabled": "false"})
    location = a_location()
    lake.tick(location)
    lake.tick(location)
    (found,) = lake.reported("nyc.off")
    assert found["not compacted"] == "arctic.compaction.enabled is false"
    assert found["files"] == 0


def test_a_table_that_cannot_be_read_stops_no_other(
    lake: CompactedPlace, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is reported, and the tick succeeds."""
    lake.append("nyc.broken", files=2)
    lake.append("nyc.whole", files=2)
    location = a_location()
    lake.tick(location)
    for manifest in (lake.settings.lake / "warehouse/nyc/broken/metadata").glob("*-m0.avro"):
        manifest.unlink()
    lake.tick(location)
    assert (len(lake.reported("nyc.broken")), len(lake.reported("nyc.whole"))) == (0, 1)


def test_a_person_may_observe_a_table_at_any_time(lake: CompactedPlace) -> None:
    """A run of the asset reads the same numbers."""
    lake.append("nyc.small", files=2)
    location = a_location(tables=["nyc.small"])
    job = location.get_repository_def().get_job("__ASSET_JOB")
    ran = job.execute_in_process(
        instance=lake.place.instance, asset_selection=[key_of("nyc.small")]
    )
    assert ran.success
    (record,) = lake.place.instance.fetch_observations(key_of("nyc.small"), limit=9).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["files"] == dg.MetadataValue.int(2)


def test_numbers_may_be_left_out(lake: CompactedPlace) -> None:
    """Without a span of time, nothing is reported."""
    lake.append("nyc.small", files=2)
    location = a_location(numbers_every=None)
    lake.tick(location)
    lake.tick(location)
    assert lake.observed == []
