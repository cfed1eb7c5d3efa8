"""Functions that batches of tests name."""

from contextlib import closing
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.freshness.dagster.materialization import TaskRun
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import tasks

CONSTANT = 7


def done_by(run: TaskRun) -> dict[str, Any]:
    """What the run knows, as metadata."""
    return {"name": run.name, "partition": str(run.partition)}


def silent(run: TaskRun) -> None:
    """Nothing to say."""


def wrong(run: TaskRun) -> list[int]:
    """What no task can be."""
    return [1, 2]


#: the days for which `noted` was called
DAYS: list[str] = []


def noted(run: TaskRun) -> None:
    """Notes what it was called for."""
    DAYS.append(str(run.partition))


def superseded(run: TaskRun) -> None:
    """Another run takes the task over meanwhile."""
    url = Settings.from_environment().database_url
    with closing(Database.open(url)) as database, database.begin() as tx:
        mine = sa.update(tasks).where(tasks.c.task == run.name)
        tx.execute(mine.values(token=2, owner="another", run_id="theirs"))
