"""``elapsed``: a while after the last launch, or after an event."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules.triggers import Arrivals, on
from arctic_orchestration.schedules.triggers.base import Leaf
from arctic_orchestration.schedules.triggers.elapsed import Elapsed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TICK = Event(kind=EventKind.TICK, subject="s", at=NOON)


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def arrival(partition: str) -> Event:
    return Event(kind=EventKind.PARTITION, subject="raw/x", at=NOON, partition=partition)


def taken(*events: tuple[float, Event]) -> Arrivals:
    """Different events, each so many hours after noon."""
    here = Arrivals()
    for count, event in events:
        here = here.with_event(event, new_partition=True, at=NOON + hours(count))
    return here


def test_its_timer_ends_once_however_long_nothing_ran() -> None:
    """Due at noon, seen nine hours later: one tick, and the next four hours from then."""
    leaf = on.elapsed("4h")
    assert leaf.next_tick(NOON, "s") == NOON + hours(4)
    ticks = leaf.ticks_due(NOON, NOON + hours(9), "s")
    assert ticks.deliver == (NOON,)
    assert ticks.next_at == NOON + hours(13)


def test_it_fires_at_its_tick_and_counts_from_the_last_launch() -> None:
    """The engine sets the timer again when a job was admitted."""
    leaf = on.elapsed("4h")
    assert leaf.restarts_at_launch
    assert not leaf.restarts_at(taken((0, TICK)), NOON)
    waiting = leaf.evaluate([Arrivals()], NOON)
    assert not waiting.satisfied
    assert waiting.reason == "4h have not passed since the last launch"
    fired = leaf.evaluate([taken((1, TICK), (5, TICK))], NOON + hours(6))
    assert fired.satisfied
    assert fired.reason == "4h have passed since the last launch"
    assert (fired.first_at, fired.last_at) == (NOON + hours(1), NOON + hours(5))


def test_since_the_last_launch_it_wants_no_events() -> None:
    """Only time."""
    leaf = on.elapsed("4h", since="last_launch")
    assert (leaf.keys("here"), leaf.asset_fields(), leaf.job_name_fields()) == ((), {}, {})


@pytest.mark.parametrize(
    "since",
    [
        on.partitions("raw/x", count=2, where="2026-*"),
        on.data("raw/x", "1KB"),
        on.run("rollup", status="failure"),
        on.run(assets=["a"], location="there"),
    ],
)
def test_since_an_event_it_takes_the_events_of_that_trigger(since: Any) -> None:
    """They are looked up, checked and given to the job like its own."""
    leaf: Leaf = on.elapsed("4h", since=since)
    assert leaf.keys("here") == since.keys("here")
    for named, own in (
        (leaf.asset_fields(), since.asset_fields()),
        (leaf.job_name_fields(), since.job_name_fields()),
    ):
        assert named == {f"since.{since.kind}.{field}": name for field, name in own.items()}
    assert not leaf.restarts_at_launch
    for partition in ("2026-01-01", "2025-01-01"):
        assert leaf.takes(arrival(partition)) is since.takes(arrival(partition))


def test_each_firing_of_the_event_restarts_the_time() -> None:
    """At the second partition of two, and at each arrival after it; not at the first."""
    leaf = on.elapsed("4h", since=on.partitions("raw/x", count=2))
    events = [(hour, arrival(str(hour))) for hour in range(3)]
    assert [leaf.restarts_at(taken(*events[:count]), NOON) for count in (1, 2, 3)] == [
        False, True, True,
    ]  # fmt: skip


def test_it_says_what_it_counts_from_and_until_when() -> None:
    """Before the event what is missing; after it when it will fire; then that it has."""
    leaf = on.elapsed("4h", since=on.partitions("raw/x", count=2))
    reasons = [
        leaf.evaluate([taken(*events)], NOON + hours(9)).reason
        for events in (
            [(0, arrival("a"))],
            [(0, arrival("a")), (1, arrival("b"))],
            [(0, arrival("a")), (1, arrival("b")), (5, TICK)],
        )
    ]
    assert reasons == [
        "fires 4h after: 1 of 2 partitions of raw/x have arrived",
        "2 of 2 partitions of raw/x have arrived; fires 4h later, at 2026-01-01 17:00:00Z",
        "4h have passed since the last event of raw/x",
    ]


def test_only_its_tick_makes_it_fire() -> None:
    """However late it is asked: the timer knows of restarts, the arrivals do not."""
    leaf = on.elapsed("4h", since=on.partitions("raw/x"))
    assert not leaf.evaluate([taken((0, arrival("a")))], NOON + hours(99)).satisfied
    fired = leaf.evaluate([taken((0, arrival("a")), (4, TICK))], NOON + hours(4))
    assert fired.satisfied
    assert (fired.first_at, fired.last_at) == (NOON + hours(4), NOON + hours(4))


def test_a_tick_is_no_event_of_the_other_trigger() -> None:
    """Two ticks and one run or partition are not two runs or partitions."""
    run = Event(kind=EventKind.RUN, subject="rollup", at=NOON, status=RunStatus.SUCCESS)
    for since, event in (
        (on.run("rollup", count=2), run),
        (on.partitions("raw/x", count=2), arrival("a")),
    ):
        leaf = on.elapsed("4h", since=since)
        here = taken((4, TICK), (8, TICK), (9, event))
        assert not leaf.restarts_at(here, NOON + hours(9))
        assert leaf.restarts_at(
            here.with_event(event, new_partition=True, at=NOON + hours(10)), NOON + hours(10)
        )


@pytest.mark.parametrize(
    "since",
    [
        "launch", 5, None, [], {},
        {"cron": {"expression": "0 4 * * *"}},
        {"quiet": {"asset": "a", "duration": "5m"}},
        {"elapsed": {"duration": "5m"}},
        {"any_of": [{"partitions": {"asset": "a"}}]},
        {"partitions": {"asset": "a"}, "run": {"job": "j"}},
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(since: object) -> None:
    """Only a launch, or one leaf that is satisfied by an event and not by time."""
    with pytest.raises(InvalidDefinition) as refusal:
        Elapsed.parse({"duration": "4h", "since": since}, field="elapsed")
    (problem,) = refusal.value.problems
    assert problem.field == "elapsed.since"
    assert problem.expected == "last_launch, or a trigger: one of partitions, data, run"


def test_triggers_of_time_are_refused_as_objects_too() -> None:
    """In Python as in YAML."""
    for since in (on.cron("@daily"), on.quiet("a", "5m"), on.partitions("a") | on.run("j")):
        with pytest.raises(InvalidDefinition):
            on.elapsed("4h", since=since)  # type: ignore[arg-type]
    with pytest.raises(InvalidDefinition) as refusal:
        on.elapsed("4h", since=on.data("a", "1GB", max_wait="1h"))
    assert "data without max_wait" in str(refusal.value)


def test_a_problem_of_the_event_is_named_with_its_path() -> None:
    """As it stands in the YAML form."""
    form = {"duration": "0s", "since": {"partitions": {"asset": "a", "count": 0}}}
    with pytest.raises(InvalidDefinition) as refusal:
        Elapsed.parse(form, field="elapsed")
    assert [problem.field for problem in refusal.value.problems] == [
        "elapsed.duration",
        "elapsed.since.partitions.count",
    ]
