"""What a table's metadata, manifests and tasks mean for its plan."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.planning.catalog_planner import plan_table
from arctic_orchestration.compaction.planning.table_plan import Left
from arctic_orchestration.compaction.planning.table_planner import moments_of, partition_names
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.table_queues import see_table
from arctic_orchestration.compaction.queue.task import TaskKind
from arctic_orchestration.compaction.tables import note_merged
from arctic_orchestration.errors import InvalidDefinition, NotFound
from arctic_orchestration.state.compaction_tables import compaction_tasks
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import BY_DAY_AND_ORIGIN, BY_ORIGIN, Lake
from arctic_orchestration_tests.compaction.stored import opened
from arctic_orchestration_tests.lake.row_filters import EqualTo

HOUR = timedelta(hours=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A state database; that it is the same on Postgres is shown elsewhere."""
    with opened(f"sqlite:///{tmp_path / 'arctic.db'}") as made:
        yield made


def test_a_dry_run_shows_what_would_be_merged(lake: Lake) -> None:
    """Twelve files of JFK are; two of EWR came just now and wait."""
    lake.table("lake.flights", BY_ORIGIN)
    lake.append("lake.flights", 12, "JFK")
    lake.append("lake.flights", 2, "EWR")
    found = plan_table(None, lake.catalog, "lake.flights", utc_now())
    (task,) = found.tasks
    assert task.kind is TaskKind.MINOR
    assert task.partition == "origin=JFK"
    assert task.reason == "12 fragments; 12 suffice"
    assert task.group.snapshot_id == lake.catalog.load_table("lake.flights").metadata.snapshots[-1]\
        .snapshot_id  # fmt: skip
    assert found.files == 14
    (left,) = found.left_alone()
    assert (left.left, left.examples) == (Left.TOO_FEW, ("origin=EWR: 2 fragments of 12",))


def test_files_wait_since_they_were_written(lake: Lake) -> None:
    """The table's snapshots say when; an hour later two fragments are enough."""
    lake.table("lake.flights", files=2)
    now = utc_now()
    waits = plan_table(None, lake.catalog, "lake.flights", now)
    assert waits.tasks == ()
    assert waits.recheck_at is not None
    assert now < waits.recheck_at <= now + HOUR
    assert len(plan_table(None, lake.catalog, "lake.flights", waits.recheck_at).tasks) == 1


def test_an_empty_table_has_no_plan(lake: Lake) -> None:
    """It has no snapshot."""
    lake.table("lake.flights")
    found = plan_table(None, lake.catalog, "lake.flights", utc_now())
    assert (found.snapshot_id, found.tasks, found.refused) == (None, (), None)


def test_a_table_that_is_not_enabled_is_refused_unless_forced(lake: Lake) -> None:
    """A person may compact it all the same."""
    lake.table("lake.flights", files=2, enabled="false")
    found = plan_table(None, lake.catalog, "lake.flights", utc_now())
    assert found.refused == "arctic.compaction.enabled is false"
    forced = plan_table(None, lake.catalog, "lake.flights", utc_now(), forced=True)
    assert forced.tasks[0].reason == "it was requested"


def test_bad_input_is_named(lake: Lake) -> None:
    """A property that cannot be used, and a table that is not there."""
    lake.table("lake.flights", attempts="no")
    with pytest.raises(InvalidDefinition, match="arctic.compaction.attempts of lake.flights"):
        plan_table(None, lake.catalog, "lake.flights", utc_now())
    with pytest.raises(NotFound, match="lake.flights"):
        plan_table(None, lake.catalog, "lake.fligths", utc_now())


def test_what_tasks_have_and_what_was_merged_counts(lake: Lake, database: Database) -> None:
    """A waiting task is planned again; of a partition that was just merged, two files wait."""
    lake.table("lake.flights", files=2)
    later = utc_now() + 2 * HOUR
    with database.begin() as tx:
        see_table(tx, "lake.flights", queue=None, level=0, now=later)
        first = plan_table(None, lake.catalog, "lake.flights", later)
        offer(tx, "lake.flights", first.tasks, later)
    again = plan_table(database, lake.catalog, "lake.flights", later)
    assert again == first
    with database.begin() as tx:
        note_merged(tx, "lake.flights", [(TaskKind.MINOR, "")], later)
    waits = plan_table(database, lake.catalog, "lake.flights", later)
    assert (waits.tasks, waits.recheck_at) == ((), later + HOUR)


def test_a_partition_with_a_major_under_way_is_left_out(lake: Lake, database: Database) -> None:
    """Entirely; beside a minor, the files that came since are planned."""
    lake.table("lake.flights", BY_ORIGIN)
    now = utc_now()
    for origin in ("EWR", "JFK"):
        lake.append("lake.flights", 12, origin)
    with database.begin() as tx:
        see_table(tx, "lake.flights", queue=None, level=0, now=now)
        first = plan_table(None, lake.catalog, "lake.flights", now).tasks
        kinds = {"origin=EWR": TaskKind.MINOR, "origin=JFK": TaskKind.MAJOR}
        offer(tx, "lake.flights", [replace(one, kind=kinds[one.partition]) for one in first], now)
        tx.execute(sa.update(compaction_tasks).values(state="claimed"))
    for origin in ("EWR", "JFK"):
        lake.append("lake.flights", 12, origin)
    found = plan_table(database, lake.catalog, "lake.flights", now)
    assert [(task.partition, len(task.paths)) for task in found.tasks] == [("origin=EWR", 12)]
    (left,) = found.left_alone()
    assert (left.left, left.files) == (Left.HELD, 24)


@pytest.mark.parametrize(
    ("key", "value"),
    [("commit.manifest.target-size-bytes", "8MB"), ("write.summary.partition-limit", "x")],
)
def test_a_table_that_no_commit_could_change_is_refused(lake: Lake, key: str, value: str) -> None:
    """Else its merges would be made, and wait for a commit until a person corrects the property."""
    table = lake.table("lake.flights", files=6)
    with table.transaction() as change:
        change.set_properties({key: value})
    found = plan_table(None, lake.catalog, "lake.flights", utc_now(), forced=True)
    assert found.refused == f"{key}: got {value!r}, expected a whole number"
    assert found.tasks == ()


def test_partitions_have_the_names_of_their_paths(lake: Lake) -> None:
    """Days as days, nulls as null; what would not print or be mistaken is escaped."""
    name_of = partition_names(lake.table("lake.flights", BY_DAY_AND_ORIGIN))
    # 2013-01-01 is 43 years and 11 leap days after 1970-01-01: 15706 days.
    assert name_of(0, (15706, "JFK")) == "day=2013-01-01/origin=JFK"
    assert name_of(0, (None, None)) == "day=null/origin=null"
    # 9999-12-31 is day 2932896, and the last that Python has.
    assert name_of(0, (2932896, "JFK")) == "day=9999-12-31/origin=JFK"
    assert name_of(0, (2932897, "JFK")) == "day=2932897/origin=JFK"
    assert name_of(0, (0, "a/b=\0\ud800")) == "day=1970-01-01/origin=a%2Fb%3D%00%3F"
    long = name_of(0, (0, "x" * 5000))
    assert len(long) < 250
    assert long != name_of(0, (0, "x" * 5001))


def test_no_two_partitions_have_one_name(lake: Lake) -> None:
    """Neither a null and a text that looks like it, nor an escaped text and one that looks so."""
    name_of = partition_names(lake.table("lake.flights", BY_ORIGIN))
    texts = [None, "null", '"null"', "NULL", "a/b", "a%2Fb", "a%252Fb"]
    assert [name_of(0, (text,)) for text in texts] == [
        "origin=null", 'origin="null"', 'origin=""null""', "origin=NULL",
        "origin=a%2Fb", "origin=a%252Fb", "origin=a%25252Fb",
    ]  # fmt: skip


def test_partitions_of_two_specs_are_reported_apart(lake: Lake) -> None:
    """By days, by nothing, then by months under the name of the days, then by origins too."""
    table = lake.table("lake.flights", PartitionSpec(PartitionField(3, 1000, DayTransform(), "d")))
    with table.update_spec() as change:
        change.remove_field("d")
    with table.update_spec() as change:
        change.add_field("at", MonthTransform(), "d")
    with table.update_spec() as change:
        change.add_field("origin", IdentityTransform(), "o")
    name_of = partition_names(lake.catalog.load_table("lake.flights"))
    # Day 31 is the first of February 1970, and month 1 is February.
    names = [name_of(0, (31,)), name_of(1, ()), name_of(2, (1,)), name_of(3, (1, "JFK"))]
    assert names == ["spec 0: d=1970-02-01", "", "d=1970-02", "d=1970-02/o=JFK"]


def test_the_name_of_a_table_without_partitions_is_empty(lake: Lake) -> None:
    """There is nothing to tell apart."""
    assert partition_names(lake.table("lake.flights"))(0, ()) == ""


def test_a_moment_is_that_of_the_snapshot_or_of_the_next_one(lake: Lake) -> None:
    """Files of a snapshot that expired are no younger than the next one that is left."""
    lake.table("lake.flights", files=3)
    table = lake.catalog.load_table("lake.flights")
    first, second, third = table.metadata.snapshots
    assert [one.sequence_number for one in (first, second, third)] == [1, 2, 3]
    moments = moments_of(table)
    assert moments(2) == datetime.fromtimestamp(second.timestamp_ms / 1000, UTC)
    assert moments(0) is None
    assert moments(4) is None
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    moments = moments_of(lake.catalog.load_table("lake.flights"))
    assert moments(1) == datetime.fromtimestamp(second.timestamp_ms / 1000, UTC)


def test_rows_that_are_deleted_by_rewriting_leave_no_deletes(lake: Lake) -> None:
    """pyiceberg's own delete rewrites files; the plan sees only what is live."""
    lake.table("lake.flights", BY_ORIGIN)
    lake.append("lake.flights", 2, "JFK")
    lake.append("lake.flights", 2, "EWR")
    lake.catalog.load_table("lake.flights").delete(EqualTo("origin", "JFK"))
    found = plan_table(None, lake.catalog, "lake.flights", utc_now(), forced=True)
    assert [(task.partition, len(task.paths)) for task in found.tasks] == [("origin=EWR", 2)]
