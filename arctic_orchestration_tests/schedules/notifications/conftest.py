"""The outbox of one location, and a notifier over channels in memory."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import News
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.state import tables
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.notifications.post import Post
from arctic_orchestration_tests.schedules.simulated import at


@pytest.fixture
def location_id(database: Database) -> int:
    with database.begin() as tx:
        return locations.locked(tx, "default", "here").id


@pytest.fixture
def write(database: Database, location_id: int) -> Callable[..., None]:
    """Writes news at a second of the tests."""

    def write(*some: News, second: float = 0) -> None:
        with database.begin() as tx:
            outbox.write(tx, location_id, some, at(second))

    return write


@pytest.fixture
def rows(database: Database) -> Callable[[], list[tuple[Any, ...]]]:
    """Attempts, next moment and problem of each notice, in the order they were written."""

    def rows() -> list[tuple[Any, ...]]:
        n = tables.notices.c
        with database.read() as tx:
            query = sa.select(n.attempts, n.send_at, n.problem).order_by(n.id)
            return [tuple(row) for row in tx.execute(query)]

    return rows


@pytest.fixture
def post(database: Database, tmp_path: Path) -> Post:
    return Post(database, tmp_path, patience=timedelta(seconds=30))
