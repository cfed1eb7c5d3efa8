"""Moments at which nothing can happen are passed over, and no decision changes."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from arctic_orchestration.schedules.simulator import simulate
from arctic_orchestration_tests.schedules.simulator.test_simulator import (
    BEGIN,
    arrives,
    happens,
    schedule,
)

ONE_AT_A_TIME = {"concurrency": {"limit": 1, "group": "g"}}
SORTS: list[dict[str, Any]] = [
    {"trigger": {"partitions": {"asset": "a", "count": 2}}},
    {"trigger": {"partitions": {"asset": "a"}}, "constraints": [{"delay": {"duration": "7s"}}]},
    {"trigger": {"quiet": {"asset": "a", "duration": "9s", "max_wait": "25s"}}},
    {"trigger": {"data": {"asset": "a", "size": "50B", "max_wait": "30s"}}},
    {"trigger": {"elapsed": {"duration": "45s"}}},
    {
        "trigger": {
            "all_of": {
                "of": [{"partitions": {"asset": "a"}}, {"partitions": {"asset": "b"}}],
                "wait": "20s",
            }
        },
        "constraints": [ONE_AT_A_TIME],
    },
    {
        "trigger": {"partitions": {"asset": "b"}},
        "constraints": [ONE_AT_A_TIME],
        "coalesce": False,
        "priority": 3,
    },
    {
        "trigger": {"run": {"job": "s0", "status": ["success", "started"]}},
        "suspend_mode": "collect",
    },
    {
        "trigger": {"partitions": {"asset": "b"}},
        "partitions": "each",
        "constraints": [
            {"rate": {"limit": 2, "per": "1m"}},
            {"minimum_interval": {"duration": "5s"}},
        ],
        "timeout": "50s",
        "on_timeout": "launch",
    },
    {
        "trigger": {
            "any_of": [{"cron": {"expression": "* * * * *"}}, {"partitions": {"asset": "b"}}]
        },
        "constraints": [{"load": {"below": 0.5}}],
        "suspend_mode": "drain",
    },
]

LINES = st.one_of(
    st.builds(arrives, st.sampled_from("123"), st.sampled_from("abc"), st.integers(0, 40)),
    st.builds(
        lambda deed, number: {"do": deed, "schedule": f"s{number}"},
        st.sampled_from(["suspend", "resume"]),
        st.integers(0, 3),
    ),
    st.sampled_from(
        [
            {"do": "crash"},
            {"do": "restart"},
            {"do": "load", "value": 0.9},
            {"do": "load", "value": 0.0},
            {"event": "run", "job": "s0", "status": "success"},
            {"do": "start_run", "job": "s1"},
        ]
    ),
)


@settings(max_examples=15, deadline=None)
@given(
    # The job of the first is s0: its own runs must not set it off.
    sorts=st.lists(st.sampled_from(SORTS), min_size=4, max_size=4).filter(
        lambda sorts: "run" not in sorts[0]["trigger"]
    ),
    lines=st.lists(st.tuples(st.integers(0, 600), LINES), min_size=1, max_size=12),
    duration=st.sampled_from([3, 20]),
)
def test_passing_over_ticks_changes_no_decision(
    sorts: list[dict[str, Any]], lines: list[tuple[int, dict[str, Any]]], duration: int
) -> None:
    """Whatever schedules and lines (at fifths of a second): the same as ticking each second."""
    schedules = [schedule(f"s{number}", **sort) for number, sort in enumerate(sorts)]
    ordered = sorted(lines, key=lambda line: line[0])
    timeline = happens(*[(fifths / 5, line) for fifths, line in ordered])
    options: dict[str, Any] = {
        "run_duration": timedelta(seconds=duration),
        "until": BEGIN + timedelta(seconds=150),
    }
    quick = [found.to_json() for found in simulate(schedules, timeline, **options)]
    every = simulate(schedules, timeline, every_tick=True, **options)
    assert quick == [found.to_json() for found in every]
