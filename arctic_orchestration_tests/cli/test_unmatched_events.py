"""``arctic events unmatched``: arrivals that map to no partition of a schedule's target."""

import json
import shlex
from collections.abc import Callable

import dagster as dg
import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from arctic_orchestration import Arctic
from arctic_orchestration.cli.doctor import state_checks
from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.metrics import Metrics
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.cli.test_target_partitions import MakeLake, arrive, make
from arctic_orchestration_tests.code_location.conftest import Place, place, storages
from arctic_orchestration_tests.schedules.lake_of_partitions import DAY, daily
from arctic_orchestration_tests.schedules.simulated import World, at

__all__ = ["make", "place", "storages"]

Command = Callable[..., Outcome]
NO_KEY = "2026-01-01|mars is no partition of raw/orders"


@pytest.fixture
def here(make: MakeLake) -> World:
    """Two arrivals of one asset, and one of another, that are none of its partitions."""
    made = make(
        [
            daily(trigger=on.partitions("raw/orders")),
            daily("days", trigger=on.partitions("raw/days")),
            daily("checked", trigger=on.partitions("raw/payments", checks="no_nulls")),
        ]
    )
    arrive(made, "2026-01-01|mars", "2026-01-01|emea", "2026-01-02|mars")
    arrive(made, "day one", asset="raw/days")
    made.tick(3 * DAY)
    return made


def test_they_are_listed_with_asset_key_schedule_and_reason(here: World, arctic: Command) -> None:
    """Newest first, of one schedule, so many; programs have the number of all."""
    document = json.loads(arctic("events", "unmatched", "--schedule", "daily", "--json").out)
    assert document["count"] == 2
    newest, oldest = document["arrivals"]
    assert newest["partition"] == "2026-01-02|mars"
    assert oldest == {
        "number": 1,
        "subject": "raw/orders",
        "partition": "2026-01-01|mars",
        "schedule": "daily",
        "waits_for": "match",
        "reason": NO_KEY,
        "arrived_at": oldest["arrived_at"],
    }
    table = arctic("events", "unmatched", "--limit", "1").out
    assert "day one is no partition of raw/days" in table
    assert table.endswith("1 of 3\n")
    assert arctic("events", "unmatched", "--schedule", "daly").code == 2


def test_what_waits_for_checks_is_listed_with_all(here: World, arctic: Command) -> None:
    """It is no arrival without a match, and says which check it waits for."""
    arrive(here, "2026-01-03", asset="raw/payments")
    here.tick(3 * DAY + 60)
    assert json.loads(arctic("events", "unmatched", "--json").out)["count"] == 3
    document = json.loads(arctic("events", "unmatched", "--all", "--json").out)
    newest = document["arrivals"][0]
    assert (newest["schedule"], newest["waits_for"]) == ("checked", "checks")
    assert newest["reason"] == "check no_nulls has not been evaluated"
    assert newest["reason"] in arctic("events", "unmatched", "--all").out


def test_what_waits_names_the_command_also_where_another_location_ticks(
    here: World, arctic: Command
) -> None:
    """With the location and the schedule of the arrival."""
    with here.database.begin() as tx:
        other = {"cluster": "default", "name": "other", "ticked_at": utc_now()}
        tx.execute(sa.insert(locations).values(other))
    waits = json.loads(arctic("waiting", "--kind", "arrival", "--json").out)["waits"]
    for action in {action for wait in waits for action in wait["actions"]}:
        done = arctic(*shlex.split(action)[1:])
        assert done.code == 0, (action, done)
        assert "is no partition of" in done.out


def test_without_any_the_command_and_doctor_say_so(make: MakeLake, arctic: Command) -> None:
    """``doctor`` by silence."""
    make([daily(trigger=on.partitions("raw/orders"))])
    assert arctic("events", "unmatched").out == "no unmatched arrivals\n"
    assert [f.check for f in state_checks.locations()] == ["location here"]


def test_doctor_and_the_metrics_count_them(here: World) -> None:
    """By what they wait for."""
    here.tick(3 * DAY + 1)
    (finding,) = [f for f in state_checks.locations() if f.check.startswith("unmatched")]
    assert (finding.check, finding.status) == ("unmatched arrivals of here", "warning")
    assert finding.found == (
        "3 arrivals without a target partition, the newest raw/days day one for schedule days: "
        "day one is no partition of raw/days"
    )
    assert finding.advice == "see: arctic events unmatched --location here"
    registry = CollectorRegistry()
    labels = {"cluster": "default", "location": "here"}
    Metrics(registry).count(here.database, **labels, now=at(0))
    found = {
        waits_for: registry.get_sample_value(
            "arctic_deferred_arrivals", {**labels, "waits_for": waits_for}
        )
        for waits_for in ("match", "checks", "code")
    }
    assert found == {"match": 3, "checks": 0, "code": 0}


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def raw() -> None: ...


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"), deps=[raw])
def summary() -> None: ...


def test_the_sensor_warns_of_them(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """Of those of its tick, by name, once."""
    schedule = daily(trigger=on.partitions("raw"))
    arctic = Arctic(schedules=[schedule], location="lake", numbers_every=None)
    code = dg.Definitions.merge(dg.Definitions(assets=[raw, summary]), arctic.definitions())
    place.tick(code)
    place.announce("2026-01-02", "2025-12-31", "today", "2025-12-30", "x", asset="raw")
    capfd.readouterr()
    place.tick(code)
    output = capfd.readouterr().err
    assert "4 arrivals map to no target partition: raw x for schedule daily: " in output
    assert "; and 1 more; see: arctic events unmatched" in output
    place.tick(code)
    assert "target partition" not in capfd.readouterr().err
