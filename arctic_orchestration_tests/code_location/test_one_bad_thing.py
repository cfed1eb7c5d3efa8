"""One thing that cannot be used stops nothing beside it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.compaction.dagster.table_metrics import TASKS, ReportClock, key_of
from arctic_orchestration.compaction.queue import table_queues
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.dagster.inventory import inventory_of
from arctic_orchestration.schedules.inventory import Partitioning
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.code_location.conftest import Place

#: a file's name that is not UTF-8, as Python reads it, and one that no index of Postgres holds
ODD_KEYS = ["caf\udce9", "".join(chr(0x4E00 + number) for number in range(6_000)), "*"]


@dg.op
def nothing() -> None: ...


@dg.job
def good() -> None:
    nothing()


def location(*declared: Schedule, assets: Any = ()) -> dg.Definitions:
    """Assets that arrive, a schedule that must go on, and others."""
    listening = Schedule(name="good", target="good", trigger=on.partitions("raw/b"), enabled=True)
    arriving = [dg.AssetSpec(["raw", "b"]), *assets]
    return dg.Definitions.merge(
        dg.Definitions(assets=arriving, jobs=[good]),
        Arctic(schedules=[listening, *declared]).definitions(),
    )


def requested(place: Place, defs: dg.Definitions) -> list[tuple[str, str | None]]:
    """Schedule and partition of each run that one more arrival and a tick request."""
    place.announce("1", asset="raw/b")
    requests = place.tick(defs).run_requests or ()
    return sorted((request.tags["arctic/schedule"], request.partition_key) for request in requests)


@pytest.mark.parametrize("key", ODD_KEYS, ids=["surrogate", "long", "star"])
def test_a_target_partition_that_cannot_be_stored(place: Place, key: str) -> None:
    """Dagster takes its key; the arrival is kept with the reason, and counts for the others."""
    keys = dg.StaticPartitionsDefinition(["a", key])
    source = dg.AssetSpec(["raw", "a"], partitions_def=dg.StaticPartitionsDefinition(["1", "2"]))
    mapping = dg.StaticPartitionMapping({"1": "a", "2": key})

    @dg.asset(partitions_def=keys, deps=[dg.AssetDep(["raw", "a"], partition_mapping=mapping)])
    def odd() -> None: ...

    trigger = on.partitions("raw/a")
    each = Schedule(name="odd", target=odd, partitions="each", trigger=trigger, enabled=True)
    beside = Schedule(name="beside", target="good", trigger=trigger, enabled=True)
    defs = location(each, beside, assets=[source, odd])
    place.tick(defs)
    place.announce("2", asset="raw/a")
    assert requested(place, defs) == [("beside", None), ("good", None)]
    ((reason,),) = place.rows(deferred_arrivals, "reason")
    assert "target partition" in reason
    place.announce("1", asset="raw/a")
    assert ("odd", "a") in requested(place, defs)


def test_keys_of_a_configuration_that_cannot_be_stored_are_refused() -> None:
    """They would fail each tick; what can be written is taken as before."""
    fields: dict[str, Any] = {"name": "s", "target": "good", "trigger": on.partitions("raw/b")}
    with pytest.raises(InvalidDefinition, match="keys without half of a surrogate pair"):
        Schedule(**fields, run_config={"ops": [{"caf\udce9": 1}]})
    assert Schedule(**fields, run_config={"caf\udce9": {"path": "caf\udce9"}}).to_form()


@pytest.mark.parametrize("part", ["launch", "target", "hook", "text"])
def test_what_another_version_has_stored_and_this_one_cannot_read(place: Place, part: str) -> None:
    """A job that is about to be launched, and a schedule that a command made."""
    hook: Any = {"request": lambda _: dg.RunRequest()} if part in ("hook", "text") else {}
    odd = Schedule(name="odd", target="good", trigger=on.partitions("raw/a"), enabled=True, **hook)
    defs = location(odd, assets=[dg.AssetSpec(["raw", "a"])])
    place.tick(defs)
    place.announce("1", asset="raw/a")
    place.tick(defs)
    with place.database.begin() as tx:
        if part != "target":
            launch = json.loads(tx.execute(sa.select(jobs.c.launch)).scalar_one())
            del launch["trigger"]
            launch.pop("decided", None)
            written = "{" if part == "text" else json.dumps(launch)
            tx.execute(sa.update(jobs).values(launch=written, requested_tick=None))
        else:
            is_odd = schedules.c.name == "odd"
            spec = tx.execute(sa.select(schedules.c.spec).where(is_odd)).scalar_one()
            text = json.dumps({**json.loads(spec), "target": "jobs/good"})
            tx.execute(sa.update(schedules).where(is_odd).values(origin="api", spec=text))
    if part == "target":
        defs = location(assets=[dg.AssetSpec(["raw", "a"])])
    assert ("good", None) in requested(place, defs)
    if part != "target":
        (reason,) = (reason for name, _, reason in place.states() if name == "odd")
        problem = "JSONDecodeError(" if part == "text" else "KeyError('trigger')"
        assert reason.startswith(f"its stored request cannot be read: {problem}")


class OfService(dg.StaticPartitionsDefinition):
    """Partitions that a service lists, which may not answer."""

    is_down = False

    def get_partition_keys(self, *_: Any, **__: Any) -> list[str]:
        if self.is_down:
            raise ConnectionError("the service is down")
        return ["a"]


def test_partitions_that_cannot_be_listed() -> None:
    """They are unknown, as those of dynamic definitions are."""
    tenants = OfService(["a"])
    asset = dg.AssetSpec("tenants", partitions_def=tenants)
    repository = dg.Definitions(assets=[asset, dg.AssetSpec("other")]).get_repository_def()
    assert inventory_of(repository).assets["tenants"] == Partitioning(keys=("a",))
    tenants.is_down = True
    assert inventory_of(repository).assets == {"tenants": None, "other": None}


def test_a_report_of_a_table_that_somebody_else_has_made(place: Place) -> None:
    """Its numbers are not ours; both tables are due for a report."""
    now = datetime.now(UTC)
    with place.database.begin() as tx:
        for name in ("nyc.fine", "nyc.odd"):
            table_queues.see_table(tx, name, queue=None, level=0, now=now)
    odd = dg.AssetObservation(key_of("nyc.odd"), metadata={TASKS: "many"})
    place.instance.report_runless_asset_event(odd)
    clock = ReportClock(timedelta(seconds=1))
    due = clock.due(place.database, place.instance, now + timedelta(minutes=1), lambda _: True)
    assert sorted(due) == ["nyc.fine", "nyc.odd"]
