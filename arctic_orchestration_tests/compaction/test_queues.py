"""Queues of merge tasks: their numbers, their tables, and what keeps them from being deleted."""

import threading
from typing import Any

import pytest

from arctic_orchestration.compaction.queue import queues, table_queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue, QueueState
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import table_by_name, table_gone
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MERGE, MINUTE, NOON, planned, seen
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock


def test_the_queue_default_is_always_there(database: Database) -> None:
    """In a new database; it can be changed, not deleted, not added again."""
    with database.begin() as tx:
        assert queues.queues(tx) == [CompactionQueue(name="default")]
        queues.update_queue(tx, "default", capacity=5)
        assert queues.queue_by_name(tx, "default").capacity == 5
        with pytest.raises(InvalidInput, match="name: got 'default', expected another queue"):
            queues.delete_queue(tx, "default")
        with pytest.raises(InvalidInput, match="a name that no compaction queue has yet"):
            queues.add_queue(tx, CompactionQueue(name="default"), NOON)


def test_queues_are_listed_by_level_then_name(database: Database) -> None:
    """Added, changed one number at a time, deleted."""
    with database.begin() as tx:
        for name, level in (("b", 0), ("a", 0), ("z", 3)):
            queues.add_queue(tx, CompactionQueue(name=name, level=level), NOON)
        assert [queue.name for queue in queues.queues(tx)] == ["z", "a", "b", "default"]
        changed = queues.update_queue(tx, "a", level=4, share=2, max_workers=0)
        assert changed == CompactionQueue(name="a", level=4, share=2, max_workers=0)
        assert queues.queue_by_name(tx, "a") == changed
        queues.delete_queue(tx, "z")
        assert [queue.name for queue in queues.queues(tx)] == ["a", "b", "default"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"capacity": 0}, "capacity: got 0, expected a whole number, 1 to 1000000000"),
        ({"capacity": -3}, "capacity: got -3"),
        ({"capacity": 2**40}, "capacity: got 1099511627776"),
        ({"capacity": 1.5}, "capacity: got 1.5, expected a whole number"),
        ({"capacity": True}, "capacity: got True, expected a whole number"),
        ({"share": 0}, "share: got 0, expected a whole number, 1 to"),
        ({"level": 1001}, "level: got 1001, expected a whole number, -1000 to 1000"),
        ({"max_workers": -1}, "max_workers: got -1, expected a whole number, 0 to"),
        ({"min_workers": 2}, "min_workers: got 2, expected at most max_workers, 1"),
        ({"min_workers": -1}, "min_workers: got -1, expected a whole number, 0 to"),
        ({"application": {"master": "yarn"}}, "application: got 'master=yarn', expected properti"),
        ({"name": ""}, "name: got '', expected a name of 1 to 40"),
        ({"name": "a b"}, "name: got 'a b', expected a name of 1 to 40"),
        ({"name": "-a"}, "name: got '-a'"),
        ({"name": "a" * 41}, "expected a name of 1 to 40"),
        ({"name": None}, "name: got None"),
    ],
)
def test_bad_numbers_and_names_change_nothing(
    database: Database, values: dict[str, Any], message: str
) -> None:
    """Adding and changing name the field, the value and what was expected."""
    with database.begin() as tx:
        with pytest.raises(InvalidInput) as refused:
            queues.add_queue(tx, CompactionQueue(**{"name": "q", **values}), NOON)
        assert str(refused.value).startswith(message) or message in str(refused.value)
        if "name" not in values:
            with pytest.raises(InvalidInput):
                queues.update_queue(tx, "default", **values)
        assert queues.queues(tx) == [CompactionQueue(name="default")]


def test_an_unknown_queue_is_refused_with_the_names_of_those_there_are(database: Database) -> None:
    """Changing, deleting, mapping to it."""
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), NOON)
        seen(tx, "lake.a")
        expected = "no compaction queue other; there is: default, own"
        with pytest.raises(NotFound, match=expected):
            queues.update_queue(tx, "other", level=1)
        with pytest.raises(NotFound, match=expected):
            queues.delete_queue(tx, "other")
        with pytest.raises(NotFound, match=expected):
            table_queues.map_table(tx, "lake.a", "other", NOON)
        with pytest.raises(NotFound, match=r"knows no table lake\.b; it knows: lake\.a"):
            table_queues.map_table(tx, "lake.b", "own", NOON)
        assert table_by_name(tx, "lake.a").queue == "default"


def test_a_table_goes_where_a_person_says_else_its_property_else_to_default(
    database: Database,
) -> None:
    """A queue that a property names and that is not there: default, and the reason says so."""
    with database.begin() as tx:
        for name in ("own", "hand"):
            queues.add_queue(tx, CompactionQueue(name=name), NOON)
        for queue, found in ((None, "default"), ("own", "own")):
            seen(tx, "lake.a", queue=queue)
            row = table_by_name(tx, "lake.a")
            named = "no queue is named" if queue is None else "named by the table's property"
            assert (row.queue, row.queue_reason) == (found, named)
        seen(tx, "lake.a", queue="missing")
        row = table_by_name(tx, "lake.a")
        assert row.queue == "default"
        assert row.queue_reason == "the table's property names queue missing, which does not exist"
        table_queues.map_table(tx, "lake.a", "hand", NOON)
        seen(tx, "lake.a", queue="own")
        row = table_by_name(tx, "lake.a")
        assert (row.queue, row.queue_reason) == ("hand", "mapped manually")
        table_queues.unmap_table(tx, "lake.a", NOON)
        row = table_by_name(tx, "lake.a")
        assert (row.queue, row.queue_reason) == ("own", "named by the table's property")
        queues.add_queue(tx, CompactionQueue(name="missing"), NOON)
        seen(tx, "lake.a", queue="missing")
        assert table_by_name(tx, "lake.a").queue == "missing"
        seen(tx, "lake.a", level=7)
        assert (table_by_name(tx, "lake.a").queue, table_by_name(tx, "lake.a").level) == (
            "default",
            7,
        )


def test_mapping_moves_waiting_tasks_only(database: Database) -> None:
    """What is claimed or merged ends where it is; what failed moves; a line of history says so."""
    clock = Clock()
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), NOON)
        seen(tx, "lake.a")
        seen(tx, "lake.b")
        offer(tx, "lake.b", [planned("other")], NOON)
        plan = [planned(f"{n}1", f"{n}2", small_files=9 - n) for n in range(4)]
        merged, failed, claimed, waiting = offer(tx, "lake.a", plan, NOON).taken
        claims = [
            attempts.claim(tx, ["default"], "w", table="lake.a", time=clock) for _ in range(3)
        ]
        assert [claim.task.id for claim in claims if claim] == [merged, failed, claimed]
        report = {**MERGE, "outputs": [], "rows_in": 0, "rows_deleted": 0, "rows_out": 0}
        attempts.merged(tx, present(claims[0]).attempt_id, 1, **report, time=clock)
        attempts.failed(tx, present(claims[1]).attempt_id, 1, "disk full", time=clock)
        assert table_queues.map_table(tx, "lake.a", "own", NOON + MINUTE) == 2
        places = {task.id: task.queue for task in task_store.tasks(tx, table="lake.a")}
        assert places == {merged: "default", failed: "own", claimed: "default", waiting: "own"}
        assert [task.queue for task in task_store.tasks(tx, table="lake.b")] == ["default"]
        move = task_store.history(tx, waiting)[-1]
        assert (move.before, move.state) == (TaskState.PLANNED, TaskState.PLANNED)
        assert move.reason == "moved from queue default to queue own: mapped manually"
        assert table_queues.map_table(tx, "lake.a", "own", NOON) == 0
        counts = {found.queue.name: found for found in queues.counted(tx)}
        assert counts["own"].states == {TaskState.FAILED: 1, TaskState.PLANNED: 1}
        assert (counts["own"].live, counts["own"].room, counts["own"].tables) == (2, 998, 1)
        assert counts["default"].live == 3
        assert present(attempts.claim(tx, ["own"], "w", time=clock)).task.id == waiting


def test_what_waits_again_does_so_in_the_queue_that_its_table_has_by_then(
    database: Database,
) -> None:
    """Given back, failed, lost: it was claimed from the queue that the table has left."""
    clock = Clock()
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), NOON)
        seen(tx, "lake.a")
        offer(tx, "lake.a", [planned(f"{n}") for n in range(3)], NOON)
        given_back, failed, lost = (
            present(attempts.claim(tx, ["default"], "w", time=clock)) for _ in range(3)
        )
        assert table_queues.map_table(tx, "lake.a", "own", NOON) == 0
        attempts.release(tx, given_back.attempt_id, 1, time=clock)
        attempts.failed(tx, failed.attempt_id, 1, "disk full", time=clock)
        clock.passes(minutes=1)
        assert attempts.expire(tx, time=clock) == 1
        tasks = task_store.tasks(tx)
        assert {(task.state, task.queue) for task in tasks} == {
            (TaskState.PLANNED, "own"),
            (TaskState.FAILED, "own"),
        }
        clock.passes(minutes=5)
        assert attempts.claim(tx, ["default"], "w", time=clock) is None
        claimed = {present(attempts.claim(tx, ["own"], "w", time=clock)).task.id for _ in range(3)}
    assert claimed == {given_back.task.id, failed.task.id, lost.task.id}


def test_who_gives_a_task_back_waits_for_who_maps_its_table(database: Database) -> None:
    """Else it would see the queue of before, and the other one no task that waits."""
    clock = Clock()
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), NOON)
        seen(tx, "lake.a")
        offer(tx, "lake.a", [planned("a")], NOON)
        claim = present(attempts.claim(tx, [], "w", time=clock))

    def give_back() -> None:
        with database.begin() as tx:
            attempts.release(tx, claim.attempt_id, claim.token, time=clock)

    thread = threading.Thread(target=give_back)
    with database.begin() as tx:
        table_queues.map_table(tx, "lake.a", "own", NOON)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()
    with database.begin() as tx:
        assert [task.queue for task in task_store.tasks(tx)] == ["own"]


def test_a_queue_with_tables_or_tasks_is_not_deleted(database: Database) -> None:
    """The message says which; what ended does not count."""
    clock = Clock()
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), NOON)
        seen(tx, "lake.a")
        table_queues.map_table(tx, "lake.a", "own", NOON)
        with pytest.raises(InvalidInput, match=r"without tables; mapped to it: lake\.a"):
            queues.delete_queue(tx, "own")
        offer(tx, "lake.a", [planned("a", "b"), planned("c", "d")], NOON)
        claim = present(attempts.claim(tx, ["own"], "w", time=clock))
        table_queues.unmap_table(tx, "lake.a", NOON)
        with pytest.raises(InvalidInput, match="without live tasks; it has: 1 claimed"):
            queues.delete_queue(tx, "own")
        attempts.failed(tx, claim.attempt_id, claim.token, "broken", final=True, time=clock)
        queues.delete_queue(tx, "own")
        assert task_store.task_by_id(tx, claim.task.id).queue == "own"
        table_gone(tx, "lake.a", NOON)


def test_who_maps_to_a_queue_that_is_being_deleted_waits_and_then_is_refused(
    database: Database,
) -> None:
    """Or the deletion is: never is a table left in a queue that is gone."""
    outcomes: list[str] = []

    def attempt(what: str, run: Any) -> None:
        try:
            with database.begin() as tx:
                run(tx)
            outcomes.append(what)
        except (InvalidInput, NotFound):
            pass

    with database.begin() as tx:
        seen(tx, "lake.a")
    for number in range(10):
        name = f"q{number}"
        with database.begin() as tx:
            queues.add_queue(tx, CompactionQueue(name=name), NOON)
        threads = [
            threading.Thread(
                target=attempt,
                args=("mapped", lambda tx, to=name: table_queues.map_table(tx, "lake.a", to, NOON)),
            ),
            threading.Thread(
                target=attempt, args=("deleted", lambda tx, to=name: queues.delete_queue(tx, to))
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.begin() as tx:
            names = {queue.name for queue in queues.queues(tx)}
            assert table_by_name(tx, "lake.a").queue in names
    assert len(outcomes) == 10


def test_of_a_paused_queue_nothing_is_claimed(database: Database) -> None:
    """It takes tasks; what a worker has is finished; other queues go on; it can be resumed."""
    clock = Clock()
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="other"), NOON)
        seen(tx, "lake.a")
        seen(tx, "lake.b", queue="other")
        offer(tx, "lake.a", [planned("a"), planned("b")], NOON)
        offer(tx, "lake.b", [planned("a")], NOON)
        begun = attempts.claim(tx, ["default"], "w", time=clock)
        assert begun is not None
        assert queues.set_state(tx, "default", QueueState.PAUSED) is QueueState.OPEN
        assert attempts.claim(tx, ["default"], "w", time=clock) is None
        other = attempts.claim(tx, [], "w", time=clock)
        assert other is not None
        assert other.task.table == "lake.b"
        attempts.merged(tx, begun.attempt_id, begun.token, **MERGE, time=clock)
        assert len(offer(tx, "lake.a", [planned("b"), planned("c")], NOON).taken) == 1
        assert queues.set_state(tx, "default", QueueState.OPEN) is QueueState.PAUSED
        assert attempts.claim(tx, [], "w", time=clock) is not None


def test_a_queue_that_drains_takes_no_new_task(database: Database) -> None:
    """What waits stays and is claimed; a table that finds no room stays due."""
    clock = Clock()
    with database.begin() as tx:
        seen(tx, "lake.a")
        (first,) = offer(tx, "lake.a", [planned("a")], NOON).taken
        queues.set_state(tx, "default", QueueState.DRAINING)
        offered = offer(tx, "lake.a", [planned("a"), planned("b")], NOON)
        assert (offered.taken, offered.kept, len(offered.blocked)) == ((), (first,), 1)
        assert queues.queues_with_room(tx) == frozenset()
        assert [one.room for one in queues.counted(tx)] == [0]
        claim = attempts.claim(tx, [], "w", time=clock)
        assert claim is not None
        assert claim.task.id == first
        queues.set_state(tx, "default", QueueState.OPEN)
        assert queues.queues_with_room(tx) == {"default"}


@pytest.mark.parametrize("forced", [False, True])
def test_a_queue_that_drains_keeps_what_a_plan_would_replace(
    database: Database, forced: bool
) -> None:
    """The new tasks find no room; what the plan has no file of is superseded all the same."""
    clock = Clock()
    with database.begin() as tx:
        seen(tx, "lake.a")
        first, lost = offer(tx, "lake.a", [planned("a", "b"), planned("x", "y")], NOON).taken
        queues.set_state(tx, "default", QueueState.DRAINING)
        plan = [planned("a", "b", "c"), planned("d", "e")]
        offered = offer(tx, "lake.a", plan, NOON, forced=forced)
        assert (offered.taken, offered.superseded) == ((), (lost,))
        assert (offered.busy, offered.blocked) == ((plan[0],), (plan[1],))
        assert present(attempts.claim(tx, [], "w", time=clock)).task.id == first


def test_the_state_of_a_queue_that_is_none(database: Database) -> None:
    with database.begin() as tx, pytest.raises(NotFound, match="no compaction queue x"):
        queues.set_state(tx, "x", QueueState.PAUSED)
