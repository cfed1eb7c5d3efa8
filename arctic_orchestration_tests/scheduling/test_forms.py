"""Schedules as they are written: in Python, YAML and JSON, and back."""

import json
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.constraints import only
from arctic_orchestration.scheduling.schedule import Schedule, Target, digest
from arctic_orchestration.triggers import on

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
    """Written out by hand from the design; only fields that differ stand inside a trigger."""
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


def _whole(value: timedelta) -> timedelta:
    return value - value % timedelta(milliseconds=1)


_LEAVES = st.one_of(
    st.builds(
        on.partitions,
        st.sampled_from(["a", "raw/b"]),
        count=st.integers(1, 9),
        where=st.none() | st.sampled_from(["*", "2026-*"]),
    ),
    st.builds(
        on.cron,
        st.sampled_from(["0 4 * * *", "H * * * *", "@daily"]),
        timezone=st.sampled_from(["UTC", "Asia/Kolkata"]),
        catch_up=st.sampled_from(["latest", "all", "none"]),
        grace=st.none() | st.timedeltas(timedelta(0), timedelta(days=9)).map(_whole),
    ),
    st.builds(on.run, st.sampled_from(["x", "y"]), count=st.integers(1, 9)),
    st.builds(lambda assets: on.run(assets=assets), st.lists(st.sampled_from("pq"), min_size=1)),
)  # fmt: skip
_TRIGGERS = st.recursive(_LEAVES, lambda inner: st.lists(inner, min_size=1, max_size=3).map(
    lambda children: on.any_of(*children)), max_leaves=6)  # fmt: skip


@given(
    trigger=_TRIGGERS,
    constraints=st.lists(
        st.builds(only.concurrency, st.integers(1, 9), group=st.none() | st.just("g"))
        | st.builds(only.delay, st.timedeltas(timedelta(0), timedelta(days=9)).map(_whole)),
        max_size=3,
    ),
)
def test_any_trigger_and_constraints_are_read_back(trigger: Any, constraints: list[Any]) -> None:
    """Nested as deeply as one likes, with the same leaves in the same order."""
    schedule = Schedule(name="s", target="job", trigger=trigger, constraints=constraints)
    again = Schedule.parse(yaml.safe_load(yaml.safe_dump(schedule.to_form())))
    assert again == schedule
    assert again.trigger.leaves == trigger.leaves
