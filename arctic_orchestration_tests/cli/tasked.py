"""Tasks of two locations and two clusters, as the commands find them in a state database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.freshness import definitions, ownership
from arctic_orchestration.freshness.criteria import Parent, TaskSpec
from arctic_orchestration.freshness.ownership import Acquired, Owner
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import tasks as task_table

ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


def task(name: str, hours: float | None = 24, /, **parents: float | None) -> TaskSpec:
    """A task of the batch ``daily``; two underscores of a parent's name are a slash."""
    needed = tuple(
        Parent(name=parent.replace("__", "/"), hours=age) for parent, age in parents.items()
    )
    return TaskSpec(
        name=name, target=name, batch="daily", freshness_hours=hours, parents=needed, retries=2
    )


@dataclass(frozen=True)
class Tasked:
    """What locations have declared, and what was made."""

    database: Database

    def declare(self, *specs: TaskSpec, location: str = "lake", cluster: str = "default") -> None:
        """A location registers its tasks."""
        with self.database.begin() as tx:
            done = definitions.register(tx, cluster, location, specs, database_time(tx))
        assert done.problem is None

    def made(
        self, name: str, hours: float, *, run: str = "run-1", cluster: str = "default"
    ) -> None:
        """A task succeeded so many hours ago."""
        token = self.acquired(name, run=run, cluster=cluster)
        with self.database.begin() as tx:
            ownership.publish(tx, name, run, token)
            here = sa.update(task_table).where(task_table.c.task == name)
            tx.execute(here.values(last_success_at=self._ago(tx, hours)))

    def acquired(
        self, name: str, *, run: str = "run-2", cluster: str = "default", location: str = "lake"
    ) -> int:
        """Lets another owner make a task; returns its token."""
        with self.database.begin() as tx:
            holder = Owner(cluster=cluster, location=location, run_id=run)
            since = database_time(tx)
            got = ownership.acquire(tx, name, run, holder, since=since, life=timedelta(hours=1))
        assert isinstance(got, Acquired)
        return got.token

    def _ago(self, tx: sa.Connection, hours: float) -> datetime:
        return database_time(tx) - timedelta(hours=hours)


@contextmanager
def opened(url: str) -> Iterator[Tasked]:
    """A fresh state database at a URL."""
    database = Database(url)
    if database.revision() is None:
        database.upgrade()
    yield Tasked(database)
    database.close()


@pytest.fixture
def tasked(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasked]:
    """A fresh state database on each backend, which the commands open; no Dagster instance."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with opened(database_url) as made:
        yield made


@pytest.fixture
def three(tasked: Tasked) -> Tasked:
    """A chain over two locations and batches: raw of ``feeds``, middle and top of ``lake``.

    raw is 5 hours old, middle 30, which is too old for top; top was never made.
    """
    raw = task("raw", 12).model_copy(update={"batch": "landing"})
    tasked.declare(raw, location="feeds")
    tasked.declare(task("middle", 48, raw=6), task("top", None, middle=24, plain=2))
    tasked.made("raw", 5)
    tasked.made("middle", 30, run="run-7", cluster="west")
    return tasked
