"""What a filter skips, a tick of the sensor examines once, however many partitions it takes."""

from collections.abc import Mapping, Sequence

from arctic_orchestration.consumers.partition import ConsumedPartition
from arctic_orchestration.consumers.partition_runs import Follower
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.standing_clock import Clock


class NoRuns:
    """Dagster has made no run yet."""

    def runs_by_tag(self, key: str, values: Sequence[str]) -> Mapping[str, Sequence[object]]:
        return {}


def test_each_partition_is_examined_once_in_a_tick(state: Database, log: Log, clock: Clock) -> None:
    """Not the skipped ones again for each taken one: there may be a hundred thousand."""
    examined: list[str] = []

    def of_berlin(partition: ConsumedPartition) -> bool:
        examined.append(partition.key)
        return partition.key.startswith("berlin")

    log.arrives("paris-1", "paris-2", "berlin-1", "paris-3", "berlin-2", "berlin-3", "paris-4")
    engine = engine_of(state, log, clock)
    follower = Follower(engine=engine, owner="sensor", runs=NoRuns(), where=of_berlin)  # type: ignore[arg-type]
    taken = [one.partition.key for one in follower.tick().deliveries]
    assert taken == ["berlin-1", "berlin-2", "berlin-3"]
    assert examined == [event.partition for event in log.events]
    # The next tick examines what is left, and what has arrived since.
    examined.clear()
    log.arrives("berlin-4")
    taken = [one.partition.key for one in follower.tick().deliveries]
    assert taken == ["berlin-1", "berlin-2", "berlin-3", "berlin-4"]
    assert examined == ["paris-1", "paris-2", "paris-3", "paris-4", "berlin-4"]
