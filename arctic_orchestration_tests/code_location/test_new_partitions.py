"""Dynamic partitions of a target that arrivals bring: they are added with their runs."""

from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration_tests.code_location.conftest import Place

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
TENANTS = dg.DynamicPartitionsDefinition(name="tenants")
BY_TENANT = dg.MultiPartitionsDefinition({"day": DAYS, "tenant": TENANTS})


@dg.asset(partitions_def=TENANTS)
def bill() -> None: ...


@dg.asset(partitions_def=BY_TENANT)
def usage() -> None: ...


def location(target: Any, partitions: str, asset: str) -> dg.Definitions:
    """One schedule on an asset that has the partitions of the target, and is made elsewhere."""
    spec = dg.AssetSpec(asset.split("/"), partitions_def=target.partitions_def)
    schedule = Schedule(
        name="s", target=target, trigger=on.partitions(asset), partitions=partitions, enabled=True
    )
    return dg.Definitions.merge(
        dg.Definitions(assets=[spec, target]), Arctic(schedules=[schedule]).definitions()
    )


def _keys(tick: Any) -> list[tuple[str, str]]:
    """The first and the last partition of each run that a tick requests."""
    edges = [f"dagster/asset_partition_range_{edge}" for edge in ("start", "end")]
    return sorted(
        (request.tags.get(edges[0], request.partition_key),
         request.tags.get(edges[1], request.partition_key))
        for request in tick.run_requests or ()
    )  # fmt: skip


@pytest.mark.parametrize("partitions", ["each", "range"])
def test_a_new_key_of_a_dimension_is_added(place: Place, partitions: str) -> None:
    """As one of a target with a single dimension; a day that does not exist is not."""
    defs = location(usage, partitions, "raw/usage")
    place.instance.add_dynamic_partitions("tenants", ["acme"])
    place.tick(defs)
    place.announce("2026-01-01|acme", "2026-01-02|zeta", "2026-13-01|eta", asset="raw/usage")
    tick = place.tick(defs)
    assert _keys(tick) == [
        ("2026-01-01|acme", "2026-01-01|acme"), ("2026-01-02|zeta", "2026-01-02|zeta"),
    ]  # fmt: skip
    (added,) = tick.dynamic_partitions_requests or ()
    assert (added.partitions_def_name, list(added.partition_keys)) == ("tenants", ["zeta"])
    assert {state for _, state, _ in place.states()} == {"launching"}


@pytest.mark.parametrize("partitions", ["each", "range"])
def test_a_day_that_has_not_ended_is_waited_for(place: Place, partitions: str) -> None:
    """As one of a target with a single dimension: Dagster has no such partition before."""
    defs = location(usage, partitions, "raw/usage")
    place.tick(defs)
    place.announce("2026-01-01|acme", "2150-01-01|acme", asset="raw/usage")
    assert _keys(place.tick(defs)) == [("2026-01-01|acme", "2026-01-01|acme")]
    ((state, reason),) = [job[1:] for job in place.states() if job[1] != "launching"]
    assert state == "waiting_constraints"
    assert reason == "partition 2150-01-01|acme exists from 2150-01-02 00:00:00Z on"


def test_a_storage_that_stops_answering_fails_no_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher asks once whether the key exists, and the run is requested."""
    defs = location(bill, "each", "raw/bill")
    place.tick(defs)
    place.announce("acme", asset="raw/bill")
    asked: list[tuple[str, str]] = []

    def has(_: dg.DagsterInstance, name: str, key: str) -> bool:
        if (name, key) in asked:
            raise sa.exc.OperationalError("select", {}, Exception("too many clients already"))
        asked.append((name, key))
        return True

    monkeypatch.setattr(dg.DagsterInstance, "has_dynamic_partition", has)
    assert _keys(place.tick(defs)) == [("acme", "acme")]
    assert [state for _, state, _ in place.states()] == ["launching"]


def test_a_range_whose_end_was_deleted_is_not_run(place: Place) -> None:
    """Added again, its first key would be behind its last one: a run of nothing would succeed."""
    defs = location(bill, "range", "raw/bill")
    place.instance.add_dynamic_partitions("tenants", ["acme", "beta", "corp"])
    place.tick(defs)
    place.announce("acme", "beta", "corp", asset="raw/bill")
    assert _keys(place.tick(defs)) == [("acme", "corp")]
    place.instance.delete_dynamic_partition("tenants", "acme")
    tick = place.tick(defs)
    assert (_keys(tick), tick.dynamic_partitions_requests) == ([], [])
    (reason,) = [reason for _, state, reason in place.states() if state == "launching"]
    assert reason.startswith("partition 'acme' was deleted, with which the range acme to corp")


def of_tenant(tenant: str) -> dict[str, Any]:
    if tenant == "ghost":
        raise LookupError(f"{tenant} is no tenant")
    return {}


@dg.op
def post() -> None: ...


@dg.job(config=dg.PartitionedConfig(TENANTS, run_config_for_partition_key_fn=of_tenant))
def letters() -> None:
    post()


def test_a_key_whose_run_is_refused_is_not_added(place: Place) -> None:
    """Dagster would have a partition that no run can make."""
    schedule = Schedule(
        name="s", target="letters", trigger=on.partitions("raw/bill"), partitions="each",
        enabled=True,
    )  # fmt: skip
    bills = dg.AssetSpec(["raw", "bill"], partitions_def=TENANTS)
    defs = dg.Definitions.merge(
        dg.Definitions(assets=[bills], jobs=[letters]), Arctic(schedules=[schedule]).definitions()
    )
    place.tick(defs)
    place.announce("acme", "ghost", asset="raw/bill")
    assert _keys(place.tick(defs)) == [("acme", "acme")]
    assert [state for _, state, _ in place.states()] == ["launching", "failed"]
    assert place.instance.get_dynamic_partitions("tenants") == ["acme"]
