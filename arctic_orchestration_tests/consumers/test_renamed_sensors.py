"""The runs of a sensor that has another name, or another code location, by the time they end."""

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.partition_runs import Follower
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.standing_clock import Clock

MINUTE = timedelta(seconds=60)


class Runs:
    """Dagster's runs: their status, by run key."""

    def __init__(self) -> None:
        self.made: dict[str, RunStatus] = {}

    def runs_by_tag(self, _: str, values: Sequence[str]) -> dict[str, list[Any]]:
        return {
            key: [SimpleNamespace(run_id=key, status=self.made[key], submitted=True)]
            for key in values
            if key in self.made
        }


def follower(engine: ConsumerEngine, location: str, runs: Runs) -> Follower:
    """The sensor ``s`` of a code location."""
    wrong_type: Any = runs
    return Follower(engine=engine, owner=f"sensor s of {location}", runs=wrong_type, at_once=1)


def counts(found: Follower) -> dict[str, int]:
    return {what: number for what, number in found.tick().counts.items() if number}


def test_the_run_of_a_renamed_location_is_followed(state: Database, log: Log, clock: Clock) -> None:
    """It has worked for longer than the lease: no second run is made, and its end counts."""
    log.arrives("01")
    engine, runs = engine_of(state, log, clock, lease=MINUTE), Runs()
    (first,) = follower(engine, "old", runs).tick().deliveries
    runs.made[first.run_key] = RunStatus.STARTED
    renamed = follower(engine, "new", runs)
    assert counts(renamed) == {}
    clock.passes(seconds=60)
    assert counts(renamed) == {"running": 1}
    clock.passes(seconds=59)
    assert counts(renamed) == {"running": 1}
    runs.made[first.run_key] = RunStatus.SUCCESS
    assert counts(renamed) == {"acknowledged": 1}
    assert engine.progress().acknowledged == 1


def test_a_partition_without_a_run_comes_again(state: Database, log: Log, clock: Clock) -> None:
    """Its request was never made: the lease is over, and the next sensor requests a run."""
    log.arrives("01")
    engine, runs = engine_of(state, log, clock, lease=MINUTE), Runs()
    (first,) = follower(engine, "old", runs).tick().deliveries
    clock.passes(seconds=60)
    (second,) = follower(engine, "new", runs).tick().deliveries
    assert (second.partition.key, second.partition.attempt) == ("01", 2)
    assert second.token == first.token + 1
