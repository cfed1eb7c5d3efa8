"""A row of a task that cannot be used stops nothing beside it."""

from datetime import timedelta

import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.tables import table_by_name
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker
from arctic_orchestration.state.compaction_tables import compaction_tasks
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.merged_tasks import AT_ONCE, merged, states_of, tasks_of
from arctic_orchestration_tests.compaction.small_lake import Merging, offered, table_of
from arctic_orchestration_tests.present import present


def spoil(state: Database, task: str) -> None:
    """Stores the task's files in a form that this version cannot read."""
    col = compaction_tasks.c
    changed = sa.func.replace(col.file_group, '"sequence_number"', '"number"')
    with state.begin() as tx:
        tx.execute(
            sa.update(compaction_tasks).where(col.id == task).values(file_group=changed, rank=-1)
        )


def test_workers_leave_a_task_whose_files_cannot_be_read(state: Database, catalog: Catalog) -> None:
    """It would be the first for each of them; the table plans its files again."""
    odd, *others = offered(state, table_of(catalog, "lake.a", files=6), at_once=2).taken
    others += offered(state, table_of(catalog, "lake.b", files=4), at_once=2).taken
    spoil(state, odd)
    Worker(DatabaseSource(state, catalog), Merging()).run(AT_ONCE)
    tasks = tasks_of(state)
    assert {tasks[id].state for id in others} == {TaskState.MERGED}
    assert tasks[odd].state is TaskState.SUPERSEDED
    assert "its stored files cannot be read: KeyError: 'sequence_number'" in tasks[odd].reason


def test_the_committer_leaves_a_task_whose_files_cannot_be_read(
    state: Database, catalog: Catalog
) -> None:
    """It stays, as a snapshot may have its outputs; the row of its table says so."""
    odd, _, _ = merged(state, catalog, table_of(catalog, "lake.a", files=6))
    spoil(state, odd)
    counts = Committer(state, catalog).tick()
    assert (counts.committed, counts.troubled) == (2, 1)
    assert states_of(state) == [TaskState.COMMITTED, TaskState.COMMITTED, TaskState.MERGED]
    with state.begin() as tx:
        trouble = present(table_by_name(tx, "lake.a").commit_trouble)
        assert trouble.startswith(f"the stored files of task {odd} cannot be read: KeyError")
    # Nothing else is left.
    round_ = present(Committer(state, catalog).commit("lake.a"))
    assert (round_.counts.troubled, round_.trouble) == (1, trouble)


def test_an_attempt_whose_task_went_on_is_lost_alone(state: Database, catalog: Catalog) -> None:
    """Rounds go on, and the task stays as it is."""
    offered(state, table_of(catalog, "lake.a", files=4), at_once=2)
    with state.begin() as tx:
        odd, other = (
            present(attempts.claim(tx, [], "w", life=timedelta(milliseconds=1))) for _ in range(2)
        )
        tx.execute(
            sa.update(compaction_tasks)
            .where(compaction_tasks.c.id == odd.task.id)
            .values(state=TaskState.PLANNED.value)
        )
    later = utc_now() + timedelta(minutes=1)
    with state.begin() as tx:
        assert attempts.expire(tx, time=lambda _: later) == 2
        for claim in (odd, other):
            (attempt,) = attempt_lookup.attempts_of(tx, claim.task.id)
            assert attempt.state is AttemptState.LOST
    assert states_of(state) == [TaskState.PLANNED] * 2
    CompactionService(state, catalog).tick(later)
