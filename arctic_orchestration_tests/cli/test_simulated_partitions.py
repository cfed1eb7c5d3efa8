"""``arctic simulate`` with partitions: declared in the file, or those of a code location."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from arctic_orchestration.schedules.dagster.inventory import inventory_of
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import World

Command = Callable[..., Outcome]
DAILY = {"daily": {"start": "2026-01-01"}}
ASSETS: dict[str, Any] = {
    "raw/orders": {
        "partitions": {"multi": {"date": DAILY, "region": {"static": ["emea", "amer"]}}}
    },
    "summary": {"partitions": DAILY, "deps": ["raw/orders"]},
}
WHOLE = {
    "name": "whole",
    "target": {"assets": ["summary"]},
    "trigger": {"partitions": {"asset": "raw/orders", "count": "all"}},
    "partitions": "each",
    "enabled": True,
}
LINES = [
    {"at": "2026-01-05T01:00:00Z", "event": "partition", "asset": "raw/orders", "partition": key}
    for key in ("2026-01-04|emea", "2026-01-03|amer", "2026-01-04|amer")
]


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[str]]:
    """Writes a file of schedules and a timeline; returns their paths."""

    def write(**document: Any) -> list[str]:
        schedules, timeline = tmp_path / "schedules.yaml", tmp_path / "timeline.jsonl"
        schedules.write_text(yaml.safe_dump(document))
        timeline.write_text("\n".join(map(json.dumps, LINES)))
        return [str(schedules), str(timeline)]

    return write


def launched(done: Outcome) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in done.out.splitlines()]
    return [line for line in lines if line["decision"] == "launched"]


def test_a_file_declares_how_assets_are_partitioned(
    arctic: Command, files: Callable[..., list[str]]
) -> None:
    """The run is of the day whose regions have all arrived."""
    done = arctic("simulate", *files(schedules=[WHOLE], assets=ASSETS))
    (line,) = launched(done)
    assert line["partitions"] == ["2026-01-04"]
    assert line["arrived"] == ["2026-01-04|emea", "2026-01-04|amer"]


def test_a_job_is_partitioned_as_its_assets_are(
    arctic: Command, files: Callable[..., list[str]]
) -> None:
    """``jobs:`` names what each makes."""
    schedule = {**WHOLE, "target": {"job": "rollup"}}
    given = files(schedules=[schedule], assets=ASSETS, jobs={"rollup": ["summary"]})
    assert [line["partitions"] for line in launched(arctic("simulate", *given))] == [["2026-01-04"]]


def test_definitions_are_read_from_a_code_location(
    arctic: Command,
    files: Callable[..., list[str]],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the mappings that its assets declare; what the file says goes first."""
    days = dg.DailyPartitionsDefinition("2026-01-01")
    regions = dg.StaticPartitionsDefinition(["emea", "amer"])
    orders = dg.AssetSpec(
        ["raw", "orders"],
        partitions_def=dg.MultiPartitionsDefinition({"date": days, "region": regions}),
    )

    @dg.asset(
        partitions_def=days,
        deps=[
            dg.AssetDep(
                dg.AssetKey(["raw", "orders"]),
                partition_mapping=dg.MultiToSingleDimensionPartitionMapping("date"),
            )
        ],
    )
    def summary() -> None: ...

    repository = dg.Definitions(assets=[orders, summary]).get_repository_def()
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    database = Database(database_url)
    world = World(database, [])
    world.engine.inventory = inventory_of(repository)
    world.tick(0)
    given = files(schedules=[WHOLE])
    assert "declares the partitions of summary" in arctic("simulate", *given).err
    done = arctic("simulate", *given, "--location", "here")
    assert [line["partitions"] for line in launched(done)] == [["2026-01-04"]]
    own = files(schedules=[WHOLE], assets={"raw/orders": {"partitions": DAILY}})
    assert launched(arctic("simulate", *own, "--location", "here")) == []
    database.close()


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"assets": ["raw"]}, "assets: got ['raw'], expected a mapping of asset names"),
        ({"assets": {"raw": 5}}, "assets.raw: got 5, expected a mapping of partitions, deps"),
        ({"assets": {"raw": {"keys": []}}}, "assets.raw.keys: got [], expected no such field"),
        ({"assets": {"raw": {"partitions": {"dayly": {}}}}}, "assets.raw.partitions"),
        ({"assets": {"raw": {"partitions": {"daily": {"start": "soon"}}}}},
         "assets.raw.partitions.daily.start: got 'soon'"),
        ({"assets": {"raw": {"deps": {"a": "sideways"}}}},
         "assets.raw.deps.a: got 'sideways'"),
        ({"jobs": {"rollup": ["raw"]}}, "jobs.rollup: got 'raw', expected an asset that assets:"),
        ({"assets": {**ASSETS, "raw/orders": {"partitions": {"static": ["x"]}}}},
         "Schedule(whole).trigger.partitions.mapping"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_used_is_refused(
    arctic: Command, files: Callable[..., list[str]], document: dict[str, Any], complaint: str
) -> None:
    """Field, value and what was expected, before anything is printed."""
    done = arctic("simulate", *files(schedules=[WHOLE], **document))
    assert (done.code, done.out) == (2, "")
    assert complaint in " ".join(done.err.split())
