"""Names in schedules are checked against what the code locations have."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.inventory import Inventory, Partitioning, inventories
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.mismatches import mismatches
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.explanation import explain_schedule
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule

DAYS = Partitioning(format="%Y-%m-%d")
OWN = Inventory(
    jobs=frozenset({"rollup", "load"}),
    assets={"raw/a": DAYS, "daily": DAYS, "region": Partitioning(keys=("north", "south"))},
    executable=frozenset({"daily", "region"}),
    job_assets={"load": ("daily", "region")},
)
THERE = Inventory(jobs=frozenset({"far"}), assets={"raw/b": None}, executable=frozenset({"raw/b"}))
KNOWN = {"here": OWN, "there": THERE}


def found(**fields: Any) -> list[tuple[str, bool]]:
    """Each unknown name as a message, and whether it is refused."""
    names = mismatches(schedule(**fields), "here", KNOWN)
    return [(str(unknown.problem), unknown.refused) for unknown in names]


def test_an_inventory_is_read_back_as_it_was_written() -> None:
    """Also when assets share their partitions; in a compact form."""
    assert Inventory.from_json(OWN.to_json()) == OWN
    assert Inventory.from_json(THERE.to_json()) == THERE
    assert OWN.to_json().count("%Y-%m-%d") == 1
    assert Inventory.from_json('{"form": 2, "jobs": {}}') is None
    exact = Partitioning(format="%Y-%m-%d", form='{"daily":{"start":"2026-01-01"}}')
    newer = replace(OWN, assets={"raw/a": exact}, job_assets={}, executable=frozenset(),
                    job_partitions={"load": exact})  # fmt: skip
    assert Inventory.from_json(newer.to_json()) == newer
    for sources in (frozenset[str](), frozenset({"files"})):
        of_sources = replace(OWN, sources=sources)
        assert Inventory.from_json(of_sources.to_json()) == of_sources
    for checks in ({}, {"raw/a": ("no_nulls", "sizes")}):
        with_checks = replace(OWN, checks=checks)
        assert Inventory.from_json(with_checks.to_json()) == with_checks
    for policies in (frozenset[str](), frozenset({"raw/a", "daily"})):
        with_policies = replace(OWN, policies=policies)
        assert Inventory.from_json(with_policies.to_json()) == with_policies
    earlier = json.loads(OWN.to_json())
    del earlier["made"]
    del earlier["jobs_by_partition"]
    earlier["partitions"] = [[keys, written] for keys, written, _ in earlier["partitions"]]
    assert Inventory.from_json(json.dumps(earlier)) == replace(OWN, job_assets={})


def test_a_sensor_that_is_no_source_is_refused() -> None:
    """Once the dispatcher has stored which ones there are."""
    waits = schedule(trigger=on.requests("fils"))
    known = {"here": replace(OWN, sources=frozenset({"files"}))}
    (unknown,) = mismatches(waits, "here", known)
    assert unknown.refused
    assert "trigger.requests.sensor" in str(unknown.problem)
    assert "files" in str(unknown.problem)
    assert list(mismatches(schedule(trigger=on.requests("files")), "here", known)) == []
    assert list(mismatches(waits, "here", KNOWN)) == []


A_CHECK = "expected a check of raw/a; did you mean no_nulls?"
NAMES_A_CHECK = [
    ({"trigger": on.check("raw_", "no_nuls")}, "trigger.check.name"),
    (
        {"trigger": on.cron("@daily") | on.partitions("raw_", checks=["no_nuls", "no_nulls"])},
        "trigger.any_of[1].partitions.checks",
    ),
    (
        {
            "trigger": on.run("load"),
            "constraints": [only.concurrency(1), only.checks_passed("raw_", "no_nuls")],
        },
        "constraints[1].checks_passed.checks",
    ),
]


@pytest.mark.parametrize(("fields", "path"), NAMES_A_CHECK)
def test_a_check_that_nothing_defines_is_a_remark(fields: dict[str, Any], path: str) -> None:
    """It can be reported from outside, or a location deployed later."""
    form = json.dumps(schedule(**fields).to_form())
    waits = Schedule.parse(json.loads(form.replace("raw_", "raw/a")))
    here = replace(OWN, checks={"raw/a": ("no_nulls",)})
    known = {"here": here, "there": replace(THERE, checks={})}
    (unknown,) = mismatches(waits, "here", known)
    assert str(unknown.problem) == f"Schedule(s).{path}: got 'no_nuls', {A_CHECK}"
    assert not unknown.refused
    # Another location may check an asset of this one, and earlier versions stored no checks.
    checked = replace(THERE, assets={"raw/a": None}, checks={"raw/a": ("no_nuls",)})
    assert list(mismatches(waits, "here", {"here": here, "there": checked})) == []
    assert list(mismatches(waits, "here", KNOWN)) == []


def test_the_partitions_of_a_target_are_those_of_its_parts() -> None:
    """Of a job its own, else of the assets it makes; parts that differ have none."""
    letters = Partitioning(keys=("a", "b"))
    known = replace(OWN, job_partitions={"rollup": letters})
    assert known.partitioning_of(Target(job="rollup")) == letters
    assert known.partitioning_of(Target(job="load")) is None
    assert known.partitioning_of(Target(assets=("daily",))) == DAYS
    assert known.partitioning_of(Target(assets=("daily", "raw/b"))) == DAYS
    assert known.partitioning_of(Target(assets=("daily", "region"))) is None


def test_names_that_are_there_are_not_mentioned() -> None:
    """Those of other locations neither, where they may stand."""
    triggers = (
        on.partitions("raw/b") & on.data("raw/a", "1GB"),
        on.run("load") | on.run(assets=["daily"]),
        on.run("far", location="there") | on.elapsed("1h", since=on.partitions("raw/a")),
    )
    for trigger in triggers:
        assert found(trigger=trigger) == []
    of_daily = {"target": {"assets": ["daily"]}, "partitions": "each"}
    assert found(**of_daily, trigger=on.run("load")) == []
    assert found(constraints=[only.fresh({"raw/b": 24, "load": 24})]) == []
    assert list(mismatches(schedule(target="x"), "nowhere", KNOWN)) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"target": "rolup"},
            "Schedule(s).target.job: got 'rolup', expected a job of this code location; "
            "did you mean rollup?",
        ),
        (
            {"target": {"assets": ["daliy"]}},
            "Schedule(s).target.assets: got 'daliy', expected an asset that this code location can "
            "run; did you mean daily?",
        ),
        (
            {"trigger": on.run("x")},
            "Schedule(s).trigger.run.job: got 'x', expected a job of this code location; "
            "it has: load, rollup",
        ),
        (
            {"trigger": on.cron("0 4 * * *") | on.run(assets=["daily", "raw/a"])},
            "Schedule(s).trigger.any_of[1].run.assets[1]: got 'raw/a', expected an asset that this "
            "code location can run; it has: daily, region",
        ),
    ],
)
def test_what_can_never_run_or_be_heard_is_refused(fields: dict[str, Any], message: str) -> None:
    """It names the field, the value, and the nearest name."""
    assert found(**fields) == [(message, True)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"trigger": on.partitions("raw/aa")},
            "Schedule(s).trigger.partitions.asset: got 'raw/aa', expected an asset of a code "
            "location of this cluster; did you mean raw/a or raw/b?",
        ),
        (
            {"trigger": on.run("farr", location="there")},
            "Schedule(s).trigger.run.job: got 'farr', expected one of there; did you mean far?",
        ),
        (
            {"trigger": on.run("far", location="nowhere")},
            "Schedule(s).trigger.run.location: got 'nowhere', expected a code location of this "
            "cluster that has ticked; did you mean here or there?",
        ),
        (
            {"constraints": [only.fresh({"raw/c": 24})]},
            "Schedule(s).constraints[0].fresh.parents: got 'raw/c', expected an asset of a code "
            "location of this cluster; did you mean raw/b or raw/a?",
        ),
    ],
)
def test_what_may_come_from_outside_is_a_remark(fields: dict[str, Any], message: str) -> None:
    """An asset that nothing defines can be announced, a location deployed later."""
    assert found(**fields) == [(message, False)]


def test_a_run_of_another_location_is_named_as_in_dagster() -> None:
    """The name of ``Arctic(location=...)`` is in no event that another location sees."""
    known = {"here": replace(OWN, known_as="loc_a"), "there": replace(THERE, known_as="loc_b")}
    far, own = schedule(trigger=on.run("far", location="loc_b")), on.run("load", location="here")
    assert list(mismatches(far, "here", known)) == []
    assert list(mismatches(schedule(trigger=own), "here", known)) == []
    for deaf, meant in (("there", "loc_b"), ("loc_a", "here")):
        (unknown,) = mismatches(schedule(trigger=on.run("far", location=deaf)), "here", known)
        assert str(unknown.problem).endswith(f"has ticked; did you mean {meant}?")


def test_a_key_is_checked_as_far_as_possible() -> None:
    """Static keys by their list, days by how they are written."""
    region, days = Partitioning(keys=("north", "south")), Partitioning(format="%Y-%m-%d")
    assert region.problem("north") is None
    assert region.problem("nrth") == "one of its partitions; did you mean north?"
    assert days.problem("2026-02-28") is None
    for wrong in ("2026-02-30", "2026-2-1", "tomorrow", ""):
        assert days.problem(wrong) == "a moment written as %Y-%m-%d"


def new_code(here: World, inventory: Inventory | None, seconds: float) -> Sequence[str]:
    """A new code server has its first tick; returns what it says."""
    here.engine = here.new_engine()
    here.engine.inventory = inventory
    return here.engine.tick(at(seconds)).remarks


def apply(here: World, *wanted: Schedule) -> None:
    with here.database.begin() as tx:
        place = locked(tx, "default", "here")
        control.apply(tx, ScheduleStore(), place, wanted, at(5))


def remarks(here: World, *wanted: Schedule) -> list[str]:
    with here.database.read() as tx:
        return control.remarks(tx, ScheduleStore(), locked(tx, "default", "here"), wanted)


def test_the_first_tick_of_a_code_server_keeps_its_inventory(world: MakeWorld) -> None:
    """Also where the schedules did not change; the one before is replaced."""
    here = world([])
    with here.database.read() as tx:
        assert inventories(tx, "default") == {}
    for number, inventory in enumerate((OWN, THERE)):
        new_code(here, inventory, number)
        with here.database.read() as tx:
            assert inventories(tx, "default") == {"here": inventory}
            assert inventories(tx, "other") == {}


def test_an_unknown_target_is_refused_when_it_is_applied(world: MakeWorld) -> None:
    """All or nothing; what is stored already, and does not change, is no obstacle."""
    here = world([])
    apply(here, schedule("old", target="gone_since"))
    new_code(here, OWN, 1)
    with pytest.raises(InvalidDefinition, match="did you mean rollup"):
        apply(here, schedule("fine"), schedule("wrong", target="rolup"))
    apply(here, schedule("fine"), schedule("old", target="gone_since"))
    with here.database.read() as tx:
        place = locked(tx, "default", "here")
        stored = [one.name for one in here.engine.store.in_location(tx, place.id)]
    assert stored == ["fine", "old"]


def test_without_an_inventory_nothing_is_refused_and_it_is_reported(world: MakeWorld) -> None:
    """As before the first tick, or the first one of this version."""
    here = world([])
    apply(here, schedule("wrong", target="rolup"))
    (text,) = remarks(here, schedule("wrong", target="rolup"))
    assert text.startswith("names were not checked: the code of here is not known yet")
    new_code(here, OWN, 1)
    assert remarks(here, schedule()) == []
    (text,) = remarks(here, schedule(trigger=on.partitions("raw/x")))
    assert "got 'raw/x'" in text


def test_a_tick_reports_no_run_of_another_location_by_its_name_in_dagster(world: MakeWorld) -> None:
    """Its own name in the state database is another one."""
    here = world([])
    new_code(here, OWN, 1)
    far = here.new_engine()
    far.location, far.owner, far.inventory = "there", "loc_b/__repository__", THERE
    far.tick(at(2))
    apply(here, schedule("hears", trigger=on.run("far", location="loc_b")))
    apply(here, schedule("deaf", trigger=on.run("far", location="there")))
    (text,) = new_code(here, OWN, 3)
    assert "Schedule(deaf).trigger.run.location: got 'there'" in text
    assert text.endswith("did you mean loc_b?")


def test_a_check_that_leaves_the_code_is_reported(world: MakeWorld) -> None:
    """By the first tick of the code without it."""
    here = world([])
    new_code(here, replace(OWN, checks={"raw/a": ("no_nulls",)}), 1)
    apply(here, schedule(trigger=on.partitions("raw/a", checks=["no_nulls"])))
    (text,) = new_code(here, replace(OWN, checks={}), 2)
    assert text == (
        "schedule and code do not match: Schedule(s).trigger.partitions.checks: got 'no_nulls', "
        "expected a check of raw/a; it has none"
    )


def test_what_leaves_the_code_is_reported_by_the_next_code_server(world: MakeWorld) -> None:
    """Of a target, and of a job that a manually created schedule listens to."""
    here = world([])
    new_code(here, OWN, 1)
    apply(here, schedule("deaf", trigger=on.run("load")), schedule("fine"))
    assert here.engine.tick(at(2)).remarks == ()
    fewer = Inventory(jobs=frozenset({"rollup"}), assets=OWN.assets, executable=OWN.executable)
    (text,) = new_code(here, fewer, 3)
    assert text == (
        "schedule and code do not match: Schedule(deaf).trigger.run.job: got 'load', expected a "
        "job of this code location; it has: rollup"
    )
    assert here.engine.tick(at(4)).remarks == ()
    with here.database.read() as tx:
        place = locked(tx, "default", "here")
        deaf, fine = (
            explain_schedule(tx, ScheduleStore(), place, name, at(5)) for name in ("deaf", "fine")
        )
    assert [text.partition(":")[0] for text in deaf.unknown] == ["Schedule(deaf).trigger.run.job"]
    assert fine.unknown == ()
