"""A lake of its own for each test, and runs of its assets."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.definitions import defs
from arctic_orchestration.flights.feeds import FEEDS, Feed, file_of, files_of
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
            file = file_of(feed, key)
            Landing.of(self.settings).land(file, self.source.file(file))

    def land_days(self, days: list[date], *feeds: Feed) -> None:
        """Lands all files of these days, of all feeds or of some."""
        for file in files_of(days, feeds or FEEDS):
            self.land(file.feed, file.key)

    def materialize(
        self,
        *assets: str,
        partition: str | None = None,
        through: str | None = None,
        raising: bool = True,
    ) -> dg.ExecuteInProcessResult:
        """Runs the assets, for a partition or for the range from it ``through`` another."""
        job = defs.resolve_implicit_global_asset_job_def()
        ends = {"start": partition or "", "end": through or ""}
        tags = {f"dagster/asset_partition_range_{name}": key for name, key in ends.items()}
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey.from_user_string(asset) for asset in assets],
            partition_key=None if through else partition,
            tags=tags if through else {},
            raise_on_error=raising,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table as pyiceberg reads them, in a fixed order."""
        rows = self.catalog.load_table(f"nyc.{table}").scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: str(row))

    def write_rows(self, folder: Path, tables: Iterable[str]) -> None:
        """Writes all rows of each table as sorted lines of JSON, times in UTC."""
        folder.mkdir(parents=True, exist_ok=True)
        for table in tables:
            lines = sorted(json.dumps(row, default=_plain) for row in self.rows(table))
            (folder / f"{table}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _plain(value: date) -> str:
    return (value.astimezone(UTC) if isinstance(value, datetime) else value).isoformat()


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
