"""What becomes of the tasks of a table that is dropped, and of a new table of its name."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.commit.cleaner import clean
from arctic_orchestration.compaction.commit.committer import Committer, _replacement
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.merged_tasks import merged
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.present import present


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(Lake.at(tmp_path / "lake"), database)


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_is_given_back_after_its_table_was_dropped_is_canceled(
    world: World, fails: bool
) -> None:
    """Or fails; else workers would claim it and give it back without end."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    with world.database.begin() as tx:
        claim = present(attempts.claim(tx, [], "w"))
    world.lake.catalog.drop_table("lake.busy")
    world.tick(minutes=3)
    gone_at = world.now
    assert [task.state for task in world.tasks()] == [TaskState.CLAIMED]
    report = attempts.failed if fails else attempts.release
    with world.database.begin() as tx:
        report(tx, claim.attempt_id, claim.token, reason="no table lake.busy")
    world.tick(minutes=3)
    (task,) = world.tasks()
    assert task.state is TaskState.CANCELED
    assert task.reason == "the catalog has the table no more"
    assert world.row("lake.busy").gone_at == gone_at


def test_a_new_table_of_the_name_does_not_rest_for_the_one_before(world: World) -> None:
    """Nor does its first commit wait for the interval of that one, nor has it that one's error."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    with world.database.begin() as tx:
        claim = present(attempts.claim(tx, [], "w"))
        attempts.failed(tx, claim.attempt_id, claim.token, "a column", final=True)
        later = world.now + timedelta(days=1)
        tables.update(tx, "lake.busy", next_commit_at=later, commit_trouble="no answer")
    assert world.row("lake.busy").rest_reason == f"task {claim.task.id} is in quarantine: a column"
    world.lake.catalog.drop_table("lake.busy")
    world.tick(minutes=3)
    world.lake.table("lake.busy", files=13)
    assert world.tick(minutes=3).offered == 1
    row = world.row("lake.busy")
    assert (row.gone_at, row.rests_until, row.rest_reason, row.failures) == (None, None, None, 0)
    assert (row.next_commit_at, row.commit_trouble) == (None, None)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_that_comes_back_as_it_was_is_planned_again(world: World, restarts: bool) -> None:
    """Its waiting tasks were canceled, and neither a snapshot nor an interval makes new ones."""
    world.lake.table("lake.busy", files=12, minor__interval="never", major__interval="never")
    world.tick(minutes=10)
    world.lake.catalog.rename_table("lake.busy", "lake.x")
    world.tick(minutes=3)
    assert world.waiting() == {"lake.x": 12}
    world.lake.catalog.rename_table("lake.x", "lake.busy")
    if restarts:
        world.planner = Planner(world.database, world.lake.catalog)
    assert world.tick(minutes=3).offered == 1
    assert world.waiting() == {"lake.busy": 12}


@pytest.mark.parametrize("other", ["none", "late", "at once"])
def test_outputs_of_a_renamed_table_are_not_removed(
    state: Database, catalog: Catalog, other: str
) -> None:
    """A committer that died after its commit had published them; another table takes the name."""
    table = table_of(catalog, files=6)
    before = rows_of(table)
    merged(state, catalog, table)
    with state.read() as tx:
        tasks = commits.merged_tasks(tx, "lake.words")
    assert len(replace_files(table, list(map(_replacement, tasks))).committed) == 3
    catalog.rename_table("lake.words", "lake.old")
    if other == "at once":
        table_of(catalog, files=4)
    assert Committer(state, catalog).tick().conflicts == 3
    if other == "late":
        table_of(catalog, files=4)
    clean(state, catalog, grace=timedelta(days=-1))
    assert rows_of(catalog.load_table("lake.old")) == before
    with state.read() as tx:
        kept = [attempt_lookup.attempts_of(tx, task.task.id)[0].kept_reason for task in tasks]
    assert kept == ["the table of the task was renamed or dropped, and may have them"] * 3
