"""All files of a partition are rewritten, on request or when it has changed for an interval."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.planning.planner import plan
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState, Retried
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import LIVE, TaskKind, TaskState
from arctic_orchestration.compaction.run_once import compact_now
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.output_paths import directory_of
from arctic_orchestration.lake.file_groups import LiveFile
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_files import (
    MB,
    data_file,
    data_files,
    delete_file,
    merged,
    snapshot,
)
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    add_file,
    lake_in,
    rows_of,
    table_of,
)

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
WEEK = timedelta(days=7)
POLICY = Policy.of(
    {"arctic.compaction.target-size": "100MB", "arctic.compaction.full.interval": "7d"}, "t"
)
REQUESTED = PlanState(forced=True, full=True)


def paths(files: list[LiveFile], state: PlanState, now: datetime = NOW) -> list[list[str]]:
    """The files of each task of a full rewrite; nothing else is planned."""
    found = plan(snapshot(files), POLICY, state, now)
    assert {task.kind for task in found.tasks} <= {TaskKind.FULL}
    return [sorted(task.paths) for task in found.tasks]


def test_a_requested_rewrite_takes_all_files() -> None:
    """Done ones, a file alone, one with deletes; an oversized one is split, one too large stays."""
    files = [
        data_file("a", 90 * MB),
        data_file("b", 95 * MB, deletes=[delete_file("d")]),
        *data_files(2, 5 * MB, "small"),
        data_file("over", 250 * MB),
        data_file("huge", 500 * MB),
        data_file("other", 100 * MB, partition=("x",)),
    ]
    assert sorted(paths(files, REQUESTED)) == [
        ["a", "small0000", "small0001"], ["b"], ["other"], ["over"]
    ]  # fmt: skip
    # The control: what can be improved has no file that is done.
    forced = plan(snapshot(files), POLICY, PlanState(forced=True), NOW)
    assert {path for task in forced.tasks for path in task.paths} == {
        *("b", "small0000", "small0001", "over")
    }


def test_a_partition_waits_for_the_interval_after_it_has_changed() -> None:
    """From its first file, or from the last rewrite if that was later; unchanged ones never do."""
    files = [data_file("a", 90 * MB, sequence=3), data_file("b", 95 * MB, sequence=5)]
    written = {3: NOW - WEEK, 5: NOW, 8: NOW}
    state = PlanState(written_at=written.get)
    assert paths(files, state, NOW - timedelta(seconds=1)) == []
    assert sorted(paths(files, state)) == [["a"], ["b"]]
    early = plan(snapshot(files), POLICY, state, NOW - timedelta(hours=1))
    assert early.recheck_at == NOW
    last = NOW + timedelta(hours=1)
    done = replace(state, merged_at={(TaskKind.FULL, ""): last}, rewritten={"": 5})
    assert paths(files, done, last + 10 * WEEK) == []
    changed = [*files, data_file("c", 90 * MB, sequence=8)]
    assert paths(changed, done, last + WEEK - timedelta(seconds=1)) == []
    assert sorted(paths(changed, done, last + WEEK)) == [["a"], ["b"], ["c"]]
    deleted = [replace(files[0], deletes=(delete_file("d", sequence=8),)), files[1]]
    assert sorted(paths(deleted, done, last + WEEK)) == [["a"], ["b"]]


def test_a_rewrite_ends() -> None:
    """Its outputs have the sequence number that was planned from, and are no change."""
    live = snapshot([*data_files(3, 95 * MB), *data_files(5, 10 * MB, "small")], 9)
    state = PlanState(written_at=lambda _: NOW - WEEK)
    found = plan(live, POLICY, state, NOW)
    assert sum(len(task.paths) for task in found.tasks) == 8
    after = merged(live, found.tasks, POLICY.target_size, lambda: 1.0)
    state = replace(state, merged_at={(TaskKind.FULL, ""): NOW}, rewritten={"": 9})
    assert plan(after, POLICY, state, NOW + 2 * WEEK).tasks == ()


def test_tasks_of_a_rewrite_stay_when_the_others_are_committed() -> None:
    """Though their partition is not due any more; files of a task that is gone are free."""
    files = [data_file("a", 90 * MB), data_file("b", 95 * MB)]
    rest = Retried(kind=TaskKind.FULL, reason="it was due", paths=frozenset({"b"}))
    gone = replace(rest, paths=frozenset({"b", "lost"}))
    state = PlanState(
        written_at=lambda _: NOW, merged_at={(TaskKind.FULL, ""): NOW}, rewritten={"": 9}
    )
    assert paths(files, replace(state, retried=(rest,))) == [["b"]]
    assert paths(files, replace(state, retried=(gone,))) == []
    # Nor do they stay when the table does not request rewrites any more; failed ones do.
    never = replace(POLICY, full_interval=None)
    waits = replace(rest, is_rest=True)
    for one, expected in ((rest, 1), (waits, 0)):
        found = plan(snapshot(files), never, replace(state, retried=(one,)), NOW)
        assert len(found.tasks) == expected


@pytest.fixture
def world(database: Database) -> Iterator[Database]:
    with closing(database):
        yield database


def test_a_table_is_rewritten_part_by_part_until_all_of_it_is(
    world: Database, tmp_path: Path
) -> None:
    """By the planner, with merges and commits; it is not done again until the table changes."""
    catalog = lake_in(tmp_path / "lake")
    settings = {
        "max-files": "2",
        "full.interval": "1h",
        "commit-interval": "0s",
        "minor.interval": "never",
        "major.interval": "never",
    }
    table = table_of(catalog, "lake.a", 5)
    with table.transaction() as change:
        change.set_properties({f"arctic.compaction.{key}": v for key, v in settings.items()})
    expected = rows_of(table)
    planner, committer = Planner(world, catalog), Committer(world, catalog)
    now = utc_now()
    assert planner.tick(now).offered == 0
    now += timedelta(hours=2)
    assert planner.tick(now).offered == 3
    sizes = []
    for _ in range(3):
        with world.begin() as tx:
            claim = attempts.claim(tx, [], "w")
            assert claim is not None
            assert claim.task.kind is TaskKind.FULL
            sizes.append(claim.task.files)
            place = directory_of(table, claim.directory)
            attempts.writes_to(tx, claim.attempt_id, claim.token, place)
        done = Merging()(table, claim.group, place, target_bytes=10**8)
        with world.begin() as tx:
            attempts.merged(
                tx, claim.attempt_id, claim.token,
                outputs=done.outputs, rows_in=done.rows_in, rows_deleted=0,
                rows_out=done.rows_out, way="decode", because="it is a test",
            )  # fmt: skip
        committer.tick()
        # A commit makes the table due: what waits must not be replaced by a plan without it.
        now += timedelta(minutes=2)
        planner.tick(now)
    # A file alone, too.
    assert sorted(sizes) == [1, 2, 2]
    with world.read() as tx:
        states = [task.state for task in task_store.tasks(tx)]
        assert task_store.tasks(tx, states=LIVE) == []
    assert states == 3 * [TaskState.COMMITTED]
    assert rows_of(table) == expected
    assert len(live_files(table.refresh()).files) == 3
    assert planner.tick(now + timedelta(days=2)).offered == 0
    add_file(table, 9)
    now = utc_now() + timedelta(days=3)
    assert planner.tick(now).offered == 2


def test_another_process_rewrites_when_the_interval_has_passed(
    world: Database, tmp_path: Path
) -> None:
    """It has not planned the table, and no other interval makes it do so."""
    catalog = lake_in(tmp_path / "lake")
    settings = {"full.interval": "7d", "minor.interval": "never", "major.interval": "never"}
    properties = {f"arctic.compaction.{name}": value for name, value in settings.items()}
    table_of(catalog, "lake.a", 2, **properties)
    now = utc_now() + timedelta(minutes=5)
    assert Planner(world, catalog).tick(now).planned == 1
    now += timedelta(days=6)
    assert Planner(world, catalog).tick(now).planned == 0
    now += timedelta(days=1)
    assert Planner(world, catalog).tick(now).offered == 1


@pytest.mark.parametrize("was_seen", [False, True])
def test_a_table_that_was_made_again_is_rewritten(
    world: Database, tmp_path: Path, was_seen: bool
) -> None:
    """Its sequence numbers begin again; the planner has seen that it was gone, or has not."""
    catalog = lake_in(tmp_path / "lake")
    settings = {"full.interval": "7d", "minor.interval": "never", "major.interval": "never"}
    properties = {f"arctic.compaction.{name}": value for name, value in settings.items()}
    table_of(catalog, "lake.a", 3, **properties)
    planner, now = Planner(world, catalog), utc_now()
    assert len(compact_now(world, catalog, Merging(), "lake.a", now, full=True).records) == 1
    catalog.drop_table("lake.a")
    table = table_of(catalog, "lake.a", 0, **properties)
    if was_seen:
        catalog.drop_table("lake.a")
        planner.discover()
        planner.tick(now)
        table = table_of(catalog, "lake.a", 0, **properties)
    for number in range(2):
        add_file(table, number)
    for number in range(3 if was_seen else 0):
        # It gets more snapshots than the last one had, and no files.
        add_file(table, number, rows=0)
    assert len(live_files(table.refresh()).files) == 2
    now = utc_now() + timedelta(minutes=10)
    assert planner.tick(now).offered == 0
    assert planner.tick(now + WEEK).offered == 1


def test_a_sorted_rewrite_takes_as_much_at_once_as_a_task_may() -> None:
    """The files of one task have disjoint ranges; without a property each is rewritten alone."""
    files = data_files(8, 90 * MB)
    names = [file.path for file in files]
    assert sorted(paths(files, REQUESTED)) == [[name] for name in names]
    properties = {"target-size": "100MB", "max-task-size": "400MB", "sort": "origin"}
    policy = Policy.of({f"arctic.compaction.{key}": one for key, one in properties.items()}, "t")
    found = plan(snapshot(files), policy, REQUESTED, NOW)
    # Four of 90 MB are 360 MB, and a fifth has no room.
    assert sorted(sorted(task.paths) for task in found.tasks) == [names[:4], names[4:]]
    assert {task.gain for task in found.tasks} == {"4 files → 4, 360.0 MB"}


def test_a_person_rewrites_a_table_at_once(world: Database, tmp_path: Path) -> None:
    """``run --full``: all files are new ones; without the option nothing is to be done."""
    catalog = lake_in(tmp_path / "lake")
    table = table_of(catalog, "lake.a", 1)
    expected, before = rows_of(table), [file.path for file in live_files(table).files]
    nothing = compact_now(world, catalog, Merging(), "lake.a", utc_now(), force=True)
    assert nothing.plan.tasks == ()
    result = compact_now(world, catalog, Merging(), "lake.a", utc_now(), full=True)
    assert (result.trouble, result.left) == (None, ())
    (record,) = result.records
    assert (record.files_in, record.files_out) == (1, 1)
    assert rows_of(table) == expected
    assert [file.path for file in live_files(table.refresh()).files] != before
