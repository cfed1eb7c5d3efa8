"""Partitions that Dagster has, has no more, and does not have yet."""

from collections.abc import Collection, Sequence
from datetime import timedelta

from arctic_orchestration.consumers import control, working_set
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.partition_runs import Follower
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log, Partitions, engine_of
from arctic_orchestration_tests.standing_clock import Clock


def taken(engine: ConsumerEngine) -> list[str]:
    """Takes and acknowledges; the keys."""
    with engine.consume() as partitions:
        return partitions.keys


def states(state: Database, engine: ConsumerEngine) -> dict[str, str]:
    """Where each partition of the consumer stands."""
    with state.read() as tx:
        rows = working_set.partitions_of(tx, engine.seen(tx).id)
    return {row.partition: row.state for row in rows}


def test_what_was_deleted_and_is_announced_again_is_held_until_it_is_added(
    state: Database, log: Log, clock: Clock
) -> None:
    """Whatever it was before: acknowledged, waiting, given up, or leased at the time."""
    there = Partitions({"done", "waits", "failed", "had"})
    engine = engine_of(state, log, clock, existing=there, attempts=1, retry_after=timedelta(0))
    log.arrives("done", "failed", "had", "waits")
    with engine.consume(limit=2) as partitions:
        partitions.failed("failed", reason="broken")
    with engine.consume(limit=1) as partitions:
        assert partitions.keys == ["had"]
        there.keys = set()
        log.arrives("had", "waits", "failed", "done")
        assert taken(engine) == []
    assert taken(engine) == []
    assert set(states(state, engine).values()) == {"waiting"}
    there.keys = {"done", "waits", "failed", "had"}
    assert taken(engine) == ["waits", "had", "failed", "done"]


def test_what_is_deleted_again_before_it_was_delivered_leaves(
    state: Database, log: Log, clock: Clock
) -> None:
    """The control: Dagster has had it since it arrived, so its deletion is meant."""
    there = Partitions({"a"})
    engine = engine_of(state, log, clock, existing=there)
    log.arrives("a")
    assert taken(engine) == ["a"]
    log.arrives("a", "b")
    with engine.consume() as partitions:
        partitions.put_back()
    there.keys = set()
    assert taken(engine) == []
    there.keys = {"a"}
    assert taken(engine) == []
    assert states(state, engine) == {"b": "waiting"}


def test_what_is_held_does_not_hide_what_follows(state: Database, log: Log, clock: Clock) -> None:
    """Seven were deleted before anybody looked, and the working set has room for three."""
    there = Partitions({"real"})
    log.arrives(*(f"old{number}" for number in range(7)), "real", "new")
    engine = engine_of(state, log, clock, existing=there, working_set=3)
    engine.events_at_once = 2
    assert taken(engine) == ["real"]
    assert taken(engine) == []
    there.keys |= {"old5", "new"}
    assert taken(engine) == ["old5", "new"]


def test_what_is_never_added_is_given_up_after_a_while(
    state: Database, log: Log, clock: Clock
) -> None:
    """It may have been deleted before anybody looked. A new arrival is held for as long again."""
    there: Partitions = Partitions()
    engine = engine_of(state, log, clock, existing=there, held_for=timedelta(hours=2))
    log.arrives("a", "b", "c")
    assert taken(engine) == []
    clock.passes(hours=1)
    log.arrives("b")
    there.keys = {"c"}
    assert taken(engine) == ["c"]
    clock.passes(hours=1)
    assert taken(engine) == []
    assert states(state, engine) == {"a": "discarded", "b": "waiting", "c": "acknowledged"}
    with state.read() as tx:
        (row,) = working_set.partitions_of(tx, engine.seen(tx).id, [PartitionState.DISCARDED])
    assert row.reason == "it was not added in Dagster for 2h"
    clock.passes(hours=1)
    assert taken(engine) == []
    assert states(state, engine) == {"a": "discarded", "b": "discarded", "c": "acknowledged"}
    found = engine.progress()
    assert (found.held, found.waiting, found.discarded) == (0, 0, 2)


def test_what_was_given_up_comes_back_by_an_arrival_or_a_retry(
    state: Database, log: Log, clock: Clock
) -> None:
    """And is held again, until it is added."""
    there: Partitions = Partitions()
    calls: list[list[str]] = []

    def existing(keys: Sequence[str]) -> Collection[str]:
        calls.append(sorted(keys))
        return there.keys

    engine = engine_of(state, log, clock, existing=existing, held_for=timedelta(hours=2))
    log.arrives("a", "b", "c")
    for _ in range(2):
        assert taken(engine) == []
        clock.passes(hours=2)
    # Nobody asks Dagster for ever.
    calls.clear()
    log.arrives("a")
    with state.begin() as tx:
        control.retry(tx, engine.seen(tx), ["b"], clock.now)
    assert taken(engine) == []
    assert calls == [["a", "b"]]
    assert states(state, engine) == {"a": "waiting", "b": "waiting", "c": "discarded"}
    clock.passes(hours=1)
    there.keys = {"a", "b", "c"}
    assert taken(engine) == ["b", "a"]


def test_what_was_held_is_delivered_when_the_definition_is_not_given_any_more(
    state: Database, log: Log, clock: Clock
) -> None:
    """Nobody asks Dagster then, and nothing can be deleted there."""
    log.arrives("a")
    assert taken(engine_of(state, log, clock, existing=Partitions())) == []
    assert taken(engine_of(state, log, clock)) == ["a"]


def test_taking_one_after_the_other_queries_dagster_once(
    state: Database, log: Log, clock: Clock
) -> None:
    """Of what it had then, each is taken; what was read since then waits for the next question."""
    calls: list[list[str]] = []

    def existing(keys: Sequence[str]) -> Collection[str]:
        calls.append(sorted(keys))
        return {"a", "b", "new", "c"}

    engine = engine_of(state, log, clock, existing=existing)
    log.arrives("a", "b", "not added")
    found = [engine.take(limit=1)]
    log.arrives("new")
    engine.read_on()
    found += [engine.take(limit=1, reads=False) for _ in range(2)]
    assert [one and one.taken.partitions[0].key for one in found] == ["a", "b", None]
    assert calls == [["a", "b", "not added"]]
    assert taken(engine) == ["new"]
    assert calls[1:] == [["new", "not added"]]


def test_a_tick_queries_dagster_once(state: Database, log: Log, clock: Clock) -> None:
    """However many runs it requests."""
    calls: list[list[str]] = []

    def existing(keys: Sequence[str]) -> Collection[str]:
        calls.append(sorted(keys))
        return keys

    class NoRuns:
        def runs_by_tag(self, key: str, values: object) -> dict[str, list[object]]:
            return {}

    log.arrives("a", "b", "c")
    engine = engine_of(state, log, clock, existing=existing)
    follower = Follower(engine=engine, owner="sensor", runs=NoRuns())  # type: ignore[arg-type]
    wanted = follower.tick().deliveries
    assert [one.partition.key for one in wanted] == ["a", "b", "c"]
    assert calls == [["a", "b", "c"]]
