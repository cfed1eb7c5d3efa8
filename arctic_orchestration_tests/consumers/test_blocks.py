"""What a block has said of its partitions, when it ends in another way than it meant to."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.consumers import partition_leases
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.working_set import partitions_of
from arctic_orchestration.errors import InvalidInput, LeaseLost
from arctic_orchestration.state.consumer_tables import consumer_leases
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.standing_clock import Clock


class Wordless(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


def states(state: Database, engine: ConsumerEngine) -> dict[str, tuple[str, int, str]]:
    """State, attempts and reason of each partition."""
    with state.read() as tx:
        rows = partitions_of(tx, engine.seen(tx).id)
    return {row.partition: (row.state, row.attempts, row.reason) for row in rows}


WAITING, DISCARDED = PartitionState.WAITING, PartitionState.DISCARDED


def test_an_exception_says_nothing_of_what_was_named_before(
    state: Database, log: Log, clock: Clock
) -> None:
    """What was put back is no attempt, and a reason stays the one that was given."""
    engine = engine_of(state, log, clock)
    log.arrives("01", "02", "03")
    with pytest.raises(Wordless), engine.consume() as partitions:
        partitions.put_back("01", reason="later")
        partitions.failed("02", reason="it is empty")
        raise Wordless
    assert states(state, engine) == {
        "01": (WAITING, 0, "later"),
        "02": (WAITING, 1, "it is empty"),
        "03": (WAITING, 1, "Wordless (in a block of 3; it comes again alone)"),
    }


def test_the_end_of_a_process_says_nothing_of_what_was_named_before(
    state: Database, log: Log, clock: Clock
) -> None:
    """What has failed has failed; the others are put back."""
    engine = engine_of(state, log, clock, attempts=1)
    log.arrives("01", "02")
    with pytest.raises(KeyboardInterrupt), engine.consume() as partitions:
        partitions.failed("01", reason="it is empty")
        raise KeyboardInterrupt
    assert states(state, engine) == {
        "01": (DISCARDED, 1, "it is empty"),
        "02": (WAITING, 0, "KeyboardInterrupt"),
    }


@pytest.mark.parametrize("reason", [None, 5])
def test_a_reason_is_a_text(state: Database, log: Log, clock: Clock, reason: object) -> None:
    """Refused where it is given, and nothing is recorded of the partition."""
    engine = engine_of(state, log, clock)
    log.arrives("01")
    with engine.consume() as partitions:
        for mark in (partitions.failed, partitions.put_back):
            with pytest.raises(InvalidInput, match="reason: got .* expected a text"):
                mark(reason=reason)  # type: ignore[arg-type]
    assert str(partitions.result) == "1 acknowledged"


@pytest.mark.parametrize("named", [None, 5, ["01"]])
def test_a_partition_is_one_or_its_key(
    state: Database, log: Log, clock: Clock, named: object
) -> None:
    """Anything else is refused where it is given, and nothing is recorded of the partition."""
    engine = engine_of(state, log, clock)
    log.arrives("01")
    with engine.consume() as partitions:
        with pytest.raises(InvalidInput, match="partition: got .* expected one of those that were"):
            partitions.failed(named, reason="broken")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="partition: got .* expected one of those that were"):
            partitions.put_back(named)  # type: ignore[arg-type]
    assert str(partitions.result) == "1 acknowledged"


def test_a_long_transaction_does_not_lose_the_lease(state: Database, log: Log) -> None:
    """The renewal waits for it, but so does everybody who could take over."""
    log.arrives("01")
    engine = engine_of(state, log, lease=timedelta(milliseconds=300))
    with engine.consume() as partitions, partitions.acknowledging() as tx:
        renewal = partitions._renewal
        assert renewal is not None
        until(lambda: not renewal.lease.trusted, "the lease cannot be trusted any more")
        partitions.check()
        assert tx.execute(sa.select(sa.literal(1))).scalar() == 1
    assert str(partitions.result) == "1 acknowledged"


def test_outside_of_a_transaction_the_lease_is_lost_without_renewal(
    state: Database, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    log.arrives("01")
    engine = engine_of(state, log, lease=timedelta(milliseconds=300))
    monkeypatch.setattr(ConsumerEngine, "renew", lambda engine, taken: 1 / 0)
    with pytest.raises(LeaseLost), engine.consume() as partitions:
        renewal = partitions._renewal
        assert renewal is not None
        until(lambda: not renewal.lease.trusted, "the lease cannot be trusted any more")
        partitions.check()


def test_a_lease_that_is_forgotten_was_not_reset(
    state: Database, log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that have ended only so many are remembered."""
    monkeypatch.setattr(partition_leases, "_REMEMBERED", 1)
    engine = engine_of(state, log, clock)
    log.arrives("01")
    forgotten = pytest.raises(LeaseLost, match="lease with token 1 ended so long ago")
    with forgotten, engine.consume():
        clock.passes(minutes=1)
        for _ in range(3):
            with engine.consume() as partitions:
                partitions.put_back()


def test_the_last_leases_are_kept_and_one_that_goes_on_however_old_it_is(
    state: Database, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here two besides the newest; a thousand otherwise. The long block acknowledges its own."""
    monkeypatch.setattr(partition_leases, "_REMEMBERED", 2)
    log.arrives(*(f"{number:02}" for number in range(6)))
    engine = engine_of(state, log)
    lease = consumer_leases.c
    with engine.consume(limit=1) as first:
        for _ in range(5):
            with engine.consume(limit=1) as partitions:
                assert len(partitions) == 1
        with state.read() as tx:
            kept = tx.execute(sa.select(lease.token, lease.state).order_by(lease.token)).all()
        newest = kept[-1].token
        assert [row.state for row in kept] == ["live", "ended", "ended", "ended"]
        assert [row.token for row in kept[1:]] == [newest - 2, newest - 1, newest]
    assert str(first.result) == "1 acknowledged"
    assert engine.progress().acknowledged == 6
