"""Schedules whose parts are right and contradict each other are refused when they are defined."""

from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration_tests.schedules.bad_schedules import GOOD

# What contradicts itself in the schedule, and the problems that are named, in order.
CONTRADICTIONS: list[tuple[dict[str, Any], list[tuple[str, Any, str]]]] = [
    (
        {"timeout": "1h", "constraints": [{"delay": {"duration": "2h"}}]},
        [("timeout", "1h", "a duration longer than constraints[0].delay.duration, 2h: "
          "the job is always discarded first")],
    ),
    (
        {"timeout": "1h", "trigger": {"quiet": {"asset": "a", "duration": "90m"}}},
        [("timeout", "1h", "a duration longer than trigger.quiet.duration, 1h30m: "
          "the job is always discarded first")],
    ),
    (
        {"trigger": {"data": {"asset": "a", "size": "1GB", "max_wait": "2d"}}},
        [("timeout", "1d", "a duration longer than trigger.data.max_wait, 2d: "
          "the job is always discarded first")],
    ),
    (
        {"trigger": {"quiet": {"asset": "a", "duration": "5m", "max_wait": "5m"}}},
        [("trigger.quiet.max_wait", "5m", "a duration longer than that of the quiet, 5m: "
          "else it never comes to quiet")],
    ),
    # Four and six in the morning are two hours apart, and twenty-two.
    (
        {"trigger": {"all_of": {"of": [{"cron": {"expression": "0 4 * * *"}},
                                       {"cron": {"expression": "0 6 * * *"}}], "within": "1h"}}},
        [("trigger.all_of.within", "1h", "a span that ticks of cron 0 4 * * * (UTC) and "
          "cron 0 6 * * * (UTC) ever fall into together")],
    ),
    (
        {"trigger": {"all_of": {"of": [{"partitions": {"asset": "a"}},
                                       {"partitions": {"asset": "b"}}], "within": "2d"}}},
        [("trigger.all_of.within", "2d", "at most the timeout, 1d: "
          "a job that waits for longer is discarded")],
    ),
    (
        {"constraints": [{"window": {"start": "08:00", "end": "10:00"}},
                         {"window": {"start": "10:00", "end": "12:00"}}]},
        [("constraints", [{"window": {"start": "08:00", "end": "10:00"}},
                          {"window": {"start": "10:00", "end": "12:00"}}],
          "windows that are ever open at the same time")],
    ),
    # At noon the window of the night is ten hours away, and the job lives for one.
    (
        {"trigger": {"cron": {"expression": "0 12 * * *"}}, "timeout": "1h",
         "constraints": [{"window": {"start": "22:00", "end": "06:00"}}]},
        [("constraints[0].window", {"start": "22:00", "end": "06:00"},
          "a window that is open within the timeout, 1h, after any tick of cron 0 12 * * * (UTC): "
          "else no job is ever admitted")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "problems"), CONTRADICTIONS, ids=[problems[0][2] for _, problems in CONTRADICTIONS]
)
def test_what_contradicts_itself_is_named(
    wrong: dict[str, Any], problems: list[tuple[str, Any, str]]
) -> None:
    """At definition: such a schedule would wait, and never say why."""
    with pytest.raises(InvalidDefinition) as refusal:
        Schedule.parse({**GOOD, **wrong}, field="schedules[0]")
    assert [(one.field, one.value, one.expected) for one in refusal.value.problems] == [
        (f"schedules[0].{field}", value, expected) for field, value, expected in problems
    ]
