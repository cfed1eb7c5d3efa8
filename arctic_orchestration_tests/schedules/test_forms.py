"""Schedules as they are written: in Python, YAML and JSON, and back."""

import json
import re
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import yaml
from hypothesis import given
from pydantic import TypeAdapter

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import KINDS as constraint_kinds
from arctic_orchestration.schedules.constraints import AnyConstraint, Constraint, only
from arctic_orchestration.schedules.schedule import Schedule, Target, digest
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.triggers import KINDS as trigger_kinds
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.strategies import (
    CONSTRAINTS,
    LEAVES,
    constraints,
    forms,
    triggers,
)

PLAIN = Schedule(name="plain", target="rollup", trigger=on.partitions("raw/flights"))
FULL = Schedule(
    name="hourly_rollup",
    description="Three new feeds, or at four in the morning",
    target={"assets": ["hourly_rollup", "raw/other"]},
    trigger=on.any_of(
        on.partitions("raw/flights", count=3, where="2026-*"),
        on.cron("0 4 * * *", timezone="America/New_York", catch_up="all", grace="2h", dst="skip"),
        on.any_of(on.run(assets=["a", "b"], status=["success", "failure"], count=2)),
        on.run("ingest", location="there"),
    ),
    constraints=[only.concurrency(2, group="spark", otherwise="cancel"), only.delay("1h30m")],
    timeout=timedelta(hours=36),
    on_timeout="launch",
    priority=-3,
    coalesce=False,
    partitions="each",
    properties={"color": "blue", "levels": [1, 2.5, None, {"deep": True}]},
    tags={"team": "ops"},
    run_config={"ops": {"x": {"config": {"n": 1}}}},
    enabled=True,
)


@pytest.mark.parametrize("schedule", [PLAIN, FULL], ids=["plain", "full"])
def test_a_schedule_is_read_back_from_every_form(schedule: Schedule) -> None:
    """From its own form, and from JSON and YAML text of it."""
    form = schedule.to_form()
    assert Schedule.parse(form) == schedule
    assert Schedule.parse(json.loads(json.dumps(form))) == schedule
    assert Schedule.parse(yaml.safe_load(yaml.safe_dump(form))) == schedule


def test_the_form_is_the_one_that_people_write() -> None:
    """Written out manually from the design; only fields that differ stand inside a trigger."""
    assert FULL.to_form() == {
        "name": "hourly_rollup",
        "description": "Three new feeds, or at four in the morning",
        "target": {"assets": ["hourly_rollup", "raw/other"]},
        "trigger": {
            "any_of": [
                {"partitions": {"asset": "raw/flights", "count": 3, "where": "2026-*"}},
                {
                    "cron": {
                        "expression": "0 4 * * *",
                        "timezone": "America/New_York",
                        "catch_up": "all",
                        "grace": "2h",
                        "dst": "skip",
                    }
                },
                {"any_of": [{"run": {"assets": ["a", "b"], "status": ["success", "failure"],
                                     "count": 2}}]},
                {"run": {"job": "ingest", "location": "there"}},
            ]
        },
        "constraints": [
            {"concurrency": {"limit": 2, "group": "spark", "otherwise": "cancel"}},
            {"delay": {"duration": "1h30m"}},
        ],
        "timeout": "1d12h",
        "on_timeout": "launch",
        "suspend_mode": "drop",
        "priority": -3,
        "coalesce": False,
        "partitions": "each",
        "properties": {"color": "blue", "levels": [1, 2.5, None, {"deep": True}]},
        "tags": {"team": "ops"},
        "run_config": {"ops": {"x": {"config": {"n": 1}}}},
        "enabled": True,
    }  # fmt: skip


def test_yaml_gives_the_same_schedule_as_python() -> None:
    """As a file of schedules has it."""
    text = """
    name: hourly_rollup
    target: {job: rollup}
    trigger:
      any_of:
      - partitions: {asset: raw/flights, count: 3}
      - cron: {expression: "0 4 * * *", timezone: America/New_York}
      - run: {job: ingest, status: failure}
    constraints:
    - concurrency: {limit: 1}
    - delay: {duration: 5m}
    timeout: 1d
    enabled: true
    """
    assert Schedule.parse(yaml.safe_load(text)) == Schedule(
        name="hourly_rollup",
        target="rollup",
        trigger=on.partitions("raw/flights", count=3)
        | on.cron("0 4 * * *", timezone="America/New_York")
        | on.run("ingest", status="failure"),
        constraints=[only.concurrency(1), only.delay(timedelta(minutes=5))],
        timeout="1d",
        enabled=True,
    )


def test_a_target_is_a_job_its_name_or_assets() -> None:
    """All ways to write one target are one target in the store."""

    @dg.job
    def rollup() -> None: ...

    by_object = Schedule(name="s", target=rollup, trigger=on.partitions("a"))
    by_name = Schedule(name="s", target="rollup", trigger=on.partitions("a"))
    by_form = Schedule(name="s", target={"job": "rollup"}, trigger=on.partitions("a"))
    assert by_object.to_form() == by_name.to_form() == by_form.to_form()
    assert by_name.target == Target(job="rollup")
    selection = Schedule(name="s", target=dg.AssetSelection.assets("x"), trigger=on.partitions("a"))
    assert selection.target.is_selection
    assert not by_object.target.is_selection


def test_a_digest_changes_with_any_field_and_not_with_the_order() -> None:
    """Deployment asks it whether anything changed at all."""
    assert digest([PLAIN, FULL]) == digest([FULL, PLAIN])
    seen = {digest([PLAIN]), digest([]), digest([PLAIN, FULL])}
    for field, value in (("priority", 1), ("enabled", True), ("timeout", "2d"), ("name", "p")):
        seen.add(digest([Schedule.parse({**PLAIN.to_form(), field: value})]))
    seen.add(digest([PLAIN.model_copy(update={"trigger": on.partitions("raw/flights", count=2)})]))
    assert len(seen) == 8


def test_a_schedule_is_a_value() -> None:
    """Nobody changes one that is deployed."""
    with pytest.raises(ValueError, match="frozen"):
        PLAIN.priority = 2  # type: ignore[misc]


class _Yaml12(yaml.SafeDumper):
    """Quotes what YAML 1.1 reads as text and YAML 1.2, in which files are read, as a number."""


_Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def _yaml(form: object) -> str:
    return yaml.dump({"schedules": [form]}, Dumper=_Yaml12, allow_unicode=True)


@given(form=forms)
def test_any_schedule_is_read_back_from_every_form(form: dict[str, Any]) -> None:
    """From YAML, JSON and Python, with the same leaves in the same order."""
    schedule = Schedule.parse(form)
    written = schedule.to_form()
    for again in (
        *read_schedules(_yaml(written), name="s.yaml"),
        *read_schedules(_yaml(form), name="s.yaml"),
        *read_schedules(json.dumps({"schedules": [written]}), name="s.json"),
        Schedule(**written),
        Schedule.stored(json.loads(json.dumps(written))),
    ):
        assert again == schedule
        assert again.to_form() == written
        assert again.trigger.leaves == schedule.trigger.leaves
    assert digest([Schedule.parse(written)]) == digest([schedule])


@given(form=triggers)
def test_a_trigger_is_written_as_one_writes_it(form: dict[str, Any]) -> None:
    """Each level is a mapping of one kind, and no field stands there that was not given."""
    given = {"name": "s", "target": "job", "trigger": form, "timeout": "40d"}
    # Drawn without regard to what contradicts itself.
    written = Schedule.stored(given).to_form()["trigger"]
    _within(written, form)


@given(form=constraints)
def test_a_constraint_is_written_as_one_writes_it(form: dict[str, Any]) -> None:
    """A mapping of its kind, with no field that was not given, which is read back."""
    adapter = TypeAdapter[Constraint](AnyConstraint)
    constraint = adapter.validate_python(form)
    written = adapter.dump_python(constraint, mode="json")
    assert written == constraint.to_form()
    _within(written, form)
    assert adapter.validate_python(json.loads(json.dumps(written))) == constraint


def _within(written: Any, given: Any) -> None:
    """``written`` has the kinds and lists of ``given``, and no field that ``given`` lacks."""
    if isinstance(given, dict) and isinstance(written, dict):
        # ``all_of`` without spans may be written as its list alone.
        assert set(written) <= set(given)
        if len(given) == 1:
            assert set(written) == set(given)
        for key, value in written.items():
            _within(value, given[key])
    elif isinstance(given, list) and isinstance(written, list) and isinstance(given[0], dict):
        assert len(written) == len(given)
        for one, other in zip(written, given, strict=True):
            _within(one, other)


def test_every_kind_of_the_design_is_among_the_schedules_that_are_drawn() -> None:
    """Sections 4.1 and 4.2; a kind that is added is tested in a file of its own."""
    drawn = {*LEAVES, "elapsed", "all_of", "any_of"}
    assert drawn == {
        "cron",
        "partitions",
        "data",
        "quiet",
        "run",
        "elapsed",
        "check",
        "freshness",
        "all_of",
        "any_of",
    }
    assert drawn <= set(trigger_kinds)
    assert set(CONSTRAINTS) == {
        "concurrency",
        "rate",
        "window",
        "delay",
        "minimum_interval",
        "load",
        "fresh",
        "checks_passed",
        "idle",
    }
    assert set(CONSTRAINTS) <= set(constraint_kinds)


@dg.asset(key_prefix="raw")
def orders() -> None: ...


@dg.multi_asset(specs=[dg.AssetSpec("one"), dg.AssetSpec("two")])
def several() -> tuple[None, None]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    "asset",
    [orders, orders.key, dg.AssetSpec(["raw", "orders"]), "raw/orders"],
    ids=["definition", "key", "spec", "name"],
)
def test_an_asset_is_its_name_its_key_or_a_definition(asset: Any) -> None:
    """In every trigger with an asset, and as the target; what is stored is its name."""
    triggers_with = [
        on.partitions(asset),
        on.data(asset, "1GB"),
        on.quiet(asset, "10m"),
        on.check(asset),
        on.freshness(asset, state="fail"),
    ]
    for trigger in triggers_with:
        assert trigger.to_form()[trigger.kind]["asset"] == "raw/orders"
    assert on.run(assets=[asset]).to_form()["run"]["assets"] == ["raw/orders"]
    for target in ([asset, orders], orders):
        made = Schedule(name="s", target=target, trigger=on.partitions("other"))
        assert set(made.target.assets) == {"raw/orders"}


def test_a_definition_of_several_assets_is_no_asset() -> None:
    with pytest.raises(InvalidDefinition, match="partitions.asset: .*, expected text"):
        on.partitions(several)
