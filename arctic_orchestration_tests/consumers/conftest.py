"""A state database and a Dagster instance on each backend, a log and a clock, and consumers."""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log
from arctic_orchestration_tests.consumers.dagster_assets import MakeConsumer, settings_of
from arctic_orchestration_tests.standing_clock import Clock


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.fixture
def clock() -> Clock:
    """A clock that stands at noon."""
    return Clock()


@pytest.fixture
def instance(
    backend: str, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> dg.DagsterInstance:
    """A Dagster instance, once on each backend."""
    return dagster_instance(backend)


@pytest.fixture
def consumer(
    instance: dg.DagsterInstance, state: Database, database_url: str
) -> Iterator[MakeConsumer]:
    """Makes consumers by the name ``totals``, by default."""
    made: list[PartitionConsumer] = []

    def make(asset: Any = "days", **named: Any) -> PartitionConsumer:
        arguments = {"name": "totals", "instance": instance, "settings": settings_of(database_url)}
        made.append(PartitionConsumer(asset, **{**arguments, **named}))
        return made[-1]

    yield make
    for one in made:
        one.close()
