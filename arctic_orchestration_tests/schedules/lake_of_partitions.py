"""Targets and assets with partitions, and an engine around them, for tests."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.simulator import DeclaredAssets, read_declared
from arctic_orchestration.schedules.targets import PartitionMap, TargetPartitions
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.schedules.simulated import AnyTargets, World

DAILY = {"daily": {"start": "2026-01-01"}}
REGIONS = {"multi": {"date": DAILY, "region": {"static": ["emea", "amer", "apac"]}}}
ASSETS: dict[str, Any] = {
    "raw/orders": {"partitions": REGIONS},
    "raw/hours": {"partitions": {"hourly": {"start": "2026-01-01-00:00"}}},
    "raw/payments": {"partitions": DAILY},
    "raw/days": {"partitions": DAILY},
    "config": {},
    "summary": {
        "partitions": DAILY,
        "deps": ["raw/orders", "raw/hours", "raw/payments", "raw/days"],
    },
    "report": {},
}
#: seconds of a day, from the epoch of the tests, which is 2026-01-01
DAY = 86_400
HOUR = 3_600


class Declared(AnyTargets):
    """Targets whose partitions are declared."""

    def __init__(self, declared: DeclaredAssets) -> None:
        self.declared = declared
        self.materialized: dict[str, set[str]] = {}

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        return None

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        found = self.declared.ranges(target, partitions)
        assert found is not None
        return found

    def partitions(self, target: Target) -> TargetPartitions | None:
        return self.declared.partitions(target, lambda asset: self.materialized.get(asset, ()))

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        return self.declared.groups(asset, dimension)


MakeWorld = Callable[..., World]


@pytest.fixture
def lake(database: Database) -> MakeWorld:
    """An engine whose targets have partitions; its first tick is done, on 2026-01-01."""

    def make(*schedules: Schedule, assets: dict[str, Any] = ASSETS) -> World:
        declared = read_declared({"assets": assets})
        assert declared.problems(schedules) == []
        made = World(database, schedules, targets=Declared(declared))
        made.tick(0)
        return made

    return make


def daily(name: str = "daily", **fields: Any) -> Schedule:
    """A schedule that makes the daily summary, a run for each day."""
    given = {"target": {"assets": ["summary"]}, "partitions": "each", "enabled": True}
    return Schedule(name=name, **{**given, **fields})


def runs(here: World) -> list[str]:
    """The partitions, or ranges, of the runs that were requested, in order."""
    return [
        str(r.partition_start)
        if r.partition_start == r.partition_end
        else f"{r.partition_start}..{r.partition_end}"
        for r in here.dagster.requests
    ]


def waiting(here: World) -> dict[str, str]:
    """The reasons of waiting jobs, by the target partition."""
    query = sa.select(jobs.c.scope, jobs.c.reason).where(jobs.c.state.like("waiting%"))
    with here.database.read() as tx:
        return {row.scope: row.reason for row in tx.execute(query)}


def end_runs(here: World, now: float) -> None:
    """All runs end well, and the engine sees it."""
    for run_id, run in list(here.dagster.runs.items()):
        if not run.status.ended:
            here.dagster.end(run_id)
    here.tick(now)
