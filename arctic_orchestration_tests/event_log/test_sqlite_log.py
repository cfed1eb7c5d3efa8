"""The plain cursor on SQLite and its guard against ids that are given out again."""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from arctic_orchestration.errors import ConfigurationError, InvalidInput, LogWentBack
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.event_log.log_rows import TYPES
from arctic_orchestration.event_log.sqlite_log import MARK_EVERY, MARKS, TRAIL


@dg.asset
def seven() -> int:
    return 7


class Lake:
    """An instance on SQLite, a reader of it, and a naive cursor beside it."""

    def __init__(self, instance: DagsterInstance) -> None:
        self.instance = instance
        self.log = DagsterLog(instance)
        self.stored: str | None = None
        self.naive = 0
        self.path = instance.event_log_storage.path_for_shard("index")  # type: ignore[attr-defined]

    def arrive(self, asset: str, *partitions: str) -> None:
        for partition in partitions:
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(asset, partition=partition, metadata={"bytes": 1})
            )

    def copy(self, asset: str, first: int, last: int) -> None:
        """Many rows at once, as copies of the newest under other partition keys."""
        with sqlite3.connect(self.path) as connection:
            connection.execute(
                "with recursive n(i) as (select ? union all select i + 1 from n where i < ?) "
                'insert into event_logs (run_id, event, dagster_event_type, "timestamp", '
                'asset_key, "partition") select run_id, event, dagster_event_type, "timestamp", '
                "?, 'p' || i from (select * from event_logs order by id desc limit 1), n",
                (first, last, f'["{asset}"]'),
            )
        connection.close()

    def wipe(self, asset: str) -> None:
        self.instance.wipe_assets([dg.AssetKey(asset)])

    def read(self, limit: int = 10_000) -> list[str]:
        """The partition keys that are new; the position goes through its stored form."""
        new: list[str] = []
        while True:
            position = Position.from_json(self.stored) if self.stored else None
            batch = self.log.read(position, limit)
            new += [event.partition or "" for event in batch.events]
            self.stored = batch.position.to_json()
            if not batch.more:
                return new

    def read_naive(self) -> list[str]:
        """What a cursor that only remembers the largest id finds."""
        marks = ", ".join("?" * len(TYPES))
        with sqlite3.connect(self.path) as connection:
            rows = connection.execute(
                f'select id, "partition" from event_logs where id > ? '
                f"and dagster_event_type in ({marks}) order by id",
                (self.naive, *TYPES),
            ).fetchall()
        connection.close()
        self.naive = rows[-1][0] if rows else self.naive
        return [partition for _, partition in rows]


@pytest.fixture
def lake(dagster_instance: Callable[[str], DagsterInstance]) -> Lake:
    return Lake(dagster_instance("sqlite"))


def test_each_arrival_is_read_once_in_pages(lake: Lake) -> None:
    """Five arrivals in pages of two; then nothing; then the next one."""
    lake.arrive("a", "1", "2", "3", "4", "5")
    assert lake.read(limit=2) == ["1", "2", "3", "4", "5"]
    assert lake.read() == []
    lake.arrive("a", "6")
    assert lake.read() == ["6"]


def test_ids_of_wiped_rows_that_are_given_out_again_are_read(lake: Lake) -> None:
    """Ids 3 and 4 are wiped and given out again: the new rows come, the naive cursor is blind."""
    lake.arrive("a", "a1", "a2")
    lake.arrive("b", "b1", "b2")
    assert lake.read() == lake.read_naive() == ["a1", "a2", "b1", "b2"]
    lake.wipe("b")
    lake.arrive("c", "c1", "c2")
    assert lake.read_naive() == []
    assert lake.read() == ["c1", "c2"]
    assert lake.read() == []


def test_new_rows_below_and_above_the_position_come_once(lake: Lake) -> None:
    """Ids 3 and 4 are given out again and 5 is new; the naive cursor finds only 5."""
    lake.arrive("a", "a1", "a2")
    lake.arrive("b", "b1", "b2")
    assert lake.read() == lake.read_naive() == ["a1", "a2", "b1", "b2"]
    lake.wipe("b")
    lake.arrive("c", "c1", "c2", "c3")
    assert lake.read_naive() == ["c3"]
    assert lake.read() == ["c1", "c2", "c3"]


def test_a_row_at_the_position_that_is_gone_hides_nothing(lake: Lake) -> None:
    """4 is given out again and wiped again, 3 and 5 stay: both come."""
    lake.arrive("a", "a1", "a2")
    lake.arrive("b", "b1", "b2")
    lake.read()
    lake.wipe("b")
    lake.arrive("c", "c1")
    lake.arrive("d", "d1")
    lake.arrive("c", "c2")
    lake.wipe("d")
    assert lake.read() == ["c1", "c2"]


def test_wiping_rows_in_the_middle_doubles_nothing(lake: Lake) -> None:
    """Rows of another asset below the position go; what is left is not delivered again."""
    lake.arrive("a", "a1")
    lake.arrive("b", "b1")
    lake.arrive("a", "a2")
    lake.read()
    lake.wipe("b")
    assert lake.read() == []
    lake.arrive("a", "a3")
    assert lake.read() == ["a3"]


def test_a_log_that_was_emptied_is_read_again(lake: Lake) -> None:
    """No delivered row is left: all that is there is new."""
    lake.arrive("a", "a1", "a2", "a3")
    lake.read()
    lake.wipe("a")
    assert lake.read() == []
    lake.arrive("b", "b1", "b2")
    assert lake.read() == ["b1", "b2"]


def test_the_end_leaves_out_what_is_there(lake: Lake) -> None:
    """From now on, only what comes later, also under ids that are given out again."""
    lake.arrive("a", "a1", "a2")
    lake.arrive("b", "b1")
    lake.stored = lake.log.end().to_json()
    assert lake.read() == []
    lake.wipe("b")
    lake.arrive("c", "c1")
    assert lake.read() == ["c1"]


@pytest.mark.parametrize("from_now", [False, True])
def test_after_a_large_wipe_nothing_new_is_missed(lake: Lake, from_now: bool) -> None:
    """5,000 rows are wiped and 100 come: they all come, with a bounded number of old ones.

    The rows left of the first asset are ids 1 to 3,000. The newest mark among them is at most
    1,024 ids below the last of them, so at most that many are delivered again.
    """
    lake.arrive("a", "p1")
    lake.copy("a", 2, 3_000)
    lake.copy("b", 1, 5_000)
    if from_now:
        lake.stored = lake.log.end().to_json()
    else:
        assert len(lake.read(limit=700)) == 8_000
    lake.wipe("b")
    lake.copy("c", 1, 100)
    found = lake.read()
    assert found[-100:] == [f"p{i}" for i in range(1, 101)]
    assert len(found) <= 100 + MARK_EVERY
    assert lake.read() == []


def restore(lake: Lake, upto: int) -> None:
    """Takes the log back to what it was when it had so many rows."""
    with sqlite3.connect(lake.path) as connection:
        connection.execute("delete from event_logs where id > ?", (upto,))
    connection.close()


@pytest.mark.parametrize("new", [0, 1, 70])
@pytest.mark.parametrize("rows", [30, 454, 1_500])
def test_a_restored_log_stops_the_reader(lake: Lake, rows: int, new: int) -> None:
    """Half of the rows are lost, some come under ids that were used: a person decides."""
    for number in range(10):
        lake.arrive("ab"[number % 2], str(number))
    lake.copy("a", 11, rows)
    assert len(lake.read()) == rows
    restore(lake, rows // 2)
    lake.arrive("b", *(f"new {number}" for number in range(new)))
    before = lake.stored
    for _ in range(2):
        with pytest.raises(LogWentBack, match="is not the one that was read"):
            lake.read()
    assert lake.stored == before
    lake.stored = lake.log.before(rows // 2 + 1).to_json()
    assert lake.read() == [f"new {number}" for number in range(new)]
    assert lake.read() == []


def test_wiped_assets_and_deleted_runs_do_not_stop_the_reader(lake: Lake) -> None:
    """The newest rows go, one asset after the other, and their ids are given out again."""
    for asset in "abc":
        lake.arrive(asset, f"{asset}1", f"{asset}2")
    assert len(lake.read()) == 6
    lake.wipe("c")
    lake.arrive("c", "c3")
    assert lake.read() == ["c3"]
    lake.wipe("b")
    lake.wipe("c")
    assert lake.read() == []
    lake.arrive("b", "b3")
    assert lake.read() == ["b3"]
    made = dg.materialize([seven], instance=lake.instance)
    assert len(lake.read()) == 3
    lake.instance.delete_run(made.run_id)
    assert lake.read() == []
    lake.arrive("a", "a3")
    assert lake.read() == ["a3"]


def test_the_first_event_since_a_moment(lake: Lake) -> None:
    """By the moments of events; none is younger than the last."""
    begun = datetime.now(UTC) - timedelta(seconds=1)
    lake.arrive("a", "a1", "a2")
    assert lake.log.first_since(begun) == 1
    assert lake.log.first_since(datetime.now(UTC) + timedelta(seconds=1)) is None


def test_the_position_stays_small(lake: Lake) -> None:
    """However much was read, a position has a bounded number of marks."""
    lake.arrive("a", "p1")
    lake.copy("a", 2, 70_000)
    assert len(lake.read()) == 70_000
    assert lake.stored is not None
    assert len(Position.from_json(lake.stored).state["marks"]) <= TRAIL + 2 * MARKS


def test_rows_that_a_migration_rewrites_are_not_new(lake: Lake) -> None:
    """Another serialised form of the same events is no reason to deliver them again."""
    lake.arrive("a", "a1", "a2")
    lake.read()
    with sqlite3.connect(lake.path) as connection:
        connection.execute("update event_logs set event = event || ' '")
    connection.close()
    assert lake.read() == []


def test_a_position_of_another_storage_is_refused(lake: Lake) -> None:
    """A position on Postgres means nothing here, and the message says what to do."""
    with pytest.raises(InvalidInput, match="start again from the end or the beginning"):
        lake.log.read(Position({"storage": "postgres", "settled": 3}), 10)
    with pytest.raises(InvalidInput, match="at least 1"):
        lake.log.read(None, 0)


def test_an_instance_in_memory_is_refused() -> None:
    """What no other process can see cannot be followed."""
    with (
        DagsterInstance.ephemeral() as instance,
        pytest.raises(ConfigurationError, match="SQLite or Postgres"),
    ):
        DagsterLog(instance)


def test_a_storage_that_is_gone_is_named(lake: Lake) -> None:
    """The message has the path of the file that does not exist."""
    Path(lake.path).unlink()
    with pytest.raises(ConfigurationError, match=r"index\.db does not exist"):
        lake.log.read(None, 10)
