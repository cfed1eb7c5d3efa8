"""A real Dagster instance with a state database beside it, once on each pair of storages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.remote_origin import CodeLocationOrigin

from arctic_orchestration.arctic import DISPATCHER
from arctic_orchestration.schedules.dagster import dispatcher
from arctic_orchestration.schedules.dagster import sources as dagster_sources
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.schedules.simulated import at


class Clock:
    """The dispatcher's clock, set manually."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> datetime:
        return at(self.second)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(dispatcher, "utc_now", made)
    return made


@dataclass
class Place:
    """An instance and a state database, as the daemon and a code server would share them."""

    instance: dg.DagsterInstance
    database: Database

    def announce(self, *partitions: str, asset: str = "raw/a", **metadata: Any) -> None:
        """Partitions of an asset arrive, reported from outside."""
        for partition in partitions:
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    asset_key=asset.split("/"), partition=partition, metadata=metadata
                )
            )

    def tick(
        self, definitions: dg.Definitions, origin: CodeLocationOrigin | None = None
    ) -> SensorExecutionData:
        """The dispatcher's tick, as a code server evaluates it; new partitions are added.

        ``origin`` is the code location of the workspace; none: Dagster does not say which.
        """
        repository = definitions.get_repository_def()
        with dg.SensorEvaluationContext(
            instance_ref=self.instance.get_ref(),
            repository_name=repository.name,
            repository_def=repository,
            sensor_name=DISPATCHER,
            code_location_origin=origin,
        ) as context:
            result = repository.get_sensor_def(DISPATCHER).evaluate_tick(context)
        for request in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(
                request.partitions_def_name, list(request.partition_keys)
            )
        return result

    @staticmethod
    def tags_of(request: dg.RunRequest) -> dict[str, str]:
        """The tags that the daemon gives to the run it makes of a request."""
        return {**request.tags, "dagster/run_key": str(request.run_key)}

    def rows(self, table: sa.Table, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of all rows, in the order of the first."""
        query = sa.select(*(table.c[name] for name in columns)).order_by(table.c[columns[0]])
        with self.database.read() as tx:
            return [tuple(row) for row in tx.execute(query)]

    def states(self) -> list[tuple[str, str, str]]:
        """Schedule, state and reason of each job."""
        query = (
            sa.select(schedules.c.name, jobs.c.state, jobs.c.reason)
            .join(jobs, jobs.c.schedule_id == schedules.c.id)
            .order_by(schedules.c.name, jobs.c.partition_start, jobs.c.id)
        )
        with self.database.read() as tx:
            return [tuple(row) for row in tx.execute(query)]


@pytest.fixture
def storages(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[dg.DagsterInstance, Database]]:
    """Dagster's storage and the state database, both on SQLite or both on Postgres."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    database = Database(database_url)
    yield instance, database
    database.close()


@pytest.fixture
def place(storages: tuple[dg.DagsterInstance, Database]) -> Place:
    """Both of them, for the dispatcher."""
    instance, database = storages
    return Place(instance=instance, database=database)


@pytest.fixture(autouse=True)
def patient_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick takes what its sensors request, however slow the machine is."""
    monkeypatch.setattr(dagster_sources, "TICK_SECONDS", 300.0)
