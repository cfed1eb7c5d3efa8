"""The inventory of a real code location, as commands find it."""

from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.remote_representation.external_data import RepositorySnap

from arctic_orchestration import Arctic
from arctic_orchestration.cli.doctor import state_checks
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.inventory import Inventory, Partitioning, inventories
from arctic_orchestration.schedules.location import Location, locked
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.schedules.simulated import at


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def daily() -> None: ...


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["north", "south"]))
def region() -> None: ...


@dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="feeds"))
def feed() -> None: ...


@dg.asset
def whole() -> None: ...


@dg.op
def nothing() -> None: ...


@dg.job
def rollup() -> None:
    nothing()


@dg.job(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def by_letter() -> None:
    nothing()


class OwnDays(dg.DailyPartitionsDefinition):
    """Days of a class of its own."""


@dg.asset(partitions_def=OwnDays("2026-02-01"))
def own_days() -> None: ...


@dg.asset(
    partitions_def=dg.MultiPartitionsDefinition(
        {"date": present(daily.partitions_def), "region": present(region.partitions_def)}
    )
)
def by_both() -> None: ...


def definitions(*jobs: Any) -> dg.Definitions:
    outside = dg.AssetSpec("raw/a", partitions_def=daily.partitions_def)
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [
        daily,
        region,
        feed,
        whole,
        own_days,
        by_both,
        outside,
    ]
    arctic = Arctic(schedules=[], location="lake", numbers_every=None)
    return dg.Definitions.merge(dg.Definitions(assets=assets, jobs=jobs), arctic.definitions())


def test_a_tick_keeps_what_the_code_has(place: Place) -> None:
    """Jobs by name, assets with their partitions, and which of them a run can make."""
    place.tick(definitions(rollup, by_letter))
    daily_form = '{"daily":{"start":"2026-01-01"}}'
    days = Partitioning(format="%Y-%m-%d", form=daily_form)
    with place.database.read() as tx:
        (kept,) = inventories(tx, "default").values()
    assert kept == Inventory(
        jobs=frozenset({"rollup", "by_letter"}),
        job_partitions={"by_letter": Partitioning(keys=("a", "b"))},
        assets={
            "daily": days,
            "own_days": Partitioning(format="%Y-%m-%d"),
            "by_both": Partitioning(
                form=f'{{"multi":{{"date":{daily_form},"region":{{"static":["north","south"]}}}}}}'
            ),
            "raw/a": days,
            "region": Partitioning(keys=("north", "south")),
            "feed": None,
            "whole": None,
        },
        executable=frozenset({"daily", "region", "feed", "whole", "own_days", "by_both"}),
        sources=frozenset(),
        checks={},
        policies=frozenset(),
    )


def test_the_doctor_names_the_unknown_name_that_a_schedule_waits_for(place: Place) -> None:
    """The job of a manually created schedule has left the code; another one waits for a typo."""
    place.tick(definitions(rollup))
    made = [
        Schedule(name="runs", target="rollup", trigger=on.partitions("raw/a")),
        Schedule(name="typo", target={"assets": ["whole"]}, trigger=on.partitions("raw/aa")),
        Schedule(name="fine", target={"assets": ["whole"]}, trigger=on.partitions("raw/a")),
    ]
    with place.database.begin() as tx:
        control.apply(tx, ScheduleStore(), locked(tx, "default", "lake"), made, at(1))
    place.tick(definitions())
    (found,) = state_checks.locations()
    assert (found.check, found.status) == ("schedules of lake", "warning")
    assert found.found == (
        "Schedule(runs).target.job: got 'rollup', expected a job of this code location; it has "
        "none; Schedule(typo).trigger.partitions.asset: got 'raw/aa', expected an asset of a code "
        "location of this cluster; did you mean raw/a?"
    )


def test_partitions_that_cannot_be_mapped_are_refused_from_people_too(place: Place) -> None:
    """With both definitions; the doctor finds a schedule that was stored before."""
    job = dg.define_asset_job("days", ["daily"])
    place.tick(definitions(job))
    store = ScheduleStore()

    def made(target: Any, asset: str) -> Schedule:
        trigger = on.partitions(asset)
        return Schedule(name="s", target=target, trigger=trigger, partitions="each")

    def here(tx: sa.Connection) -> Location:
        return locked(tx, "default", "lake")

    expected = "daily partitions from 2026-01-01 (UTC)"
    for target in ("days", {"assets": ["daily"]}):
        with (
            place.database.begin() as tx,
            pytest.raises(InvalidDefinition, match="south.*") as refusal,
        ):
            control.apply(tx, store, here(tx), [made(target, "region")], at(1))
        (problem,) = refusal.value.problems
        assert problem.field == "Schedule(s).trigger.partitions.mapping"
        assert expected in problem.expected
    with place.database.begin() as tx:
        control.apply(tx, store, here(tx), [made("days", "raw/a")], at(1))
        control.apply(tx, store, here(tx), [made("days", "own_days")], at(1))
        control.apply(tx, store, here(tx), [], at(1), prune=True)
        store.add(tx, here(tx), [made("days", "region")], Origin.API, at(1))
    (found,) = state_checks.locations()
    assert (found.check, found.status) == ("schedules of lake", "warning")
    assert expected in found.found


def test_a_cycle_through_the_assets_of_a_job_is_found(place: Place) -> None:
    """Refused when the location loads; by the doctor where it was stored before."""
    job = dg.define_asset_job("whole_job", ["whole"])
    place.tick(definitions())
    made = Schedule(name="again", target="whole_job", trigger=on.partitions("whole"))
    store = ScheduleStore()
    with place.database.begin() as tx:
        store.add(tx, locked(tx, "default", "lake"), [made], Origin.API, at(1))
    place.tick(definitions(job))
    with place.database.read() as tx:
        (kept,) = inventories(tx, "default").values()
    assert kept.job_assets == {"whole_job": ("whole",)}
    (found,) = state_checks.locations()
    assert (found.check, found.status) == ("cycles of lake", "warning")
    assert found.found == (
        "Schedule(again).trigger: the schedule's own runs set it off. It never stops; no "
        "constraint keeps time between two runs"
    )

    declared = dg.Definitions.merge(
        dg.Definitions(assets=[whole], jobs=[job]),
        Arctic(schedules=[made], numbers_every=None).definitions(),
    )
    with pytest.raises(InvalidDefinition, match="its own runs do not satisfy"):
        RepositorySnap.from_def(declared.get_repository_def())
