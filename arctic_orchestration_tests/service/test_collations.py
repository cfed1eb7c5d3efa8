"""Pages of lists where Postgres sorts texts as a dictionary does: ``a``, ``B``, ``c``."""

import pytest
import sqlalchemy as sa

from arctic_orchestration.state.consumer_tables import consumers
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_definitions
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.cli.tasked import Tasked, task
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_schedules import MakeWorld, schedule

_NAMES = ["a", "B", "c", "D", "e"]


@pytest.fixture
def dictionary(database: Database) -> Database:
    """A state database with columns as in a Postgres database of the locale ``en_US.UTF-8``."""
    if database.engine.dialect.name == "postgresql":
        with database.begin() as tx:
            for column in (locations.c.name, consumers.c.name, task_definitions.c.task):
                text = column.type.compile(tx.dialect)
                tx.execute(
                    sa.text(
                        f"alter table {column.table.name} alter column {column.name} "
                        f'type {text} collate "en-x-icu"'
                    )
                )
    return database


@pytest.mark.parametrize("path", ["schedules", "tasks", "consumers"])
def test_pages_have_each_row_once(
    api: MakeApi, dictionary: Database, world: MakeWorld, path: str
) -> None:
    """Locations with a schedule, tasks and consumers, each in pages of every size."""
    tasked = Tasked(dictionary)
    for name in _NAMES:
        world([schedule("rollup")], location=name)
        engine_of(dictionary, Log(), name=name)
    tasked.declare(*(task(name, 1) for name in _NAMES))
    client = api()
    for limit in range(1, len(_NAMES) + 1):
        listed, cursor = [], None
        for _ in range(len(_NAMES) + 1):
            params = {"limit": limit, **({"cursor": cursor} if cursor else {})}
            page = client.get(f"/{path}", params=params).json()
            listed += [
                one.get("task") or one.get("consumer") or one["location"] for one in page[path]
            ]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert sorted(listed) == sorted(_NAMES), limit
