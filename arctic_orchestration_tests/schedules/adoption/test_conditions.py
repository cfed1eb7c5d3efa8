"""What the automation conditions of assets become, and what differs."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted, drafts_of

AC = dg.AutomationCondition
NOW = datetime(2026, 3, 2, tzinfo=UTC)
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
A, B = ({"partitions": {"asset": name}} for name in "ab")
BUSY = [{"idle": {"assets": ["a", "b"]}}, {"concurrency": {"limit": 1}}]
TICK = {"expression": "0 4 * * *", "timezone": "Europe/Berlin"}
ON_CRON = AC.on_cron("0 4 * * *", "Europe/Berlin")


def drafted(condition: Any, *, deps: str = "ab", days: bool = False) -> Drafted:
    """What the condition of an asset becomes."""
    partitions = DAYS if days else None

    @dg.asset(automation_condition=condition, deps=list(deps), partitions_def=partitions)
    def made() -> None: ...

    specs = [dg.AssetSpec(name, partitions_def=partitions) for name in "ab"]
    defs = dg.Definitions(assets=[made, *specs])
    found = drafts_of(defs.get_repository_def(), NOW)
    (one,) = [one for one in found if one.name == "asset:made"]
    assert one.kind == "automation_condition"
    return one


@pytest.mark.parametrize(
    ("condition", "trigger", "constraints"),
    [
        (AC.eager(), {"any_of": [A, B]}, BUSY),
        (AC.eager().without(~AC.in_progress()), {"any_of": [A, B]}, BUSY[:1]),
        (AC.any_deps_updated(), {"any_of": [A, B]}, []),
        (ON_CRON, {"then": [{"cron": TICK}, {"all_of": [A, B]}]}, []),
        (AC.cron_tick_passed("0 4 * * *", "Europe/Berlin"), {"cron": TICK}, []),
        (AC.cron_tick_passed("0 4 * * *", "Europe/Berlin") | AC.any_deps_updated(),
         {"any_of": [{"cron": TICK}, {"any_of": [A, B]}]}, []),
        (AC.any_deps_updated() & ~AC.any_deps_in_progress(), {"any_of": [A, B]}, BUSY[:1]),
    ],
)  # fmt: skip
def test_a_condition_becomes_a_trigger_and_constraints(
    condition: Any, trigger: dict[str, Any], constraints: list[dict[str, Any]]
) -> None:
    """Without partitions; two dependencies that have no condition of their own."""
    form = drafted(condition).draft.form
    assert form is not None
    assert form["trigger"] == trigger
    assert form.get("constraints", []) == constraints
    assert form["target"] == {"assets": ["made"]}
    assert form["enabled"] is True


def test_with_partitions_each_of_the_target_is_run() -> None:
    """eager wants all of what maps to it; on_missing each partition once."""
    eager = drafted(AC.eager(), days=True).draft.form
    assert eager is not None
    assert eager["partitions"] == "each"
    both = [{"partitions": {"asset": name, "complete": True}} for name in "ab"]
    assert eager["trigger"] == {"any_of": both}
    missing = drafted(AC.on_missing(), deps="a", days=True).draft.form
    assert missing is not None
    once = {"asset": "a", "complete": True, "late": "ignore"}
    assert missing["trigger"] == {"partitions": once}


def test_what_differs_is_said() -> None:
    """A tick alone is exact; the others have reasons."""
    assert drafted(AC.cron_tick_passed("0 4 * * *")).outcome.value == "exact"
    eager = drafted(AC.eager(), days=True)
    assert eager.outcome.value == "approximate"
    assert [reason.partition(":")[0] for reason in eager.draft.reasons] == [
        "in_latest_time_window",
        "any_deps_missing",
        "newly_updated",
        "newly_missing",
    ]


@pytest.mark.parametrize(
    ("condition", "fields", "reason"),
    [
        (ON_CRON, {"days": True}, "on_cron: the trigger then is not evaluated for each partition"),
        (AC.code_version_changed(), {}, "code_version_changed: no event of a trigger means this"),
        (AC.on_missing(), {}, "on_missing: without partitions it runs once: request it manually"),
        (AC.eager(), {"deps": ""}, "the asset has no dependency whose arrival would set it off"),
        (AC.any_deps_updated() & AC.missing(), {},
         "&: any_deps_updated, missing: expected one condition that an event makes true"),
        (ON_CRON | AC.any_deps_updated(), {},
         "|: on_cron beside another condition: it needs a schedule of its own"),
    ],
)  # fmt: skip
def test_what_has_no_trigger_is_named(condition: Any, fields: dict[str, Any], reason: str) -> None:
    """The operand, and what was expected."""
    one = drafted(condition, **fields)
    assert one.draft.form is None
    assert one.draft.reasons[0] == reason
