"""The difference between two definitions, field by field."""

from typing import Any

import pytest

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_diff import ABSENT, differences
from arctic_orchestration.schedules.stored_schedule import Origin, ScheduleStatus, StoredSchedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.simulated import at


def schedule(name: str = "s", **fields: Any) -> Schedule:
    return Schedule(name=name, **{"target": "a", "trigger": on.partitions("x"), **fields})


def stored(of: Schedule, origin: Origin = Origin.API) -> StoredSchedule:
    return StoredSchedule(
        id=of.name,
        name=of.name,
        version=3,
        origin=origin,
        status=ScheduleStatus.ENABLED,
        schedule=of,
        leaves=of.trigger.leaves,
        notes_firings=False,
        is_scoped=False,
        kept=(),
        restarted=(),
        status_at=at(0),
        counts_from=None,
        until_event=None,
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"priority": 2}, [("priority", 0, 2)]),
        (
            {"trigger": on.partitions("x", count=2)},
            {"trigger": on.partitions("x", count=5)},
            [("trigger.partitions.count", 2, 5)],
        ),
        (
            {},
            {"trigger": on.partitions("x", count=5)},
            [("trigger.partitions.count", ABSENT, 5)],
        ),
        (
            {},
            {"trigger": on.run("b")},
            [("trigger", {"partitions": {"asset": "x"}}, {"run": {"job": "b"}})],
        ),
        (
            {"trigger": on.partitions("x") | on.cron("0 4 * * *")},
            {"trigger": on.partitions("x") | on.cron("0 5 * * *")},
            [("trigger.any_of[1].cron.expression", "0 4 * * *", "0 5 * * *")],
        ),
        (
            {"constraints": [only.concurrency(1), only.delay("5m")]},
            {"constraints": [only.concurrency(1)]},
            [("constraints[1]", {"delay": {"duration": "5m"}}, ABSENT)],
        ),
        ({"target": "a"}, {"target": "b"}, [("target.job", "a", "b")]),
        (
            {"properties": {"a": 1, "b": {"c": 1}}},
            {"properties": {"b": {"c": True}}},
            [("properties.a", 1, ABSENT), ("properties.b.c", 1, True)],
        ),
    ],
)
def test_each_field_that_differs_is_named_by_its_path(
    old: dict[str, Any], new: dict[str, Any], expected: list[tuple[str, Any, Any]]
) -> None:
    """As it stands in the YAML form; another kind of trigger is one change."""
    difference = differences([stored(schedule(**old))], [schedule(**new)])
    (change,) = difference.updated
    assert [(field.path, field.old, field.new) for field in change.fields] == expected


def test_what_is_new_changed_the_same_and_gone_is_distinguished() -> None:
    """What the code declares is never pruned; without prune nothing is deleted."""
    have = [
        stored(schedule("same")),
        stored(schedule("changed")),
        stored(schedule("gone")),
        stored(schedule("declared"), Origin.CODE),
    ]
    wanted = [schedule("same"), schedule("new"), schedule("changed", priority=1)]
    difference = differences(have, wanted)
    assert [one.name for one in difference.created] == ["new"]
    assert [one.name for one in difference.updated] == ["changed"]
    assert (difference.unchanged, difference.deleted) == (("same",), ())
    assert differences(have, wanted, prune=True).deleted == ("gone",)
    assert differences(have, [schedule("same")]).is_empty
