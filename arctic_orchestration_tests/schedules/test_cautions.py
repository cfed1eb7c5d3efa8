"""What is seldom meant is said where the schedule is defined."""

from datetime import datetime
from typing import Any

import pytest

from arctic_orchestration import Arctic
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.definition_warnings import cautions
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import Cron, on

THREE = on.partitions("raw/a", count=3)


def warnings_of(trigger: Any, *constraints: Any, **fields: Any) -> list[str]:
    schedule = Schedule(name="s", target="j", trigger=trigger, constraints=constraints, **fields)
    return cautions([schedule])


def test_a_delay_takes_its_hours_from_the_default_timeout() -> None:
    """Of 24 hours a delay of 6 leaves 18 to a trigger that fills slowly."""
    assert warnings_of(THREE, only.delay("6h")) == [
        "Schedule(s).timeout: not set, so 1d from the first event. The delay of 6h leaves 18h for "
        "the trigger to be satisfied; what arrives more slowly is discarded. Set timeout"
    ]


@pytest.mark.parametrize(
    "trigger",
    [
        THREE | on.cron("0 4 * * *"),
        on.data("raw/a", "1GB"),
        on.quiet("raw/a", "5m"),
        on.partitions("raw/a") & on.partitions("raw/b"),
        on.run(job="other", count=2),
    ],
)
def test_so_does_each_trigger_that_takes_several_events(trigger: Any) -> None:
    """A count, a size, a quiet, or several triggers."""
    assert len(warnings_of(trigger, only.delay("6h"))) == 1


def test_what_was_meant_is_not_mentioned() -> None:
    """A timeout that is written, a job that is launched at its end, one event, a short delay."""
    assert warnings_of(THREE, only.delay("6h"), timeout="1d") == []
    assert warnings_of(THREE, only.delay("6h"), on_timeout="launch") == []
    assert warnings_of(on.partitions("raw/a"), only.delay("6h")) == []
    assert warnings_of(THREE, only.delay("59m")) == []
    assert warnings_of(THREE) == []


@pytest.mark.parametrize(
    ("constraint", "longest"),
    [
        (only.minimum_interval("2d"), "2d"),
        (only.rate(1, per="1d"), "1d"),
        # From Monday 06:00, when Sunday's ends, to Sunday 22:00.
        (only.window("22:00", "06:00", days=["sun"]), "6d16h"),
        # From Friday 17:00 to Monday 09:00.
        (only.window("09:00", "17:00", days=["mon", "tue", "wed", "thu", "fri"]), "2d16h"),
    ],
)
def test_a_constraint_that_outlasts_the_timeout_discards(constraint: Any, longest: str) -> None:
    """What arrives just after it began to hold is gone before it lets go."""
    (text,) = warnings_of(on.partitions("raw/a"), only.concurrency(1), constraint)
    assert text == (
        f"Schedule(s).constraints[1].{constraint.kind}: it can hold a job for {longest}, and the "
        "job is discarded after the timeout, 1d from its first event. Set a longer timeout, or "
        "on_timeout: launch"
    )
    assert warnings_of(on.partitions("raw/a"), constraint, timeout="7d") == []


def test_a_constraint_that_lets_go_in_time_is_not_mentioned() -> None:
    """A night's window is closed for 16 hours; a rate of several seldom holds for its span."""
    night = only.window("22:00", "06:00", timezone="America/New_York")
    assert warnings_of(on.partitions("raw/a"), night) == []
    assert warnings_of(on.partitions("raw/a"), only.rate(100, per="7d")) == []
    assert warnings_of(on.partitions("raw/a"), only.rate(1, per="7d", otherwise="cancel")) == []


def test_a_window_that_contains_each_tick_is_not_mentioned() -> None:
    """Closed for days, it holds no job; one tick outside is enough."""
    workdays = only.window("00:00", "24:00", days=["mon", "tue", "wed", "thu", "fri"])
    assert warnings_of(on.cron("0 6 * * 1-5"), workdays) == []
    assert len(warnings_of(on.cron("0 6 * * 0-5"), workdays)) == 1
    assert len(warnings_of(on.cron("0 6 * * 1-5") | on.cron("0 6 1 1 *"), workdays)) == 1
    assert len(warnings_of(on.cron("0 6 * * 1-5") | on.partitions("raw/a"), workdays)) == 1


def test_few_ticks_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding one takes some 0.4 ms, and a location may have thousands of crons."""
    found: list[datetime] = []
    next_tick = Cron.next_tick

    def follow(self: Cron, after: datetime, name: str) -> datetime | None:
        found.append(after)
        return next_tick(self, after, name)

    weekdays = only.window("00:00", "24:00", days=["mon", "tue", "wed", "thu", "fri"])
    night = only.window("05:00", "22:00")
    schedules = [
        Schedule(name="s", target="j", trigger=on.cron("0 6 * * 1-5"), constraints=[window])
        for window in (weekdays, night)
    ]
    monkeypatch.setattr(Cron, "next_tick", follow)
    assert [(cautions([schedule]), len(found)) for schedule in schedules] == [([], 8), ([], 8)]


def test_the_code_that_declares_it_is_warned() -> None:
    """At the line that makes the Arctic."""
    schedule = Schedule(name="s", target="j", trigger=THREE, constraints=[only.delay("6h")])
    with pytest.warns(UserWarning, match=r"Schedule\(s\).timeout: not set") as warned:
        Arctic(schedules=[schedule])
    assert warned[0].filename == __file__


def test_a_timeout_of_nothing_is_refused() -> None:
    """Each job would be discarded before it was looked at."""
    for on_timeout in ("discard", "launch"):
        with pytest.raises(InvalidDefinition) as refused:
            warnings_of(THREE, timeout="0s", on_timeout=on_timeout)
        assert refused.value.field == "Schedule(s).timeout"
        assert refused.value.expected == "a duration longer than 0s"


def test_a_grace_of_nothing_is_refused() -> None:
    """No dispatcher is on time to the microsecond."""
    with pytest.raises(InvalidDefinition) as refused:
        warnings_of(on.cron("0 4 * * *", grace="0s"))
    assert refused.value.field == "Schedule(s).trigger.cron.grace"


@pytest.mark.parametrize(
    "expression", ["R 4 * * *", "0 r * * *", "R(0-10) 4 * * *", "R/5 * * * *", "0 4 1,R * *"]
)
def test_random_moments_are_refused(expression: str) -> None:
    """They are drawn again at each look, and lose ticks."""
    with pytest.raises(InvalidDefinition) as refused:
        on.cron(expression)
    assert refused.value.field == "cron.expression"
    assert "H in place of R" in refused.value.expected


def test_names_with_an_r_are_names() -> None:
    """Friday, March and April; and H spreads by the schedule's name."""
    for expression in ("0 4 * * fri", "0 4 1 MAR,apr *", "H 4 * * *", "H(0-10)/5 4 * * FRI"):
        assert on.cron(expression).expression == expression
