"""Tasks that are merged and wait for the committer."""

from datetime import timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    offered,
)

AT_ONCE = timedelta(0)


def merged(state: Database, catalog: Catalog, table: Table, at_once: int = 2) -> list[str]:
    """Tasks of so many files each, merged and waiting for the committer."""
    taken = offered(state, table, at_once=at_once).taken
    Worker(DatabaseSource(state, catalog), Merging()).run(AT_ONCE)
    return list(taken)


def tasks_of(state: Database) -> dict[str, Task]:
    with state.read() as tx:
        return {task.id: task for task in task_store.tasks(tx)}


def states_of(state: Database) -> list[TaskState]:
    return sorted(task.state for task in tasks_of(state).values())


def files_of(table: Table) -> int:
    return len(list(table.refresh().scan().plan_files()))
