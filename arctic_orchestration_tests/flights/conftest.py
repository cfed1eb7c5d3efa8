"""A lake of its own for each test, and runs of its assets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.definitions import defs
from arctic_orchestration.flights.feeds import Feed, FeedFile, files_of
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.settings import Settings


@dataclass
class FlightsLake:
    """A lake in a directory of its own, and Dagster runs of its assets in this process."""

    settings: Settings
    instance: dg.DagsterInstance
    source: FlightsSource = field(default_factory=FlightsSource.installed)

    @property
    def catalog(self) -> Catalog:
        """The lake's catalog."""
        return open_catalog(self.settings)

    def land(self, feed: Feed, *keys: str) -> None:
        """Lands files by their partition keys; tells nobody."""
        for key in keys:
            file = FeedFile.from_key(key)
            Landing.of(self.settings).land(feed, file, self.source.file(feed, file))

    def land_days(self, feed: Feed, days: list[date]) -> None:
        """Lands all files of these days."""
        self.land(feed, *(file.key for file in files_of(days)))

    def materialize(
        self,
        *assets: str,
        partition: str | None = None,
        tags: Mapping[str, str] | None = None,
        partitions: list[str] | None = None,
        raising: bool = True,
    ) -> dg.ExecuteInProcessResult:
        """Runs the assets, for a partition, for a range by tags, or for listed feed files."""
        job = defs.resolve_implicit_global_asset_job_def()
        config = {"ops": {"flights": {"config": {"partitions": partitions}}}} if partitions else {}
        return job.execute_in_process(
            run_config=config,
            instance=self.instance,
            asset_selection=[dg.AssetKey.from_user_string(asset) for asset in assets],
            partition_key=partition,
            tags=dict(tags or {}),
            raise_on_error=raising,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table as pyiceberg reads them, in a fixed order."""
        rows = self.catalog.load_table(f"nyc.{table}").scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: str(row))


@pytest.fixture
def lake(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dagster_instance: Callable[[str], dg.DagsterInstance],
) -> FlightsLake:
    """An empty lake, configured as a user does it: by the environment."""
    monkeypatch.setenv("ARCTIC_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("ARCTIC_SPARK_MASTER", "local[2]")
    return FlightsLake(settings=Settings.from_environment(), instance=dagster_instance("sqlite"))
