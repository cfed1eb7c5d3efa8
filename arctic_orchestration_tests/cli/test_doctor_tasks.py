"""``arctic doctor``: what it finds of tasks and of partition consumers."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration.cli.doctor.freshness_checks import tasks_and_consumers
from arctic_orchestration.console.findings import BAD, GOOD, WARNING
from arctic_orchestration.schedules.inventory import Inventory, store
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.state.consumer_tables import consumer_partitions, consumers
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import task_locations
from arctic_orchestration_tests.cli.tasked import Tasked, task, tasked

__all__ = ["tasked"]


def found() -> dict[str, tuple[str, str]]:
    """Status and advice by check."""
    return {one.check: (one.status, one.advice) for one in tasks_and_consumers()}


def ticked(database: Database, ago: timedelta) -> None:
    with database.begin() as tx:
        at = database_time(tx) - ago
        tx.execute(sa.update(task_locations).values(ticked_at=at))


def test_a_location_whose_sensor_is_silent_is_found(tasked: Tasked) -> None:
    """After two minutes; after a day it may be gone, and can be forgotten."""
    assert tasks_and_consumers() == []
    tasked.declare(task("raw", 12), location="a lake")
    ticked(tasked.database, timedelta(seconds=100))
    assert found() == {"tasks of a lake": (GOOD, "")}
    ticked(tasked.database, timedelta(minutes=3))
    status, advice = found()["tasks of a lake"]
    assert (status, "start the daemon" in advice) == (BAD, True)
    ticked(tasked.database, timedelta(hours=25))
    status, advice = found()["tasks of a lake"]
    assert (status, advice.endswith("arctic tasks forget 'a lake'")) == (WARNING, True)


def test_a_location_that_is_not_registered_says_why(tasked: Tasked) -> None:
    """Whenever it ticked; that of another cluster is for its own doctor."""
    tasked.declare(task("raw", 12), location="lake")
    tasked.declare(task("far", 12), location="lake", cluster="west")
    with tasked.database.begin() as tx:
        tx.execute(sa.update(task_locations).values(trouble="a needs b needs a"))
    (one,) = tasks_and_consumers()
    assert (one.status, one.found) == (BAD, "a needs b needs a")


def test_a_consumer_of_an_asset_that_no_code_has_is_found(tasked: Tasked) -> None:
    """Nothing of it has arrived, and the code of a location is known; deleted ones are left out."""
    columns = ("max_attempts", "retry_seconds", "lease_seconds", "working_set")
    arrived = {"partition": "p", "state": "waiting", "reason": "", "details": "{}"}
    numbers = dict.fromkeys(("place", "number", "arrivals", "event_id"), 1)
    assets = {"fine": "raw/flights", "wrong": "raw/fligths", "busy": "raw/other", "gone": ""}
    known = Inventory(assets={"raw/flights": None})
    with tasked.database.begin() as tx:
        now = database_time(tx)
        own = {**dict.fromkeys(columns, 3), "created_at": now}
        moments = dict.fromkeys(("state_at", "first_at", "at", "event_at"), now)
        for name, asset in assets.items():
            row = {"cluster": "default", "name": name, "asset": asset, "start": "from_now", **own}
            key = tx.execute(sa.insert(consumers).values(row)).inserted_primary_key
            if name == "busy" and key is not None:
                taken = {**arrived, **numbers, **moments, "consumer_id": key[0]}
                tx.execute(sa.insert(consumer_partitions).values(taken))
    assert found() == {}
    with tasked.database.begin() as tx:
        store(tx, locked(tx, "default", "lake"), known, database_time(tx))
    assert found() == {"consumer wrong": (WARNING, "check the name; did you mean raw/flights?")}


def test_a_parent_that_nothing_can_make_is_found(
    tasked: Tasked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an instance, which knows what was reported from outside, and the code of a location."""
    parents = {"raw": 24.0, "plain": 24.0, "outside": 24.0, "rwa": 24.0}
    tasked.declare(task("raw", 12), location="feeds", cluster="west")
    tasked.declare(task("top", 12, **parents))
    assert set(found()) == {"tasks of lake"}
    with tasked.database.begin() as tx:
        known = Inventory(assets={"plain": None})
        store(tx, locked(tx, "default", "lake"), known, database_time(tx))
    assert set(found()) == {"tasks of lake"}
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("outside"))
    (one,) = (finding for finding in tasks_and_consumers() if finding.check == "task top")
    assert one.status == WARNING
    assert one.found == (
        "its parent rwa is no task, no asset of a code location, and was never materialized"
    )
    assert one.advice == "check the name; did you mean raw?"
