"""A consumer that is deleted, and created again under its name."""

from collections.abc import Callable
from datetime import timedelta

import dagster as dg
import pytest

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.cli.doctor.state_checks import Use, uses
from arctic_orchestration.consumers import control, partition_leases, store
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.partition_runs import Follower
from arctic_orchestration.errors import LeaseLost, NotFound, TransitionRefused
from arctic_orchestration.event_log.feed import Batch, Position
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, engine_of
from arctic_orchestration_tests.consumers.dagster_assets import MakeConsumer, arrive, settings_of
from arctic_orchestration_tests.standing_clock import Clock


def delete(state: Database, engine: ConsumerEngine) -> None:
    """What a person does."""
    with state.begin() as tx:
        control.delete(tx, engine.seen(tx), engine.time(tx))


def is_there(state: Database, engine: ConsumerEngine) -> bool:
    """Whether there is a consumer of that name."""
    with state.read() as tx:
        return store.find(tx, engine.cluster, engine.spec.name) is not None


def test_who_has_partitions_is_not_robbed_of_them(state: Database, log: Log, clock: Clock) -> None:
    """While the lease holds the deletion is refused; a second later it is not."""
    log.arrives("01")
    engine = engine_of(state, log, clock, lease=timedelta(seconds=60))
    with engine.consume(owner="worker 7") as partitions:
        clock.passes(seconds=59)
        with pytest.raises(TransitionRefused, match="worker 7 has partitions of consumer totals"):
            delete(state, engine)
    assert str(partitions.result) == "1 acknowledged"
    log.arrives("02")
    with pytest.raises(LeaseLost, match="the consumer was deleted"), engine.consume():
        clock.passes(seconds=60)
        delete(state, engine)
    assert not is_there(state, engine)


def test_a_late_acknowledgement_changes_nothing_of_the_next_consumer(
    state: Database, log: Log, clock: Clock
) -> None:
    """The same process, the same partition, under the same name; others are there meanwhile."""
    log.arrives("01")
    engine = engine_of(state, log, clock)
    late = pytest.raises(LeaseLost, match="lease with token 1 .* or the consumer was deleted")
    with late, engine.consume(owner="worker 7") as old:
        clock.passes(minutes=2)
        delete(state, engine)
        again = engine_of(state, log, clock)
        with again.consume(owner="worker 7") as new:
            assert (old.keys, new.keys) == (["01"], ["01"])
            # Whoever keeps the tokens, or the names of deliveries, has seen neither before.
            assert (old.token, new.token) == (1, 2)
            noon = int(NOON.timestamp()) * 1000
            names = (f"totals:01:1:{noon}", f"totals:01:2:{noon}")
            assert (old[0].delivery, new[0].delivery) == names
            with pytest.raises(LeaseLost), old.acknowledging():
                raise AssertionError("nothing is written by who came late")
            with state.begin() as tx:
                assert new._taken is not None
                assert not partition_leases.renew(
                    tx, new._taken.consumer_id, old.token, life=timedelta(seconds=60)
                )
            assert (again.progress().leased, again.progress().acknowledged) == (1, 0)
            new.put_back()
        assert again.progress().waiting == 1
    found = again.progress()
    assert (found.waiting, found.acknowledged) == (1, 0)


@pytest.mark.parametrize("backend", ["postgres"])
def test_an_owner_that_is_just_acknowledging_is_let_end(
    state: Database, log: Log, clock: Clock
) -> None:
    """Its lease is over, and nobody has taken it over: so it is still its own.

    In SQLite the deletion waits for its transaction.
    """
    log.arrives("01")
    engine = engine_of(state, log, clock)
    with engine.consume() as partitions:
        clock.passes(minutes=2)
        refused = pytest.raises(TransitionRefused, match="ends its lease at this moment")
        with partitions.acknowledging(), refused:
            delete(state, engine)
    assert engine.progress().acknowledged == 1
    delete(state, engine)
    assert not is_there(state, engine)


def test_the_next_use_of_the_name_creates_it_from_its_start(
    state: Database, log: Log, clock: Clock
) -> None:
    """An engine that has been at work goes on from there, with what was done to do again."""
    log.arrives("01", "02", None)
    engine = engine_of(state, log, clock, attempts=1, until=clock.now + timedelta(days=1))
    with engine.consume() as partitions:
        partitions.failed("02", reason="broken")
    delete(state, engine)
    with pytest.raises(NotFound):
        engine.progress()
    clock.passes(minutes=1)
    with engine.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("01", 1), ("02", 1)]
    with state.read() as tx:
        one = engine.seen(tx)
    assert (one.created_at, one.until, one.passed_over) == (clock.now, engine.spec.until, 1)
    # Under the name may as well stand another asset, with another end.
    delete(state, engine)
    log.arrives("03", asset="raw/weather")
    other = engine_of(state, log, clock, asset="raw/weather", start="from_now")
    log.arrives("04", asset="raw/weather")
    with other.consume() as partitions:
        assert partitions.keys == ["04"]


def test_a_reading_under_way_is_dropped(state: Database, log: Log, clock: Clock) -> None:
    """What it read belongs to a position that is forgotten."""
    log.arrives("01")
    engine = engine_of(state, log, clock, start="from_now")
    log.arrives("02")
    read = log.read

    def late(position: Position | None, limit: int) -> Batch:
        batch = read(position, limit)
        log.read = read  # type: ignore[method-assign]
        delete(state, engine)
        return batch

    log.read = late  # type: ignore[method-assign]
    with engine.consume() as partitions:
        assert partitions.keys == []
    log.arrives("03")
    with engine.consume() as partitions:
        assert partitions.keys == ["03"]


def test_it_is_deleted_while_it_is_registered_from_now_on(
    state: Database, log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when it was looked up, and so the end of the log was not requested."""
    log.arrives("01")
    engine = engine_of(state, log, clock, start="from_now")
    engine.register()
    register = store.register

    def late(*args: object, **named: object) -> object:
        monkeypatch.setattr(store, "register", register)
        control.delete(args[0], engine.seen(args[0]), clock.now)  # type: ignore[arg-type]
        return register(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "register", late)
    engine.register()
    log.arrives("02")
    with engine.consume() as partitions:
        assert partitions.keys == ["02"]


def test_it_is_deleted_between_the_look_and_the_taking(
    state: Database, log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to take then; the next look makes it again."""
    log.arrives("01")
    engine = engine_of(state, log, clock)
    take = partition_leases.take

    def late(*args: object, **named: object) -> object:
        monkeypatch.setattr(partition_leases, "take", take)
        tx, id = args[:2]
        control.delete(tx, store.locked(tx, id), clock.now)  # type: ignore[arg-type]
        return take(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_leases, "take", late)
    assert engine.take() is None
    taking = engine.take()
    assert taking is not None
    assert [one.key for one in taking.taken.partitions] == ["01"]


def test_a_follower_goes_on(state: Database, log: Log, clock: Clock) -> None:
    """The sensor's tick finds the consumer gone, and requests runs of all that there is."""

    class NoRuns:
        def runs_by_tag(self, key: str, values: object) -> dict[str, list[object]]:
            return {}

    log.arrives("01")
    engine = engine_of(state, log, clock)
    follower = Follower(engine=engine, owner="sensor", runs=NoRuns())  # type: ignore[arg-type]
    (first,) = follower.tick().deliveries
    clock.passes(minutes=2)
    delete(state, engine)
    (second,) = follower.tick().deliveries
    assert (first.partition.key, second.partition.key) == ("01", "01")
    assert first.run_key != second.run_key
    # The run of the first has ended: that says nothing of the second.
    follower.refuse(first, "it was late")
    assert [one.token for one in follower.tick().deliveries] == [second.token]


def test_progress_is_that_of_a_consumer_that_begins(
    state: Database,
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
) -> None:
    """Its holder learns how much there is to do again."""
    instance = dagster_instance(backend)
    settings = settings_of(database_url)
    consumer = PartitionConsumer("days", name="totals", instance=instance, settings=settings)
    arrive(instance, "days", "2026-01-01", "2026-01-02")
    with consumer.consume(limit=1):
        pass
    with state.begin() as tx:
        control.delete(tx, store.by_name(tx, "default", "totals"), database_time(tx))
    found = consumer.progress()
    assert (found.acknowledged, found.unread) == (0, 2)
    consumer.close()


def test_the_doctor_knows_of_no_consumer_that_is_gone(
    state: Database, log: Log, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of one is no use of consumers."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    engine = engine_of(state, log)
    assert Use.CONSUMERS in uses()
    delete(state, engine)
    assert Use.CONSUMERS not in uses()


def test_a_deleted_consumer_has_given_up_nothing(consumer: MakeConsumer, state: Database) -> None:
    """A run checks that at its end, when its consumer may be gone."""
    made = consumer()
    made.check_given_up()
    with state.begin() as tx:
        control.delete(tx, store.by_name(tx, "default", "totals"), database_time(tx))
    made.check_given_up()
