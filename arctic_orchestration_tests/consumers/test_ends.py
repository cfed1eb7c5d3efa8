"""A consumer whose ``until`` is moved earlier: what it has read ends there too."""

from datetime import timedelta

from arctic_orchestration.event_log.feed import Batch, Position
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, engine_of
from arctic_orchestration_tests.standing_clock import Clock

MOMENT = NOON + timedelta(minutes=30)
LATER = NOON + timedelta(hours=1)


def test_each_arrival_belongs_to_one_of_two_that_a_moment_separates(
    state: Database, log: Log, clock: Clock
) -> None:
    """Also those that the former one had read when it got its end."""
    log.arrives("done", "leased", "early")
    past = engine_of(state, log, clock, name="past")
    with past.consume(limit=1) as done:
        assert done.keys == ["done"]
    with past.consume(limit=1) as leased:
        assert leased.keys == ["leased"]
        log.arrives("done", "leased", "late", at=LATER)
        past.read_on()
        past = engine_of(state, log, clock, name="past", until=MOMENT)
    with past.consume() as partitions:
        assert partitions.keys == ["early"]
    progress = past.progress()
    assert (progress.acknowledged, progress.caught_up) == (3, True)
    with engine_of(state, log, clock, name="present", start=MOMENT).consume() as partitions:
        assert partitions.keys == ["done", "leased", "late"]


def test_a_read_in_progress_stores_nothing_beyond_the_new_end(
    state: Database, clock: Clock
) -> None:
    """It has read the consumer as it was before."""

    class Slow(Log):
        def read(self, position: Position | None, limit: int) -> Batch:
            if self.readings == 0:
                self.readings += 1
                engine_of(state, self, clock, until=MOMENT)
            return super().read(position, limit)

    log = Slow()
    log.arrives("early")
    log.arrives("late", at=LATER)
    engine = engine_of(state, log, clock)
    with engine.consume() as partitions:
        assert partitions.keys == ["early"]


def test_what_arrived_during_a_lease_stays_by_the_earliest_of_its_moments(
    state: Database, log: Log, clock: Clock
) -> None:
    """A writer whose clock is behind announces it last; whatever the end of the lease is."""
    engine = engine_of(state, log, clock)
    log.arrives("acknowledged", "put back", at=LATER)
    with engine.consume() as partitions:
        log.arrives("acknowledged", "put back", at=LATER)
        log.arrives("acknowledged", "put back")
        engine.read_on()
        partitions.put_back("put back")
    engine = engine_of(state, log, clock, until=MOMENT)
    with engine.consume() as partitions:
        assert {one.key: one.first_at for one in partitions} == {
            "acknowledged": NOON,
            "put back": NOON,
        }
