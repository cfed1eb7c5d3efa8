"""The planner over a catalog: what it looks at, what it offers, what it does not repeat."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.planning import unchanged_tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner, mark_due
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.planning.table_planner import plan_loaded
from arctic_orchestration.compaction.queue.queues import CompactionQueue, add_queue, update_queue
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.lake import catalog_answers
from arctic_orchestration.state.compaction_tables import compaction_tasks
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import BY_ORIGIN, Lake
from arctic_orchestration_tests.compaction.planned_world import World
from arctic_orchestration_tests.compaction.stored import MERGE
from arctic_orchestration_tests.present import present

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@pytest.fixture
def world(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A catalog that is down is asked without pauses."""
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    return World(Lake.at(tmp_path / "lake"), database)


def test_tables_of_the_catalog_are_found_and_planned(world: World) -> None:
    """Each gets a row; what is worth merging is offered to the queue."""
    world.lake.table("lake.busy", files=12)
    world.lake.table("lake.quiet", files=1, level="3")
    counts = world.tick()
    assert (counts.tables, counts.looked, counts.planned, counts.offered) == (2, 2, 2, 1)
    assert world.waiting() == {"lake.busy": 12}
    assert world.row("lake.busy").looked_reason == "12 of 12 files in 1 task"
    assert world.row("lake.quiet").looked_reason == "nothing to merge in 1 file"
    assert world.row("lake.quiet").level == 3


@pytest.mark.parametrize("tells", [True, False])
def test_a_plan_is_not_made_twice(
    world: World, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while nothing has changed, whether it gained something or nothing.

    Metadata is not even read where the catalog tells of all tables at once where it is.
    """
    if not tells:
        monkeypatch.setattr(unchanged_tables, "metadata_locations", lambda _: None)
    world.lake.table("lake.busy", files=12)
    world.lake.table("lake.quiet", files=1)
    world.tick()
    assert world.tick(seconds=30).looked == 0
    counts = world.tick(seconds=31)
    expected = {"unchanged": 2} if tells else {"looked": 2}
    assert counts == PlanningCounts(tables=2, **expected)


def test_another_process_does_not_make_it_again_either(world: World) -> None:
    """Row and metadata say that nothing has changed since."""
    world.lake.table("lake.quiet", files=1)
    world.now += 5 * MINUTE
    world.tick()
    world.planner = Planner(world.database, world.lake.catalog)
    counts = world.tick(minutes=1)
    assert (counts.looked, counts.planned) == (1, 0)
    world.planner = Planner(world.database, world.lake.catalog)
    # The interval of minors may have passed for some files.
    assert world.tick(minutes=60).planned == 1


def test_a_new_snapshot_is_planned_when_the_table_is_looked_at(world: World) -> None:
    """The waiting task is replaced by the better plan."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    world.lake.append("lake.busy", 3)
    counts = world.tick(minutes=1)
    assert (counts.planned, counts.offered, counts.superseded) == (1, 1, 1)
    assert world.waiting() == {"lake.busy": 15}


def test_an_event_makes_it_due_at_once(world: World) -> None:
    """Nobody waits for the check interval."""
    world.lake.table("lake.busy", files=11)
    world.tick()
    world.lake.append("lake.busy")
    with world.database.begin() as tx:
        assert mark_due(tx, "lake.busy", "a commit", world.now)
    assert world.tick(seconds=1).offered == 1
    assert world.row("lake.busy").due_since is None


def test_changed_properties_are_planned_again(world: World) -> None:
    """There is no new snapshot, and yet another plan."""
    world.lake.table("lake.busy", files=5)
    world.tick()
    world.lake.set("lake.busy", minor__min_files="5")
    assert world.tick(minutes=1).offered == 1


def test_files_are_merged_when_they_have_waited_for_the_interval(world: World) -> None:
    """Nothing has changed but the time."""
    world.lake.table("lake.quiet", files=2)
    world.now = utc_now()
    assert world.tick().offered == 0
    assert world.tick(minutes=50).planned == 0
    assert world.tick(minutes=11).offered == 1


def test_a_full_queue_leaves_the_table_due(world: World) -> None:
    """It comes again, and gets its place once there is room."""
    with world.database.begin() as tx:
        update_queue(tx, "default", capacity=1)
    world.lake.table("lake.busy", BY_ORIGIN)
    world.lake.append("lake.busy", 12, "JFK")
    world.lake.append("lake.busy", 12, "EWR")
    counts = world.tick()
    assert (counts.offered, counts.blocked) == (1, 1)
    row = world.row("lake.busy")
    assert row.due_since == world.now
    assert row.due_reason == "24 of 24 files in 2 tasks, 1 task without room in queue default"
    assert world.tick(seconds=30).looked == 0
    with world.database.begin() as tx:
        update_queue(tx, "default", capacity=2)
    counts = world.tick(seconds=30)
    assert (counts.kept, counts.offered, counts.blocked) == (1, 1, 0)
    assert world.row("lake.busy").due_since is None


def test_a_queue_that_is_not_there_falls_back_to_default(world: World) -> None:
    """The row says so; once the queue is added, the table goes there with its tasks."""
    world.lake.table("lake.busy", files=12, queue="urgent")
    world.tick()
    assert world.row("lake.busy").queue == "default"
    assert "urgent" in world.row("lake.busy").queue_reason
    with world.database.begin() as tx:
        add_queue(tx, CompactionQueue(name="urgent"), world.now)
    world.tick(minutes=1)
    assert world.row("lake.busy").queue == "urgent"
    assert [task.queue for task in world.tasks(TaskState.PLANNED)] == ["urgent"]


def test_a_table_that_is_disabled_has_its_waiting_tasks_canceled(world: World) -> None:
    """And is planned again when it is enabled."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    world.lake.set("lake.busy", enabled="false")
    assert world.tick(minutes=1).refused == 1
    (task,) = world.tasks()
    assert task.state is TaskState.CANCELED
    assert task.reason == "not compacted: arctic.compaction.enabled is false"
    assert world.row("lake.busy").refused == "arctic.compaction.enabled is false"
    assert world.tick(minutes=1).refused == 0
    world.lake.set("lake.busy", enabled="true")
    assert world.tick(minutes=1).offered == 1
    assert world.row("lake.busy").refused is None


def test_an_invalid_property_is_reported_in_the_row(world: World) -> None:
    """Other tables go on; once it is mended, the table is planned."""
    world.lake.table("lake.bad", files=12, max_files="many")
    world.lake.table("lake.good", files=12)
    counts = world.tick()
    assert (counts.refused, counts.offered) == (1, 1)
    assert world.row("lake.bad").refused == (
        "arctic.compaction.max-files of lake.bad: got 'many', expected a whole number, 2 to 1000000"
    )
    world.lake.set("lake.bad", max_files="1000")
    assert world.tick(minutes=1).offered == 1
    assert world.row("lake.bad").refused is None


def test_a_table_that_is_dropped_is_gone_and_comes_back(world: World) -> None:
    """Its waiting tasks are canceled; a new one of the name is planned as any other."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    world.lake.catalog.drop_table("lake.busy")
    world.tick(minutes=1)
    assert world.row("lake.busy").gone_at == world.now
    assert [task.state for task in world.tasks()] == [TaskState.CANCELED]
    world.lake.table("lake.busy", files=13)
    assert world.tick(minutes=5).offered == 1
    assert world.row("lake.busy").gone_at is None


def test_one_table_that_does_not_answer_does_not_stop_the_others(world: World) -> None:
    """It is tried later, later each time; the row says why, until it answers."""
    world.lake.table("lake.a", files=12)
    world.lake.table("lake.b", files=12)
    world.tick()
    world.lake.append("lake.a")
    world.lake.append("lake.b")
    world.lake.catalog.down_for = frozenset({"lake.a"})
    counts = world.tick(minutes=1)
    assert (counts.troubled, counts.planned) == (1, 1)
    row = world.row("lake.a")
    assert row.due_since == world.now
    assert row.looked_reason is not None
    assert "the catalog did not answer" in row.looked_reason
    assert "connection refused" in row.looked_reason
    assert world.tick(seconds=29).troubled == 0
    assert world.tick(seconds=1).troubled == 1
    assert world.tick(seconds=59).troubled == 0
    world.lake.catalog.down_for = frozenset()
    assert world.tick(seconds=1).offered == 1
    assert world.waiting() == {"lake.a": 13, "lake.b": 13}
    assert world.row("lake.a").looked_reason == "13 of 13 files in 1 task"


def test_a_catalog_that_is_down_is_reported_for_every_table(world: World) -> None:
    """No task is taken back; when it answers again, planning goes on."""
    world.lake.table("lake.a", files=12)
    world.lake.table("lake.b", files=12)
    world.tick()
    world.lake.catalog.down = True
    assert world.tick(minutes=5).troubled == 2
    assert world.tick(seconds=30).troubled == 2
    for name in ("lake.a", "lake.b"):
        assert "the catalog did not answer" in str(world.row(name).looked_reason)
    world.lake.catalog.down = False
    counts = world.tick(minutes=1)
    assert (counts.planned, counts.kept, counts.offered) == (2, 2, 0)


def test_a_table_that_rests_is_not_planned(world: World) -> None:
    """Until the rest is over; then it is, though nothing else has changed."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    with world.database.begin() as tx:
        tables.lock_table(tx, "lake.busy")
        until = tables.rest(tx, "lake.busy", "its task is in quarantine", world.now)
        tables.cancel_waiting(tx, "lake.busy", "for the test", world.now)
    assert until > world.now
    world.lake.append("lake.busy")
    assert world.tick(minutes=1).looked == 0
    world.now = until
    assert world.tick().offered == 1


def give_up(world: World) -> None:
    """The first task that can be claimed fails as often as it may."""
    with world.database.begin() as tx:
        claim = attempts.claim(tx, [], "w")
        assert claim is not None
        for _ in range(claim.task.max_attempts):
            attempts.failed(tx, claim.attempt_id, claim.token, "a page is broken")
            tx.execute(
                sa.update(compaction_tasks).values(not_before=world.now - DAY)
                .where(compaction_tasks.c.state == "failed")
            )  # fmt: skip
            claim = attempts.claim(tx, [], "w", table=claim.task.table) or claim


def test_files_that_were_in_quarantine_rest_and_the_others_go_on(world: World) -> None:
    """For ten minutes, then for twenty; files that come meanwhile are planned and committed."""
    world.lake.table("lake.busy", files=12, attempts="1", minor__min_files="3")
    world.tick()
    give_up(world)
    assert [task.state for task in world.tasks()] == [TaskState.QUARANTINED]
    world.lake.append("lake.busy", 3)
    assert world.tick(minutes=2).offered == 1
    assert world.waiting() == {"lake.busy": 3}
    with world.database.begin() as tx:
        claim = present(attempts.claim(tx, [], "w"))
        attempts.merged(tx, claim.attempt_id, claim.token, **MERGE)
        commits.committed(tx, [claim.task.id], 7)
        tables.make_due(tx, "lake.busy", "a commit", world.now)
    # The commit was of other files.
    assert (world.tick(minutes=2).planned, world.waiting()) == (1, {"lake.busy": 3})
    with world.database.begin() as tx:
        tables.lock_table(tx, "lake.busy")
        tables.cancel_waiting(tx, "lake.busy", "for the test", world.now)
        tables.make_due(tx, "lake.busy", "for the test", world.now)
    until = world.now + 10 * MINUTE
    world.now = until
    assert world.tick().offered == 1
    assert world.waiting() == {"lake.busy": 15}


def test_another_process_plans_when_a_rest_is_over(world: World) -> None:
    """Nothing else has changed since the last look."""
    world.lake.table("lake.busy", files=12, attempts="1")
    world.tick()
    give_up(world)
    assert world.tick(minutes=2).offered == 0
    world.planner = Planner(world.database, world.lake.catalog)
    assert world.tick(minutes=1).planned == 0
    world.planner = Planner(world.database, world.lake.catalog)
    assert world.tick(minutes=9).offered == 1


def test_tasks_that_end_make_another_plan_possible(world: World) -> None:
    """They were canceled, and the table has not changed."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    with world.database.begin() as tx:
        tables.lock_table(tx, "lake.busy")
        tables.cancel_waiting(tx, "lake.busy", "a person said so", world.now)
    assert world.tick(minutes=1).offered == 1


def test_a_task_that_failed_keeps_its_files_and_failures(world: World) -> None:
    """Files that came since are another task's."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    (task,) = world.tasks()
    with world.database.begin() as tx:
        tx.execute(sa.update(compaction_tasks).values(state="failed", attempts=2))
    world.lake.append("lake.busy", 12)
    counts = world.tick(minutes=1)
    assert (counts.kept, counts.offered, counts.superseded) == (1, 1, 0)
    kept, new = world.tasks(TaskState.FAILED) + world.tasks(TaskState.PLANNED)
    assert (kept.id, kept.attempts, kept.files) == (task.id, 2, 12)
    assert new.files == 12


def test_a_task_is_tried_as_the_properties_say(world: World) -> None:
    world.lake.table("lake.busy", files=12, retry_interval="7m", attempts="2")
    world.tick()
    (task,) = world.tasks()
    assert (task.retry_seconds, task.max_attempts) == (420, 2)


def test_files_that_a_worker_has_are_left_to_it(world: World) -> None:
    """The task goes on, and the new files are planned beside it."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    with world.database.begin() as tx:
        tx.execute(sa.update(compaction_tasks).values(state="claimed"))
    world.lake.append("lake.busy", 12)
    counts = world.tick(minutes=1)
    assert (counts.offered, counts.superseded) == (1, 0)
    assert [task.files for task in world.tasks(TaskState.PLANNED)] == [12]


def test_a_tick_ends_in_time_and_the_next_one_goes_on(world: World) -> None:
    """Every table has its turn, however short the ticks are."""
    for name in ("lake.a", "lake.b", "lake.c"):
        world.lake.table(name, files=12)
    counts = world.planner.tick(world.now, at_most=timedelta(0))
    assert (counts.looked, counts.postponed) == (0, 3)
    assert world.tick().offered == 3


def test_two_planners_offer_each_file_once(world: World) -> None:
    """The second finds the plan of the first, and keeps its tasks."""
    world.lake.table("lake.busy", files=12)
    other = Planner(world.database, world.lake.catalog)
    world.tick()
    counts = other.tick(world.now)
    assert (counts.offered, counts.kept) == (0, 1)
    assert len(world.tasks()) == 1


def test_a_plan_that_came_too_late_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another planner was in between: the table is looked at again by the next tick."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    world.lake.append("lake.busy")
    other = Planner(world.database, world.lake.catalog)
    from arctic_orchestration.compaction.planning import catalog_planner

    def slowly(*args: Any) -> Any:
        monkeypatch.setattr(catalog_planner, "plan_loaded", plan_loaded)
        other.tick(world.now)
        return plan_loaded(*args)

    monkeypatch.setattr(catalog_planner, "plan_loaded", slowly)
    counts = world.tick(minutes=1)
    assert (counts.planned, counts.offered, counts.kept) == (1, 0, 0)
    assert world.waiting() == {"lake.busy": 13}
    assert world.tick().offered == 0


def test_a_clock_that_is_set_back_is_no_trouble(world: World) -> None:
    """The tables are there, and are looked at."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    counts = world.planner.tick(world.now - DAY)
    assert (counts.tables, counts.troubled) == (1, 0)
    assert world.waiting() == {"lake.busy": 12}
