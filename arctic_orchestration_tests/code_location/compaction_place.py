"""A lake, a state database and a Dagster instance, with a code location that compacts the lake."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.compaction.dagster import sensor
from arctic_orchestration.compaction.dagster.definitions import Compaction
from arctic_orchestration.compaction.dagster.sensor import COMPACTION
from arctic_orchestration.compaction.dagster.table_metrics import key_of
from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.code_location.conftest import Place

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
#: two fragments are merged, and nothing waits
EAGER = {
    "arctic.compaction.target-size": "1MiB",
    "arctic.compaction.minor.min-files": "2",
    "arctic.compaction.check-interval": "1s",
    "arctic.compaction.commit-interval": "1s",
}


@dataclass
class CompactedPlace:
    """What a daemon, a code server and writers of a lake share."""

    place: Place
    #: the sensor's cursor, as the daemon keeps it
    cursor: str | None = None
    #: all runs that were requested
    requests: list[dg.RunRequest] = field(default_factory=list)
    #: all observations that were reported, stored as the daemon stores them
    observed: list[dg.AssetObservation] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings.from_environment()

    @property
    def catalog(self) -> Catalog:
        return open_catalog(self.settings)

    def table(self, name: str, properties: Mapping[str, str] = EAGER) -> Table:
        """The table, made when it is not there."""
        return ensure_table(self.catalog, name, SCHEMA, properties=properties)

    def append(self, name: str, files: int = 1) -> None:
        """Adds small files of three rows to a table."""
        table = self.table(name)
        for number in range(files):
            rows = [{"id": number * 3 + one, "name": f"row {one}"} for one in range(3)]
            table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows, in a fixed order."""
        rows = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: str(row))

    def files(self, name: str) -> int:
        """How many data files the table has."""
        return len(list(self.catalog.load_table(name).scan().plan_files()))

    def tick(self, definitions: dg.Definitions) -> SensorExecutionData:
        """One tick of the sensor, with what the daemon does about it but for starting runs."""
        repository = definitions.get_repository_def()
        with dg.SensorEvaluationContext(
            instance_ref=self.place.instance.get_ref(),
            repository_name=repository.name,
            repository_def=repository,
            sensor_name=COMPACTION,
            cursor=self.cursor,
            last_tick_completion_time=None,
            last_run_key=None,
        ) as context:
            result = repository.get_sensor_def(COMPACTION).evaluate_tick(context)
        self.cursor = result.cursor
        self.requests += result.run_requests or ()
        for event in result.asset_events:
            assert isinstance(event, dg.AssetObservation)
            self.place.instance.report_runless_asset_event(event)
            self.observed.append(event)
        return result

    def reported(self, name: str) -> list[dict[str, Any]]:
        """What was reported of a table, oldest first."""
        return [
            {label: value.value for label, value in one.metadata.items()}
            for one in self.observed
            if one.asset_key == key_of(name)
        ]


def compacted(place: Place, lake: Path, monkeypatch: pytest.MonkeyPatch) -> CompactedPlace:
    """With a lake in that directory; a tick waits for its round, however slow the machine is."""
    monkeypatch.setenv("ARCTIC_LAKE", str(lake))
    monkeypatch.setattr(sensor, "_WAIT_SECONDS", 60.0)
    return CompactedPlace(place)


def a_location(*assets: dg.AssetSpec, **options: Any) -> dg.Definitions:
    """A code location that compacts its lake: all tables, unless the options say otherwise."""
    chosen: dict[str, Any] = {"tables": ["*"], "mode": "run", **options}
    return dg.Definitions.merge(
        dg.Definitions(assets=list(assets)), Compaction(**chosen).definitions()
    )
