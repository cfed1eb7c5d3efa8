"""Settings of a schedule that the code never fits, though it has every name."""

from dataclasses import replace
from typing import Any

import pytest

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.mismatches import mismatches
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.simulated import MakeWorld, schedule
from arctic_orchestration_tests.schedules.test_inventory import DAYS, OWN, apply, new_code, remarks


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"target": {"assets": ["daily"]}}, "daily"),
        ({"target": "load"}, "daily"),
        ({"target": "days"}, "days"),
    ],
)
def test_runs_without_a_partition_of_what_has_some_get_a_remark(
    fields: dict[str, Any], name: str
) -> None:
    """Of assets, of a job of assets, and of a job of ops; requests bring partitions themselves."""
    own = replace(OWN, jobs=OWN.jobs | {"days"}, job_partitions={"days": DAYS})
    expected = (
        "Schedule(s).partitions: got 'none', expected each or range: "
        f"{name} has partitions, and a run gets none of them"
    )
    (unknown,) = mismatches(schedule(**fields), "here", {"here": own})
    assert (str(unknown.problem), unknown.refused) == (expected, False)
    for fine in ({"partitions": "each"}, {"trigger": on.requests("files")}):
        assert list(mismatches(schedule(**fields, **fine), "here", {"here": own})) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"trigger": on.partitions("region", where="NORTH")},
            "trigger.partitions.where: got 'NORTH', expected a glob for partitions of region; it "
            "has: north, south",
        ),
        (
            {"trigger": on.partitions("region", count=3)},
            "trigger.partitions.count: got 3, expected at most 2: region has no more partitions "
            "that count",
        ),
        (
            {"trigger": on.partitions("region", count=2, where="n*")},
            "trigger.partitions.count: got 2, expected at most 1: region has no more partitions "
            "that count",
        ),
        (
            {"trigger": on.check("raw/a")},
            "trigger.check: got 'raw/a', expected an asset with checks: the code defines none",
        ),
        (
            {"trigger": on.partitions("raw/a", checks="passed")},
            "trigger.partitions: got 'raw/a', expected an asset with checks: the code defines none",
        ),
        (
            {"constraints": [only.checks_passed()]},
            "constraints[0].checks_passed: got 'raw/a', expected an asset with checks: the code "
            "defines none",
        ),
        (
            {"trigger": on.freshness("raw/a", state="fail")},
            "trigger.freshness.asset: got 'raw/a', expected an asset with a freshness policy",
        ),
        (
            {"constraints": [only.idle(assets=["raw/a"])]},
            "constraints[0].idle.assets: got 'raw/a', expected an asset that this code location "
            "can run; it has: daily, region",
        ),
        (
            {
                "trigger": on.cron("0 4 * * *", partition="current"),
                "partitions": "each", "target": "rollup",
            },
            "trigger.cron: got {'expression': '0 4 * * *', 'partition': 'current'}, expected a "
            "target with partitions by windows of time, and none are known of rollup",
        ),
        (
            {
                "trigger": on.partition_end("1h"),
                "partitions": "range", "target": "rollup",
            },
            "trigger.partition_end: got {'after': '1h'}, expected a target with partitions by "
            "windows of time, and none are known of rollup",
        ),
    ],
)  # fmt: skip
def test_what_can_never_be_met_is_reported(
    world: MakeWorld, fields: dict[str, Any], message: str
) -> None:
    """When it is applied, and by the first tick of the code; it is not refused."""
    here = world([])
    own = replace(OWN, checks={"region": ("sizes",)}, policies=frozenset({"region"}))
    new_code(here, own, 1)
    apply(here, schedule(**fields))
    assert remarks(here, schedule(**fields)) == [f"Schedule(s).{message}"]
    (text,) = new_code(here, replace(own, checks={"region": ()}), 2)
    assert text == f"schedule and code do not match: Schedule(s).{message}"


@pytest.mark.parametrize(
    "fields",
    [
        {"trigger": on.partitions("region", count=2, where="*")},
        {"trigger": on.partitions("region", count=9, distinct=False)},
        {"trigger": on.partitions("raw/a", count=9, where="2026*")},
        {"trigger": on.check("region")},
        {"trigger": on.freshness("region", state="fail")},
        {"trigger": on.partitions("region", checks="passed")},
        {"constraints": [only.checks_passed(["region"]), only.idle(assets=["region"])]},
    ],
)
def test_what_may_be_met_is_not_mentioned(fields: dict[str, Any]) -> None:
    """Keys of time cannot be listed, nor what an inventory does not say of checks and policies."""
    for checks, policies in (({"region": ("sizes",)}, frozenset({"region"})), (None, None)):
        own = replace(OWN, checks=checks, policies=policies)
        assert list(mismatches(schedule(**fields), "here", {"here": own})) == []


@pytest.mark.parametrize(
    ("assets", "refused"),
    [
        (["daily"], None),
        (["daily", "region"], None),
        (["region"], "'region', expected an asset that load makes; it has: daily"),
        (
            ["region", "raw/b"],
            "['region', 'raw/b'], expected an asset that load makes; it has: daily",
        ),
    ],
)
def test_assets_that_runs_of_a_job_never_make_are_refused(
    assets: list[str], refused: str | None
) -> None:
    """A run of the job counts if it makes one of them; of another location, no run is known."""
    own = replace(OWN, job_assets={"load": ("daily",)}, executable=OWN.executable | {"raw/b"})
    trigger = on.run("load", assets=assets)
    found = [
        (str(each.problem), each.refused)
        for each in mismatches(schedule(trigger=trigger), "here", {"here": own})
    ]
    path = "Schedule(s).trigger.run.assets: got"
    assert found == ([] if refused is None else [(f"{path} {refused}", True)])


def test_a_job_that_no_longer_makes_the_assets_is_reported(world: MakeWorld) -> None:
    """When the code is loaded. Earlier versions stored nothing of what jobs make."""
    here = world([])
    made = replace(OWN, job_assets={"load": ("daily",)})
    new_code(here, made, 1)
    trigger = on.cron("0 4 * * *") | on.run("load", assets=["daily"])
    apply(here, schedule(trigger=trigger))
    assert new_code(here, made, 2) == ()
    (text,) = new_code(here, replace(made, job_assets={"load": ("region",)}), 3)
    assert "'daily', expected an asset that load makes; it has: region" in text
    assert new_code(here, replace(made, job_assets={}), 4) == ()


def test_a_target_that_gets_partitions_is_reported(world: MakeWorld) -> None:
    """By the first tick of the code in which it has some."""
    here = world([])
    plain = replace(OWN, assets={**OWN.assets, "daily": None})
    new_code(here, plain, 1)
    apply(here, schedule(target={"assets": ["daily"]}), schedule("job", target="load"))
    before = "schedule and code do not match: Schedule({}).partitions: got 'none', expected each or"
    (text,) = new_code(here, plain, 2)
    assert text.startswith(before.format("job"))
    texts = new_code(here, OWN, 3)
    assert [text[: len(before.format("s"))] for text in texts] == [
        before.format("job")[: len(before.format("s"))],
        before.format("s"),
    ]
