"""The block of ``consume``: what it takes, and what becomes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.consumers import control, partition_leases
from arctic_orchestration.consumers import engine as engine_module
from arctic_orchestration.errors import DatabaseUnavailable, InvalidInput, LeaseLost
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, engine_of
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.standing_clock import Clock


class Broken(Exception):
    """What a block fails with."""


def test_what_is_new_is_delivered_once(state: Database, log: Log) -> None:
    """Three arrivals are taken in their order, and then there is nothing."""
    log.arrives("01", "02", "03", metadata={"path": "/here"})
    engine = engine_of(state, log)
    with engine.consume() as partitions:
        assert partitions.keys == ["01", "02", "03"]
        first = partitions[0]
        assert (first.attempt, first.arrivals, first.at) == (1, 1, NOON)
        assert (first.run_id, first.bytes, first.metadata) == ("run-1", 100, {"path": "/here"})
    assert str(partitions.result) == "3 acknowledged"
    with engine.consume() as partitions:
        assert list(partitions) == []
    log.arrives("04")
    with engine.consume() as partitions:
        assert partitions.keys == ["04"]


def test_an_exception_lets_all_of_them_fail(state: Database, log: Log, clock: Clock) -> None:
    """They rest for a minute, come again as the second attempt, and the third is the last."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock, retry="together")
    for attempt in (1, 2, 3):
        with pytest.raises(Broken), engine.consume() as partitions:
            assert [one.attempt for one in partitions] == [attempt, attempt]
            raise Broken("no such file")
        with engine.consume() as partitions:
            assert partitions.keys == []
        clock.passes(seconds=60)
    with engine.consume() as partitions:
        assert partitions.keys == []
    progress = engine.progress()
    assert (progress.discarded, progress.left) == (2, 0)


def test_what_ends_a_process_puts_back(state: Database, log: Log, clock: Clock) -> None:
    """At once, and however often: it is no attempt."""
    log.arrives("01")
    engine = engine_of(state, log, clock)
    for end in (KeyboardInterrupt, SystemExit, GeneratorExit) * 2:
        with pytest.raises(end), engine.consume() as partitions:
            assert [one.attempt for one in partitions] == [1]
            raise end
    with engine.consume() as partitions:
        assert [one.attempt for one in partitions] == [1]


def test_some_fail_some_are_put_back_and_the_others_are_acknowledged(
    state: Database, log: Log, clock: Clock
) -> None:
    """Each by its own word."""
    log.arrives("01", "02", "03", "04")
    engine = engine_of(state, log, clock)
    with engine.consume() as partitions:
        partitions.failed("02", reason="it is empty")
        partitions.put_back(partitions[2])
    assert str(partitions.result) == "2 acknowledged, 1 failed, 1 put back"
    with engine.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("03", 1)]
    clock.passes(minutes=1)
    with engine.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("02", 2)]
        with pytest.raises(InvalidInput, match="one of those that were taken"):
            partitions.put_back("01")


def test_a_limit_and_a_filter_postpone(state: Database, log: Log) -> None:
    """What they leave waits in its order."""
    log.arrives("01|EWR", "01|JFK", "02|EWR", "02|JFK", "03|EWR")
    engine = engine_of(state, log)
    with engine.consume(limit=1, where="*|JFK") as partitions:
        assert partitions.keys == ["01|JFK"]
    with engine.consume(where={"03|EWR", "04|EWR"}) as partitions:
        assert partitions.keys == ["03|EWR"]
    with engine.consume(where=lambda one: one.key.startswith("01")) as partitions:
        assert partitions.keys == ["01|EWR"]
    with engine.consume() as partitions:
        assert partitions.keys == ["02|EWR", "02|JFK"]


def test_two_blocks_at_once_share_what_is_new(state: Database, log: Log) -> None:
    """Neither sees what the other has."""
    log.arrives("01", "02", "03")
    engine, other = engine_of(state, log), engine_of(state, log)
    with engine.consume(limit=2) as mine, other.consume() as others:
        assert (mine.keys, others.keys) == (["01", "02"], ["03"])
        assert mine.token < others.token
        with engine.consume() as third:
            assert third.keys == []


def test_who_lost_its_lease_cannot_acknowledge(state: Database, log: Log, clock: Clock) -> None:
    """Another one has taken over; that was an attempt, and nothing of the first one's counts."""
    log.arrives("01", "02")
    late, other = engine_of(state, log, clock), engine_of(state, log, clock)
    lost = pytest.raises(LeaseLost, match="consumer totals: the lease with token 1 was taken from")
    with lost, late.consume(limit=1):
        clock.passes(seconds=60)
        for expected in (("01", 2), ("02", 1)):
            with other.consume() as partitions:
                assert [(one.key, one.attempt) for one in partitions] == [expected]
    assert other.progress().acknowledged == 2


def test_an_expired_lease_is_its_owners_until_another_takes_over(
    state: Database, log: Log, clock: Clock
) -> None:
    """Nobody has had the partitions, so nothing is against it."""
    log.arrives("01")
    engine = engine_of(state, log, clock)
    with engine.consume():
        clock.passes(hours=1)
    assert engine.progress().acknowledged == 1


def test_a_lease_is_renewed_while_the_block_runs(state: Database, log: Log) -> None:
    """By the database's time, over several lives."""
    log.arrives("01")
    engine = engine_of(state, log, lease=timedelta(milliseconds=900))
    with engine.consume():
        moments = set()

        def is_renewed_twice() -> bool:
            with state.read() as tx:
                moments.add(partition_leases.live_leases(tx, engine.seen(tx).id)[0].expires_at)
            return len(moments) == 3

        until(is_renewed_twice, "the lease is renewed twice")


RESULTS = sa.table("results", sa.column("partition"))


def test_ones_own_rows_stand_and_fall_with_the_acknowledgement(
    state: Database, log: Log, clock: Clock
) -> None:
    """Written with it, undone with it, and not at all by who lost its lease."""
    with state.begin() as tx:
        tx.execute(sa.text("create table results (partition text primary key)"))
    log.arrives("01", "02", "03")
    engine, other = engine_of(state, log, clock), engine_of(state, log, clock)

    def results() -> list[str]:
        with state.read() as tx:
            return sorted(tx.execute(sa.select(RESULTS.c.partition)).scalars())

    with engine.consume(limit=1) as partitions:
        with partitions.acknowledging() as tx:
            tx.execute(sa.insert(RESULTS), [{"partition": key} for key in partitions.keys])
        assert engine.progress().acknowledged == 1
    assert results() == ["01"]
    failing = pytest.raises(Broken)
    with failing, engine.consume(limit=1) as partitions, partitions.acknowledging() as tx:
        tx.execute(sa.insert(RESULTS), [{"partition": "02"}])
        raise Broken
    assert results() == ["01"]
    with pytest.raises(LeaseLost), engine.consume(limit=1) as partitions:
        assert partitions.keys == ["03"]
        clock.passes(minutes=1)
        for alone in ("02", "03"):
            with other.consume() as taken:
                assert taken.keys == [alone]
        with partitions.acknowledging() as tx:
            pytest.fail("the block must not begin")
    assert results() == ["01"]
    assert engine.progress().acknowledged == 3


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_reset_while_one_writes_lets_nothing_be_written_twice(
    state: Database, log: Log, clock: Clock
) -> None:
    """SQLite has one writer. Here another one writes what the first one is about to commit."""
    with state.begin() as tx:
        tx.execute(sa.text("create table results (partition text)"))
    log.arrives("01", "02")
    engine, other = engine_of(state, log, clock), engine_of(state, log, clock)
    lost = pytest.raises(LeaseLost, match="consumer totals: the consumer was reset")
    with lost, engine.consume(limit=1) as partitions, partitions.acknowledging() as tx:
        tx.execute(sa.insert(RESULTS), [{"partition": key} for key in partitions.keys])
        with state.begin() as person:
            control.reset(person, engine.seen(person), "from_beginning", clock.now)
        with other.consume() as taken, taken.acknowledging() as theirs:
            assert taken.keys == ["01", "02"]
            theirs.execute(sa.insert(RESULTS), [{"partition": key} for key in taken.keys])
    with state.read() as tx:
        assert sorted(tx.execute(sa.select(RESULTS.c.partition)).scalars()) == ["01", "02"]


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_lease_that_a_reset_has_passed_over_is_not_renewed(
    state: Database, log: Log, clock: Clock
) -> None:
    """Its owner had locked it at that moment, and learns it at its next renewal."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock)
    first, second = engine.take(limit=1), engine.take(limit=1)
    assert first is not None
    assert second is not None
    assert engine.renew(second.taken)
    with state.begin() as owner:
        partition_leases.lock_lease(owner, first.taken.consumer_id, first.taken.token)
        with state.begin() as person:
            control.reset(person, engine.seen(person), "from_beginning", clock.now)
    assert not engine.renew(first.taken)
    assert not engine.renew(second.taken)


class Away(Database):
    """A database that does not answer for a while, before or after it has done what was asked."""

    def __init__(self, url: str, *, does_it: bool) -> None:
        super().__init__(url)
        self.does_it = does_it
        self.answers_lost = 0

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Fails as often as answers are to be lost."""
        if not self.answers_lost:
            with super().begin() as tx:
                yield tx
            return
        self.answers_lost -= 1
        if self.does_it:
            with super().begin() as tx:
                yield tx
        raise DatabaseUnavailable("gone")


@pytest.mark.parametrize("does_it", [False, True])
def test_the_end_of_the_block_waits_for_a_database_that_is_away(
    state: Database, database_url: str, log: Log, monkeypatch: pytest.MonkeyPatch, does_it: bool
) -> None:
    """As long as the lease may be trusted; also where only the answer was lost."""
    monkeypatch.setattr(engine_module, "_RETRY_SECONDS", 0.01)
    log.arrives("01", "02")
    away = Away(database_url, does_it=does_it)
    engine = engine_of(away, log)
    with engine.consume() as partitions:
        away.answers_lost = 1 if does_it else 3
        partitions.failed("02", reason="broken")
    found = engine_of(state, log).progress()
    assert (found.acknowledged, found.resting) == (1, 1)
    away.close()


def test_a_database_that_stays_away_leaves_the_partitions_to_others(
    state: Database, database_url: str, log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and they come again when the lease is over."""
    monkeypatch.setattr(engine_module, "_RETRY_SECONDS", 0.01)
    log.arrives("01")
    away = Away(database_url, does_it=False)
    engine = engine_of(away, log, clock, lease=timedelta(milliseconds=600))
    gone = pytest.raises(DatabaseUnavailable)
    with gone, engine.consume():
        away.answers_lost = 1_000_000
    away.close()
    other = engine_of(state, log, clock)
    with other.consume() as partitions:
        assert partitions.keys == []
    clock.passes(seconds=1)
    with other.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("01", 2)]
