"""What Prometheus reads: numbers worked out from what a few jobs go through."""

import socket
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import event

from arctic_orchestration import Schedule, on, only
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules.metrics import Metrics
from arctic_orchestration.schedules.tick_result import TickResult
from arctic_orchestration.schedules.views.numbers import numbers
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World, at

PLACE: dict[str, Any] = {"cluster": "default", "location": "here"}
Worlds = Callable[[Sequence[Schedule]], World]


class Watched:
    """A world whose ticks are measured, each as if it had taken a quarter of a second."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def tick(self, second: float) -> list[str]:
        result = self.world.engine.tick(at(second))
        lags = [timedelta(seconds=2)] * result.counts["events"]
        late = replace(result, lags=lags)
        self.metrics.observe(late, **PLACE, now=at(second), seconds=0.25)
        return self.world.dagster.submit(result.requests)

    def value(self, name: str, **labels: str) -> float:
        """A sample's value; 0 if there is none."""
        return self.registry.get_sample_value(f"arctic_{name}", {**PLACE, **labels}) or 0


def schedule(name: str, *constraints: Any, **fields: Any) -> Schedule:
    return Schedule(
        **{
            "name": name,
            "target": {"job": name},
            "trigger": on.partitions("raw/a"),
            "constraints": constraints,
            "enabled": True,
            **fields,
        }
    )


def test_events_jobs_and_runs_are_counted(world: Worlds) -> None:
    """Two schedules take one event of three; both are admitted and requested."""
    watched = Watched(world([schedule("one"), schedule("two")]))
    for asset in ("raw/a", "raw/b", "raw/c"):
        watched.world.feed.arrive(asset, "1")
    runs = watched.tick(1)
    assert watched.value("events_read_total") == 3
    assert watched.value("events_matched_total") == 2
    assert watched.value("jobs_admitted_total") == 2
    assert watched.value("runs_requested_total") == 2
    assert watched.value("job_moves_total", state="launching") == 2
    assert watched.value("event_lag_seconds_count") == 3
    assert watched.value("event_lag_seconds_sum") == 6
    assert watched.value("event_lag_seconds_bucket", le="1.0") == 0
    assert watched.value("event_lag_seconds_bucket", le="2.5") == 3
    assert watched.value("tick_seconds_sum") == 0.25
    for run in runs:
        watched.world.dagster.end(run, RunStatus.SUCCESS)
    watched.tick(2)
    watched.tick(3)
    assert watched.value("job_moves_total", state="succeeded") == 2
    assert watched.value("tick_seconds_count") == 3


def test_a_wait_counts_for_the_constraint_that_held_last(world: Worlds) -> None:
    """A delay until 10, then the slot of the first run until 40: the wait is concurrency's."""
    watched = Watched(
        world([schedule("s", only.delay("10s"), only.concurrency(1), coalesce=False)])
    )
    watched.world.feed.arrive("raw/a", "1")
    watched.tick(0)
    assert watched.value("jobs_held_total", constraint="delay") == 1
    assert watched.value("jobs_held_total", constraint="concurrency") == 0
    (run,) = watched.tick(10)
    assert watched.value("job_wait_seconds_sum", constraint="delay") == 10
    watched.world.feed.arrive("raw/a", "2")
    watched.tick(15)
    assert watched.value("jobs_held_total", constraint="delay") == 2
    assert watched.value("jobs_held_total", constraint="concurrency") == 1
    watched.tick(25)
    assert watched.value("jobs_held_total", constraint="delay") == 2, "it only held on"
    watched.world.dagster.end(run)
    watched.tick(40)
    assert watched.value("job_wait_seconds_sum", constraint="concurrency") == 25
    assert watched.value("job_wait_seconds_count", constraint="concurrency") == 1
    assert watched.value("job_wait_seconds_count", constraint="delay") == 1


def test_what_is_admitted_at_once_waited_for_nothing(world: Worlds) -> None:
    """A wait of zero seconds, of no constraint."""
    watched = Watched(world([schedule("s", only.concurrency(1))]))
    watched.world.feed.arrive("raw/a", "1")
    watched.tick(5)
    assert watched.value("job_wait_seconds_count", constraint="none") == 1
    assert watched.value("job_wait_seconds_sum", constraint="none") == 0


def test_a_wait_that_began_before_the_process_is_of_an_unknown_constraint(world: Worlds) -> None:
    """Its length is right all the same."""
    watched = Watched(world([schedule("s", only.delay("10s"))]))
    watched.world.feed.arrive("raw/a", "1")
    watched.world.engine.tick(at(0))
    watched.tick(10)
    assert watched.value("job_wait_seconds_sum", constraint="unknown") == 10


def test_discarded_jobs_are_counted_by_cause(world: Worlds) -> None:
    """A trigger that was not satisfied in time, a constraint's timeout, and a cancel."""
    watched = Watched(
        world(
            [
                schedule("trigger", trigger=on.partitions("raw/a", count=2), timeout="1m"),
                schedule("constraint", only.load(below=0.5), timeout="1m"),
                schedule("cancel", only.load(below=0.5, otherwise="cancel")),
            ]
        )
    )
    watched.world.feed.arrive("raw/a", "1")
    watched.tick(0)
    assert watched.value("jobs_discarded_total", cause="canceled") == 1
    watched.tick(60)
    assert watched.value("jobs_discarded_total", cause="timed_out") == 2
    assert watched.value("job_moves_total", state="discarded") == 3
    assert watched.value("jobs_discarded_total", cause="withdrawn") == 0


def test_a_metric_that_fails_stops_no_tick(caplog: pytest.LogCaptureFixture) -> None:
    """It says so in the log, and the tick's work is done."""
    result = TickResult(counts=Counter(), requests=[], position=None, moves=[None])  # type: ignore[list-item]
    Metrics(CollectorRegistry()).observe(result, **PLACE, now=at(0), seconds=0)
    assert caplog.messages == ["the metrics of a tick are lost"]


def test_failed_ticks_are_counted_and_timed() -> None:
    """A database that is away shows as a rate."""
    registry = CollectorRegistry()
    Metrics(registry).failed(**PLACE, seconds=1.5)
    assert registry.get_sample_value("arctic_ticks_failed_total", PLACE) == 1
    assert registry.get_sample_value("arctic_tick_seconds_sum", PLACE) == 1.5


def test_jobs_are_counted_in_the_database_at_most_every_15_seconds(
    world: Worlds, database: Database
) -> None:
    """A state without jobs is a zero, not a gap."""
    watched = Watched(
        world([schedule("wait", trigger=on.partitions("raw/a", count=9)), schedule("go")])
    )

    def count(second: float) -> list[float]:
        watched.metrics.count(database, **PLACE, now=at(second))
        states = ("waiting_trigger", "waiting_constraints", "launching", "launched")
        return [watched.value("jobs", state=state) for state in states]

    assert count(0) == [0, 0, 0, 0]
    watched.world.feed.arrive("raw/a", "1")
    watched.tick(1)
    assert count(14) == [0, 0, 0, 0]
    assert count(15) == [1, 0, 1, 0]


def test_jobs_of_other_locations_are_not_read(world: Worlds, database: Database) -> None:
    """With hundreds of locations, each would count the jobs of all."""
    watched = Watched(world([schedule("go")]))
    asked: list[Any] = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def note(_c: object, _k: object, statement: str, values: Any, *_: object) -> None:
        if "arctic_jobs" in statement:
            asked.append(list(values.values() if isinstance(values, dict) else values))

    watched.metrics.count(database, **PLACE, now=at(0))
    assert asked
    assert all("here" in values for values in asked)


def test_the_numbers_of_a_location_add_up(world: Worlds, database: Database) -> None:
    """Two that wait, one that ended, two events of three taken, and the oldest wait."""
    made = world(
        [
            schedule("wait", trigger=on.partitions("raw/a", count=9)),
            schedule("held", only.delay("1h"), trigger=on.partitions("raw/b")),
            schedule("go"),
        ]
    )
    for asset in ("raw/a", "raw/b", "raw/c"):
        made.feed.arrive(asset, "1")
    (run,) = made.tick(100)
    made.dagster.end(run)
    made.tick(200)
    with database.read() as tx:
        found = numbers(tx, "default", at(700))["here"]
        later = numbers(tx, "default", at(3_801))["here"]
        assert numbers(tx, "other", at(700)) == {}
    assert {state.value: count for state, count in found.living.items()} == {
        "waiting_trigger": 1,
        "waiting_constraints": 1,
        "launching": 0,
        "launched": 0,
    }
    assert found.oldest_wait == timedelta(seconds=600)
    assert {state.value: count for state, count in found.ended.items() if count} == {"succeeded": 1}
    assert (found.events, found.recent_events) == (2, 2)
    assert sum(later.ended.values()) == 0, "more than an hour ago"
    assert (later.events, later.recent_events) == (2, 0)
    both = found.plus(later)
    assert both.oldest_wait == timedelta(seconds=3_701)
    assert (both.events, sum(both.living.values())) == (4, 4)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_metrics_are_served_on_loopback(caplog: pytest.LogCaptureFixture) -> None:
    """In Prometheus' text; a port that another process has is a warning."""
    registry, port = CollectorRegistry(), free_port()
    metrics = Metrics(registry)
    metrics.failed(**PLACE, seconds=1)
    metrics.serve(port)
    metrics.serve(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'arctic_ticks_failed_total{cluster="default",location="here"} 1.0' in text
    assert not caplog.records
    second = Metrics(CollectorRegistry())
    second.serve(port)
    second.serve(port)
    assert caplog.messages == [f"no metrics on 127.0.0.1:{port}: Address already in use"]


def test_a_port_is_taken_over_when_it_becomes_free() -> None:
    """The code server before this one may still have it for a while."""
    metrics = Metrics(CollectorRegistry())
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = int(before.getsockname()[1])
        metrics.serve(port)
    metrics.serve(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200
