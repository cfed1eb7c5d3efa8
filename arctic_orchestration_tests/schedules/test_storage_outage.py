"""Dagster's storage does not answer while partitions are looked up: nothing is lost by that."""

from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.schedules.dagster.targets import RepositoryTargets
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration_tests.schedules.simulated import World

FOUR = 4 * 3600
LAST, ALL = dg.LastPartitionMapping(), dg.AllPartitionMapping()


class Storage:
    """A Dagster instance with two regions, to which no connection is free while it is ``full``."""

    full = False

    def __init__(self) -> None:
        self.instance = dg.DagsterInstance.ephemeral()
        self.instance.add_dynamic_partitions("regions", ["amer", "emea"])

    def __call__(self) -> dg.DagsterInstance:
        if self.full:
            raise sa.exc.OperationalError("SELECT", {}, Exception("too many clients already"))
        return self.instance


def lake(database: Database, trigger: Any, mapping: dg.PartitionMapping) -> tuple[World, Storage]:
    """A schedule of ``down``, whose partitions depend on regions, and one of ``plain``."""

    @dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="regions"))
    def up() -> None: ...

    dep = dg.AssetDep(up, partition_mapping=mapping)

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["x"]), deps=[dep])
    def down() -> None: ...

    @dg.asset
    def plain() -> None: ...

    storage, repository = Storage(), dg.Definitions(assets=[up, down, plain]).get_repository_def()
    of_down: Any = {"target": {"assets": ["down"]}, "partitions": "each", "enabled": True}
    schedule = Schedule(name="s", trigger=trigger, **of_down)
    beside = Schedule(
        name="beside", target={"assets": ["plain"]}, trigger=on.partitions("raw/a"), enabled=True
    )
    here = World(database, [schedule, beside], targets=RepositoryTargets(repository, storage))
    here.tick(0)
    return here, storage


def turn(here: World, storage: Storage, *, full: bool) -> None:
    storage.full = full
    assert isinstance(here.engine.targets, RepositoryTargets)
    here.engine.targets.renew(storage)


@pytest.mark.parametrize(
    "trigger", [on.cron("0 4 * * *", partition="all_missing"), on.partitions("up")]
)
def test_what_could_not_be_looked_up_is_looked_up_again(database: Database, trigger: Any) -> None:
    """In the next ticks, without a deployment of the code."""
    here, storage = lake(database, trigger, LAST)
    turn(here, storage, full=True)
    here.feed.arrive("up", "emea")
    assert here.tick(FOUR) == here.tick(FOUR + 5) == []
    turn(here, storage, full=False)
    assert here.tick(FOUR + 10) == ["run-1"]
    assert here.dagster.requests[0].partition_start == "x"
    with database.read() as tx:
        assert tx.execute(sa.select(deferred_arrivals)).all() == []


def test_partitions_that_belong_together_are_asked_for_again(database: Database) -> None:
    """Both regions have arrived, and no further event would count them."""
    here, storage = lake(database, on.partitions("up", count="all"), ALL)
    turn(here, storage, full=True)
    for region in ("amer", "emea"):
        here.feed.arrive("up", region)
    with pytest.raises(DatabaseUnavailable):
        here.tick(5)
    turn(here, storage, full=False)
    assert here.tick(10) == ["run-1"]


def test_a_look_up_that_always_fails_stops_only_its_own_schedule(database: Database) -> None:
    """The storage ends it each time, such as after a statement timeout, and answers the rest."""
    here, storage = lake(database, on.partitions("up", count="all"), ALL)
    turn(here, storage, full=True)
    for asset, key in (("up", "amer"), ("raw/a", "1")):
        here.feed.arrive(asset, key)
    failed = 0
    for second in range(5, 200, 5):
        try:
            here.tick(second)
        except DatabaseUnavailable:
            failed += 1
    assert failed == 20
    assert [request.target.assets for request in here.dagster.requests] == [("plain",)]
