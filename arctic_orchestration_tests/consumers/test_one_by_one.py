"""One bad partition is given up alone: its neighbours in a block are processed."""

import logging
import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arctic_orchestration.consumers import partition_leases
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.working_set import partitions_of
from arctic_orchestration.errors import PartitionsGivenUp
from arctic_orchestration.state.consumer_tables import consumer_leases, consumer_partitions
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.tables import locations, notices
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, Partitions, engine_of
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.proofs.processes import end_with_the_parent
from arctic_orchestration_tests.standing_clock import Clock

LIFE = timedelta(seconds=60)
DAYS = [f"{number:02}" for number in range(1, 13)]


class BadFile(Exception):
    """What a block fails with when it meets a bad partition."""


def consume_all(
    engine: ConsumerEngine,
    clock: Clock,
    *,
    bad: set[str],
    deadly: set[str] = frozenset(),  # type: ignore[assignment]
    limits: list[int | None],
) -> tuple[Counter[str], list[list[str]]]:
    """Consumes until nothing is left; a block with something deadly ends without a word.

    Returns:
        how often each partition was processed in a block that succeeded, and all blocks.
    """
    processed: Counter[str] = Counter()
    blocks: list[list[str]] = []
    while engine.progress().left:
        limit = limits[len(blocks) % len(limits)]
        taking = engine.take(limit=limit)
        if taking is None:
            # All that is left rests, or is leased to a process that is gone.
            clock.passes(minutes=1)
            continue
        keys = [one.key for one in taking.taken.partitions]
        blocks.append(keys)
        assert len(blocks) < 1000
        if deadly.intersection(keys):
            continue
        # The same partitions, in a block.
        with engine.database.begin() as tx:
            partition_leases.end_lease(
                tx, taking.taken.consumer_id, taking.taken.token,
                put_back=dict.fromkeys(keys, "to be taken by a block"), time=clock,
            )  # fmt: skip
        try:
            with engine.consume(limit=limit) as partitions:
                assert partitions.keys == keys
                if bad.intersection(keys):
                    raise BadFile(f"cannot be read: {keys}")
        except BadFile:
            continue
        processed.update(keys)
    return processed, blocks


def given_up(engine: ConsumerEngine) -> set[str]:
    """The partitions that are given up."""
    with engine.database.read() as tx:
        rows = partitions_of(tx, engine.seen(tx).id)
    return {row.partition for row in rows if row.state == "discarded"}


def test_a_bad_partition_is_given_up_without_its_neighbours(
    state: Database, log: Log, clock: Clock
) -> None:
    """A block of twelve fails once; then eleven succeed alone, and the bad one fails twice more."""
    log.arrives(*DAYS)
    engine = engine_of(state, log, clock)
    processed, blocks = consume_all(engine, clock, bad={"05"}, limits=[12])
    assert given_up(engine) == {"05"}
    assert processed == Counter(set(DAYS) - {"05"})
    # The bad one rests after its second attempt, and comes for the third when its rest is over.
    assert blocks == [DAYS, *([day] for day in DAYS), ["05"]]
    progress = engine.progress()
    assert (progress.caught_up, progress.left) == (False, 0)
    assert str(progress) == "11 of 12 (91.7%), 1 given up"


def test_together_all_of_a_block_are_given_up(state: Database, log: Log, clock: Clock) -> None:
    """The control: with ``together`` a bad one takes its neighbours with it."""
    log.arrives(*DAYS)
    engine = engine_of(state, log, clock, retry="together")
    _, blocks = consume_all(engine, clock, bad={"05"}, limits=[12])
    assert given_up(engine) == set(DAYS)
    assert blocks == [DAYS] * 3
    assert str(engine.progress()) == "0 of 12 (0.0%), 12 given up"


def test_one_attempt_is_not_used_up_by_a_block(state: Database, log: Log, clock: Clock) -> None:
    """With one attempt, too, a partition is given up only for a failure of its own."""
    log.arrives("01", "02", "03")
    engine = engine_of(state, log, clock, attempts=1)
    processed, blocks = consume_all(engine, clock, bad={"02"}, limits=[None])
    assert given_up(engine) == {"02"}
    assert processed == Counter(["01", "03"])
    assert blocks == [["01", "02", "03"], ["01"], ["02"], ["03"]]


def test_what_is_failed_by_name_is_given_up_in_a_block(
    state: Database, log: Log, clock: Clock
) -> None:
    """There is no doubt about which one it was."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock, attempts=1)
    with engine.consume() as partitions:
        partitions.failed("02", reason="it is empty")
    assert given_up(engine) == {"02"}


def test_what_has_failed_is_taken_alone_and_in_its_place(
    state: Database, log: Log, clock: Clock
) -> None:
    """What arrived later is taken together, after it; a new arrival makes it one of them."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock)
    with pytest.raises(BadFile), engine.consume():
        raise BadFile("one of them")
    log.arrives("03", "04", "05")
    with engine.consume(limit=1) as partitions:
        assert partitions.keys == ["03"]
        partitions.put_back()
    clock.passes(minutes=1)
    with engine.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("01", 2)]
        partitions.put_back()
    log.arrives("01")
    with engine.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [
            (key, 1) for key in ("01", "03", "04", "05")
        ]
    with engine.consume() as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("02", 2)]


def test_a_reason_says_that_it_comes_again_alone(state: Database, log: Log, clock: Clock) -> None:
    """So a person sees why a good partition has failed."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock)
    with pytest.raises(BadFile), engine.consume():
        raise BadFile("no such file")
    with state.read() as tx:
        reasons = {row.reason for row in partitions_of(tx, engine.seen(tx).id)}
    assert reasons == {"BadFile: no such file (in a block of 2; it comes again alone)"}


KEYS = [f"{number:02}" for number in range(9)]


def check_law(
    state: Database,
    *,
    bad: set[str],
    deadly: set[str],
    limits: list[int | None],
    attempts: int,
    retry: str = "one_by_one",
) -> None:
    """Exactly the bad ones are given up, and each other one is processed once."""
    with state.begin() as tx:
        for table in (consumer_partitions, consumer_leases, consumer_rows):
            tx.execute(sa.delete(table))
    log, clock = Log(), Clock()
    log.arrives(*KEYS)
    engine = engine_of(state, log, clock, attempts=attempts, retry=retry, lease=LIFE)
    processed, blocks = consume_all(engine, clock, bad=bad, deadly=deadly, limits=limits)
    hopeless = bad | deadly
    assert given_up(engine) == hopeless
    assert processed == Counter(set(KEYS) - hopeless)
    assert engine.progress().caught_up is not bool(hopeless)
    # A bad one is alone at least once, and has as many attempts as it is given, or one more.
    tried = Counter(key for block in blocks for key in block)
    for key in hopeless:
        assert attempts <= tried[key] <= max(attempts, 2)


SOME = st.sets(st.sampled_from(KEYS))
LIMITS = st.lists(st.sampled_from([None, 1, 2, 3, 5]), min_size=1, max_size=3)


@pytest.mark.proof
def test_exactly_the_bad_ones_are_given_up(state: Database) -> None:
    """The law, with any bad partitions, any that kill their process, and blocks of any size."""

    @settings(
        max_examples=400 if os.environ.get("ARCTIC_PROOF") == "full" else 20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(bad=SOME, deadly=SOME, limits=LIMITS, attempts=st.integers(1, 3))
    def law(bad: set[str], deadly: set[str], limits: list[int | None], attempts: int) -> None:
        check_law(state, bad=bad, deadly=deadly, limits=limits, attempts=attempts)

    law()


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(("bad", "deadly"), [({"03"}, set()), (set(), {"03"})])
def test_the_law_is_broken_by_together(state: Database, bad: set[str], deadly: set[str]) -> None:
    """The control."""
    with pytest.raises(AssertionError):
        check_law(state, bad=bad, deadly=deadly, limits=[5], attempts=3, retry="together")


def test_people_are_notified_of_what_is_given_up(
    state: Database, log: Log, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """One notice for a block, where a dispatcher of its cluster ticked last; and the log."""
    with state.begin() as tx:
        for name, ticked_at in (("old", NOON - timedelta(days=1)), ("new", NOON), ("none", None)):
            values = {"cluster": "default", "name": name, "ticked_at": ticked_at}
            tx.execute(sa.insert(locations).values(values))
        later = {"cluster": "other", "name": "theirs", "ticked_at": NOON + timedelta(minutes=1)}
        tx.execute(sa.insert(locations).values(later))
    log.arrives(*DAYS)
    engine = engine_of(state, log, clock, attempts=1)
    with caplog.at_level(logging.WARNING, "arctic.consumers"), engine.consume() as partitions:
        for day in DAYS[:7]:
            partitions.failed(day, reason=f"no file\0{day}")
    query = sa.select(notices, locations.c.name).join(locations)
    with state.read() as tx:
        (notice,) = tx.execute(query).all()
    named = "; ".join(f"{day}: no file\N{REPLACEMENT CHARACTER}{day}" for day in DAYS[:5])
    assert notice.reason == (
        f"7 partitions are given up: {named}; and 2 more. "
        "Mend the cause, then run: arctic consumers retry totals --all"
    )
    assert (notice.event, notice.schedule, notice.name) == ("quarantined", "consumer totals", "new")
    assert notice.send_at == clock.now
    (line,) = caplog.messages
    assert line.startswith("consumer totals: 7 partitions are given up: 01: no file")


def test_without_a_location_giving_up_is_logged(
    state: Database, log: Log, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A program may consume where no dispatcher ever was. What is rolled back is not logged."""
    log.arrives("01")
    engine = engine_of(state, log, clock, attempts=1)
    taking = engine.take()
    assert taking is not None
    taken = taking.taken
    with caplog.at_level(logging.WARNING, "arctic.consumers"):
        with pytest.raises(BadFile), state.begin() as tx:
            partition_leases.end_lease(
                tx, taken.consumer_id, taken.token, failed={"01": "bad"}, time=clock
            )
            raise BadFile
        assert caplog.messages == []
        with state.begin() as tx:
            partition_leases.end_lease(
                tx, taken.consumer_id, taken.token, failed={"01": "bad"}, time=clock
            )
    assert len(caplog.messages) == 1
    with state.read() as tx:
        assert tx.execute(sa.select(sa.func.count()).select_from(notices)).scalar() == 0


def test_what_was_never_added_in_dagster_is_reported_too(
    state: Database, log: Log, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given up as what failed is."""
    log.arrives("01")
    engine = engine_of(state, log, clock, existing=Partitions(), held_for=timedelta(hours=1))
    assert engine.take() is None
    clock.passes(hours=1)
    with caplog.at_level(logging.WARNING, "arctic.consumers"):
        assert engine.take() is None
    (line,) = caplog.messages
    assert "1 partition is given up: 01: it was not added in Dagster for 1h." in line
    assert not engine.progress().caught_up


def test_a_run_can_fail_for_what_is_given_up(state: Database, log: Log, clock: Clock) -> None:
    """Until it is delivered again, or arrives again."""
    log.arrives("01", "02")
    engine = engine_of(state, log, clock, attempts=1)
    engine.check_given_up()
    with engine.consume() as partitions:
        partitions.failed("02", reason="it is empty")
    with pytest.raises(PartitionsGivenUp) as error:
        engine.check_given_up()
    assert str(error.value) == (
        "consumer totals: 1 partition is given up: 02: it is empty. "
        "Mend the cause, then run: arctic consumers retry totals --all"
    )
    log.arrives("02")
    with engine.consume() as partitions:
        assert partitions.keys == ["02"]
    engine.check_given_up()


def consume_until_killed(url: str, keys: list[str], deadly: str, log_path: str) -> None:
    """A worker that processes blocks of three, and is killed by one partition."""
    end_with_the_parent()
    database, log = Database(url), Log()
    log.arrives(*keys)
    engine = engine_of(database, log)
    while True:
        with engine.consume(limit=3) as partitions:
            if not partitions:
                return
            if deadly in partitions.keys:
                os.kill(os.getpid(), signal.SIGKILL)
            with Path(log_path).open("a") as file:
                file.writelines(f"{key}\n" for key in partitions.keys)


def end_dead_leases(database: Database) -> None:
    """The leases of the process that was killed are over, without waiting for that."""
    with database.begin() as tx:
        over = sa.update(consumer_leases).where(consumer_leases.c.state == "live")
        tx.execute(over.values(expires_at=database_time(tx)))


@pytest.mark.timeout(300)
def test_a_partition_that_kills_its_process_is_given_up_alone(
    state: Database, database_url: str, tmp_path: Path
) -> None:
    """Killed with its block, then twice alone; after each kill the worker is started again."""
    keys, processed = ["01", "02", "03", "04", "05"], tmp_path / "processed"
    kills = 0
    while True:
        process = forkserver().Process(
            target=consume_until_killed, args=(database_url, keys, "02", str(processed))
        )
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        assert kills <= 10
        end_dead_leases(state)
    log = Log()
    engine = engine_of(state, log)
    assert kills == 3
    assert given_up(engine) == {"02"}
    assert sorted(processed.read_text().split()) == ["01", "03", "04", "05"]


def test_a_retry_is_one_of_two(state: Database, log: Log) -> None:
    """Anything else is refused by its field."""
    make: Callable[..., object] = engine_of
    with pytest.raises(Exception, match="retry: got 'twice', expected .*one_by_one.*together"):
        make(state, log, retry="twice")
