"""The events of a simulation answer what is asked of arrivals as Dagster's log does."""

from datetime import UTC, datetime, timedelta

from arctic_orchestration.event_log.arrival_checks import ArrivalChecks
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import ArrivalLookup, Position
from arctic_orchestration.schedules.simulator.world import World

AT = datetime(2026, 1, 1, tzinfo=UTC)


def world() -> World:
    return World(run_duration=timedelta(minutes=1))


def arrivals(made: World) -> list[Event]:
    return [event for event in made.events if event.kind is EventKind.PARTITION]


def test_a_partition_has_arrived_where_the_position_is_behind_it() -> None:
    """Also after more events were added; the empty key is an arrival without a partition."""
    made = world()
    lookup: ArrivalLookup = made
    made.arrive(AT, "a", "mon")
    made.arrive(AT, "a")
    assert lookup.arrived("a", ["mon", "", "tue"], made.end()) == {"mon", ""}
    assert lookup.arrived("a", ["mon", ""], Position({"read": 1})) == {"mon"}
    assert lookup.arrived("a", ["mon"], None) == set()
    made.arrive(AT, "a", "tue")
    assert lookup.arrived("a", ["mon", "tue"], made.end()) == {"mon", "tue"}
    assert lookup.arrived("b", ["mon"], made.end()) == set()


def test_an_arrival_has_the_checks_of_its_own_partition() -> None:
    """The failed check of Monday blocks Monday until it passes."""
    made = world()
    for day in ("mon", "tue"):
        made.arrive(AT, "a", day, checks=["c"])
    monday, tuesday = arrivals(made)
    assert made.checks_of([monday])[monday.storage_id] == ArrivalChecks(planned=frozenset("c"))
    made.evaluate(AT, "a", "c", "mon", passed=False, blocking=True)
    checks = made.checks_of([monday, tuesday])
    assert checks[monday.storage_id].blocked_by == ("c",)
    assert checks[tuesday.storage_id] == ArrivalChecks(planned=frozenset("c"))
    made.evaluate(AT, "a", "c", "mon", passed=True, blocking=True)
    assert made.checks_of([monday])[monday.storage_id].blocked_by == ()


def test_another_data_version_is_a_change() -> None:
    """Of the same partition."""
    made = world()
    for day, version in (("mon", "1"), ("mon", "1"), ("tue", "1"), ("mon", "2"), ("mon", None)):
        made.arrive(AT, "a", day, data_version=version)
    changed = made.changed(arrivals(made))
    assert [event.storage_id in changed for event in arrivals(made)] == [
        True, False, True, True, True,
    ]  # fmt: skip


def test_a_backfill_is_found_by_the_run_of_an_arrival() -> None:
    """Each arrival of it has a run; one that names none gets one."""
    made = world()
    made.arrive(AT, "a", "mon", backfill="b")
    made.arrive(AT, "a", "tue", backfill="b", run_id="mine")
    made.arrive(AT, "a", "wed")
    first, second, third = arrivals(made)
    assert made.backfills_of(["mine", first.run_id or "", "other"]) == {
        first.run_id: "b",
        "mine": "b",
    }
    assert (second.run_id, third.run_id) == ("mine", None)


def test_the_latest_evaluation_of_a_partition_counts() -> None:
    """And one without a partition for all of them."""
    made = world()
    made.evaluate(AT, "a", "c", "mon", passed=False)
    made.evaluate(AT, "a", "c", "tue", passed=True)
    made.evaluate(AT, "a", "whole", passed=True)

    def passed(partition: str | None) -> dict[str, bool | None]:
        found = made.latest_checks(["a", "b"], partition)
        assert found.keys() == {"a"}
        return {name: check.passed if check else None for name, check in found["a"].items()}

    assert passed(None) == {"c": True, "whole": True}
    assert passed("mon") == {"c": False, "whole": True}
    assert passed("wed") == {"c": None, "whole": True}


def test_a_freshness_policy_remembers_its_state() -> None:
    """A change says from which state to which."""
    made = world()
    made.change_freshness(AT, "a", "pass")
    made.change_freshness(AT, "a", "fail")
    assert [(e.previous_state, e.state) for e in made.events] == [
        ("unknown", "pass"),
        ("pass", "fail"),
    ]
