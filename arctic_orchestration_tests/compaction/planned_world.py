"""A small lake and its planner, whose clock stands still."""

from datetime import timedelta

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake


class World:
    """A lake, its planner, and a clock that is set manually."""

    def __init__(self, lake: Lake, database: Database) -> None:
        self.lake, self.database = lake, database
        self.now = utc_now()
        self.planner = Planner(database, lake.catalog)

    def tick(self, **passed: float) -> PlanningCounts:
        """The planner's counts, after so much time."""
        self.now += timedelta(**passed)
        return self.planner.tick(self.now)

    def row(self, name: str) -> CompactionTable:
        """What is known of a table."""
        with self.database.read() as tx:
            return tables.table_by_name(tx, name)

    def tasks(self, *states: TaskState) -> list[Task]:
        """All tasks, or those in some states."""
        with self.database.read() as tx:
            return task_store.tasks(tx, states=states)

    def waiting(self) -> dict[str, int]:
        """How many files of each table wait in tasks."""
        return {task.table: task.files for task in self.tasks(TaskState.PLANNED)}
