"""Processes that race over one Postgres database."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.proofs import group_tickers, shared_dagster
from arctic_orchestration_tests.proofs.racing import Race


@pytest.fixture
def race(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Callable[..., Any]]:
    """Runs one function in several processes over a fresh state database; see :class:`Race`."""
    url = postgres_server.url(postgres_database)
    database = Database(url)
    database.upgrade()
    group_tickers.metadata.create_all(database.engine)
    shared_dagster.metadata.create_all(database.engine)
    database.close()
    running = Race(url)
    yield running.run
    running.end()
