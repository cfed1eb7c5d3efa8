"""What is in the working set, and what is not."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.consumers import control, store, working_set
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.errors import InvalidInput, LeaseLost, NotFound, TransitionRefused
from arctic_orchestration.state.consumer_tables import (
    consumer_leases,
    consumer_partitions,
    consumers,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, Partitions, engine_of
from arctic_orchestration_tests.standing_clock import Clock
from arctic_orchestration_tests.statements import statements_of

MINUTE = timedelta(minutes=1)
#: as in the name of a delivery
_NOON = int(NOON.timestamp()) * 1000


def taken(engine: ConsumerEngine, **how: object) -> list[str]:
    """Takes and acknowledges; the keys."""
    with engine.consume(**how) as partitions:  # type: ignore[arg-type]
        return partitions.keys


def test_a_partition_that_arrives_again_is_delivered_again_once(
    state: Database, log: Log, clock: Clock
) -> None:
    """However often it did; by another name, so that what was recorded of it is distinguished."""
    engine = engine_of(state, log, clock)
    log.arrives("01", "02")
    with engine.consume() as partitions:
        before = [one.delivery for one in partitions]
    log.arrives("01", at=NOON + MINUTE)
    log.arrives("01", at=NOON + 2 * MINUTE, metadata={"path": "newest"})
    with engine.consume() as partitions:
        (again,) = partitions
        assert (again.key, again.arrivals, again.metadata["path"]) == ("01", 2, "newest")
        assert (again.first_at, again.at) == (NOON + MINUTE, NOON + 2 * MINUTE)
        assert again.delivery not in before
    assert taken(engine) == []


def test_what_arrives_during_a_lease_comes_after_it(
    state: Database, log: Log, clock: Clock
) -> None:
    """Once, whether the first delivery was acknowledged, put back, failed or lost."""
    engine = engine_of(state, log, clock, attempts=1)
    log.arrives("ack", "back", "fail", "lost")
    with engine.consume(limit=3) as partitions:
        with engine.consume() as others:
            for key in ("ack", "back", "fail", "lost", "lost"):
                log.arrives(key)
            engine.read_on()
            assert taken(engine) == []
            clock.passes(minutes=1)
            # Who has the other three renews in time.
            assert engine.renew(partitions._taken)  # type: ignore[arg-type]
            with engine.consume() as third:
                assert [(one.key, one.attempt, one.arrivals) for one in third] == [("lost", 1, 3)]
            with pytest.raises(LeaseLost):
                others._end()
            others._result = third.result
        partitions.put_back("back")
        partitions.failed("fail", reason="broken")
    with engine.consume() as partitions:
        assert [(one.key, one.attempt, one.arrivals) for one in partitions] == [
            ("back", 1, 2),
            ("fail", 1, 2),
            ("ack", 1, 1),
        ]
    assert taken(engine) == []


def test_attempts_at_one_delivery_have_one_name(state: Database, log: Log, clock: Clock) -> None:
    """So that what was recorded beside one's data is recognised."""
    engine = engine_of(state, log, clock, retry_after=timedelta(0))
    log.arrives("01")
    names = set()
    for _ in range(2):
        with engine.consume() as partitions:
            names.add(partitions[0].delivery)
            partitions.failed(reason="broken")
    assert names == {f"totals:01:1:{_NOON}"}
    log.arrives("01")
    with engine.consume() as partitions:
        assert (partitions[0].delivery, partitions[0].attempt) == (f"totals:01:2:{_NOON}", 1)


def test_a_restored_state_database_gives_no_used_name_to_another_arrival(
    state: Database, log: Log, clock: Clock
) -> None:
    """An event that is read again has its former name, one that came after the restore has not."""
    engine = engine_of(state, log, clock)
    with state.read() as tx:
        backup = dict(tx.execute(sa.select(consumers)).mappings().one())

    def restore() -> None:
        with state.begin() as tx:
            for table in (consumer_partitions, consumer_leases):
                tx.execute(sa.delete(table))
            tx.execute(sa.update(consumers).values(backup))

    def delivered() -> list[str]:
        with engine.consume() as partitions:
            return [one.delivery for one in partitions]

    log.arrives("01", at=NOON + MINUTE)
    before = delivered()
    restore()
    assert delivered() == before
    # Both databases are restored: the log has lost the arrival, and another one follows.
    log.events.clear()
    restore()
    log.arrives("01", at=NOON + 2 * MINUTE)
    (name,) = delivered()
    assert name not in before


def test_the_log_is_not_read_further_than_the_working_set_is_large(
    state: Database, log: Log
) -> None:
    """And further as soon as there is room."""
    log.arrives(*(f"{number:02}" for number in range(20)))
    engine = engine_of(state, log, working_set=5)
    engine.events_at_once = 2
    assert engine.read_on()
    with state.read() as tx:
        assert working_set.waiting(tx, engine.seen(tx).id, NOON) == 6
    found = engine.progress()
    assert (found.waiting, found.unread, found.left) == (6, 14, 20)
    assert taken(engine) == [f"{number:02}" for number in range(6)]
    assert taken(engine) == [f"{number:02}" for number in range(6, 12)]


def test_a_filter_that_passes_over_a_full_working_set_sees_what_follows(
    state: Database, log: Log
) -> None:
    """What it passes over is kept beside, and lost to nobody."""
    log.arrives(*(f"a{number}" for number in range(9)), "b1", *(f"a{n}" for n in range(9, 20)))
    engine = engine_of(state, log, working_set=3)
    engine.events_at_once = 2
    assert taken(engine, where="b*") == ["b1"]
    assert taken(engine, where="c*") == []
    found = []
    while keys := taken(engine):
        found += keys
    assert found == [f"a{number}" for number in range(20)]


def test_a_filter_is_called_once_for_each_partition(state: Database, log: Log) -> None:
    """However long the log is: what it has passed over is not looked at again in the same look."""
    log.arrives(*(f"{number:02}" for number in range(40)))
    engine = engine_of(state, log, working_set=3)
    engine.events_at_once = 2
    calls: list[str] = []

    def none_of_them(partition: Any) -> bool:
        calls.append(partition.key)
        return False

    assert taken(engine, where=none_of_them) == []
    assert calls == [f"{number:02}" for number in range(40)]
    assert taken(engine, where="39") == ["39"]


def test_what_rests_does_not_hide_what_follows(state: Database, log: Log, clock: Clock) -> None:
    """Though it fills the working set; it comes again when it has rested."""
    log.arrives("a", "b", "c", "d", "e")
    engine = engine_of(state, log, clock, working_set=2, retry_after=timedelta(hours=1))
    engine.events_at_once = 1
    with engine.consume() as partitions:
        assert partitions.keys == ["a", "b"]
        partitions.failed(reason="broken")
    assert taken(engine, limit=1) == ["c"]
    # Of what can be taken, no more than fills the working set is read.
    assert engine.progress().unread == 1
    assert taken(engine) == ["d", "e"]
    assert taken(engine) == []
    clock.passes(hours=1)
    assert [*taken(engine), *taken(engine)] == ["a", "b"]


def test_a_partition_is_counted_once_whatever_is_unread(
    state: Database, log: Log, clock: Clock
) -> None:
    """Of two that are done, one has arrived again since; it is left, and not done."""
    engine = engine_of(state, log, clock)
    log.arrives("01", "02")
    assert taken(engine) == ["01", "02"]
    log.arrives("01", "01", "03", at=NOON + MINUTE)
    clock.passes(minutes=3)
    before = engine.progress()
    assert (before.acknowledged, before.unread, before.share) == (1, 2, 1 / 3)
    assert (before.oldest_at, before.lag) == (NOON + MINUTE, 2 * MINUTE)
    assert str(before) == "1 of 3 (33.3%), lag 0:02:00"
    engine.read_on()
    after = engine.progress()
    assert (after.acknowledged, after.waiting, after.unread) == (1, 2, 0)
    assert after.lag == 2 * MINUTE


def test_only_arrivals_between_start_and_until(state: Database, log: Log) -> None:
    """The first moment is its own, the last is not."""
    for minute, key in enumerate(("00", "01", "02", "03")):
        log.arrives(key, at=NOON + minute * MINUTE)
    engine = engine_of(state, log, start=NOON + MINUTE, until=NOON + 3 * MINUTE)
    assert taken(engine) == ["01", "02"]


def test_what_cannot_be_delivered_is_reported(state: Database, log: Log) -> None:
    """An arrival without a partition, and a key that no database holds, keep nothing else back."""
    log.arrives(None, "01", "a\0b", "x" * 3000, "02")
    engine = engine_of(state, log)
    assert taken(engine) == ["01", "02"]
    with state.read() as tx:
        one = engine.seen(tx)
    assert one.passed_over == 3
    assert "the database cannot hold the key" in str(one.passed_over_reason)


def test_an_event_that_is_reported_twice_is_delivered_once(state: Database, log: Log) -> None:
    """A log whose newest rows were deleted may tell of the others again."""
    log.arrives("01")
    engine = engine_of(state, log)
    assert taken(engine) == ["01"]
    log.events.append(log.events[0])
    assert taken(engine) == []


def test_two_that_read_at_once_store_it_once(state: Database, log: Log) -> None:
    """Whoever is second drops what it has read, and reads on from where the first one came to."""
    log.arrives("01", "02")
    engine, other = engine_of(state, log), engine_of(state, log)
    read = log.read

    def while_another_reads(*arguments: object) -> object:
        log.read = read  # type: ignore[method-assign]
        assert not other.read_on()
        return read(*arguments)  # type: ignore[arg-type]

    log.read = while_another_reads  # type: ignore[method-assign, assignment]
    assert taken(engine) == ["01", "02"]
    assert engine.progress().acknowledged == 2


def test_a_partition_that_dagster_does_not_have_is_held(
    state: Database, log: Log, clock: Clock
) -> None:
    """Until it does; one that it had and has no more leaves, but not while it is held."""
    there = Partitions({"a", "b"})
    engine = engine_of(state, log, clock, existing=there, attempts=1)
    log.arrives("a", "b", "c")
    with engine.consume(limit=1) as partitions:
        assert partitions.keys == ["a"]
        there.keys = {"c"}
        with engine.consume() as others:
            assert others.keys == ["c"]
            others.failed(reason="broken")
    with state.read() as tx:
        rows = working_set.partitions_of(tx, engine.seen(tx).id)
        # What was done stays done, and b has left.
        assert {row.partition: row.state for row in rows} == {
            "a": "acknowledged",
            "c": "discarded",
        }
    there.keys = set()
    log.arrives("d")
    assert taken(engine) == []
    with state.read() as tx:
        rows = working_set.partitions_of(tx, engine.seen(tx).id, [PartitionState.DISCARDED])
        assert rows == []
    found = engine.progress()
    assert (found.held, found.waiting, found.left, found.lag) == (1, 1, 0, None)


def test_a_person_can_have_partitions_delivered_again(
    state: Database, log: Log, clock: Clock
) -> None:
    """What is discarded or rests under its old name, what is done under a new one."""
    engine = engine_of(state, log, clock, attempts=1)
    log.arrives("01", "02", "03")
    with engine.consume() as partitions:
        partitions.failed("01", "02", reason="broken")

    def retry(keys: list[str] | None) -> list[str]:
        with state.begin() as tx:
            return control.retry(tx, engine.seen(tx), keys, clock.now)

    with pytest.raises(NotFound, match="knows no partition 04, 05; nothing was changed"):
        retry(["01", "05", "04"])
    assert retry(["03", "02"]) == ["02", "03"]
    with engine.consume() as partitions:
        assert [one.delivery for one in partitions] == [
            f"totals:02:2:{_NOON}",
            f"totals:03:4:{_NOON}",
        ]
        with pytest.raises(TransitionRefused, match="02, 03 of consumer totals is leased"):
            retry(["03", "02"])
    assert retry(None) == ["01"]
    assert taken(engine) == ["01"]
    assert retry(None) == []


def test_many_partitions_are_delivered_again_at_once(
    state: Database, log: Log, clock: Clock
) -> None:
    """In as many statements as a few; those that were done come in their order, at the end."""
    engine = engine_of(state, log, clock, attempts=1)
    days = [f"{number:03}" for number in range(200)]
    log.arrives(*days)
    with engine.consume() as partitions:
        partitions.failed(*days[:100], reason="broken")
    with statements_of(state.engine) as statements, state.begin() as tx:
        assert control.retry(tx, engine.seen(tx), [*days[50:], "000"], clock.now) == [
            "000",
            *days[50:],
        ]
    assert len(statements) < 10
    assert taken(engine) == ["000", *days[50:]]
    assert taken(engine) == []


def test_a_consumer_that_is_reset_starts_again(state: Database, log: Log, clock: Clock) -> None:
    """From the beginning, or from now; and whoever had partitions has them no more."""
    engine = engine_of(state, log, clock)
    log.arrives("01", "02")
    assert taken(engine, limit=1) == ["01"]

    def reset(start: str, asset: str | None = None) -> None:
        with state.begin() as tx:
            control.reset(tx, engine.seen(tx), start, clock.now, asset=asset)

    lost = pytest.raises(LeaseLost, match=r"was taken from its owner at .*: the consumer was reset")
    with lost, engine.consume() as partitions:
        assert partitions.keys == ["02"]
        reset("from_beginning")
    assert taken(engine) == ["01", "02"]
    clock.passes(minutes=1)
    log.arrives("03", at=clock.now)
    clock.passes(minutes=1)
    reset("from_now")
    log.arrives("04", at=clock.now)
    assert taken(engine) == ["04"]
    with pytest.raises(InvalidInput, match="start: got 'then', expected from_beginning, from_now"):
        reset("then")
    with pytest.raises(InvalidInput, match="asset: got 'a//b'"):
        reset("from_now", "a//b")
    reset("from_beginning", "raw/weather")
    with pytest.raises(InvalidInput, match="raw/weather, which the consumer of this name reads"):
        engine.register()


def test_a_consumer_follows_another_log_when_it_is_reset(state: Database, log: Log) -> None:
    """And not before."""
    engine = engine_of(state, log)
    other = Log(storage_id="other")
    other.arrives("01")
    with state.begin() as tx:
        control.reset(tx, engine.seen(tx), "from_beginning", NOON)
    engine.feed = other
    assert taken(engine) == ["01"]
    with state.read() as tx:
        assert store.by_name(tx, "default", "totals").storage_id == "other"
