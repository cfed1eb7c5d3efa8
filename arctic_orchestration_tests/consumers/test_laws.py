"""Consumers against a small model of them, in every order that Hypothesis thinks of.

``ARCTIC_PROOF=full`` tries 300 orders on each database, by default 15.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from arctic_orchestration.consumers import control, partition_leases, store, working_set
from arctic_orchestration.consumers.control import LogEnd
from arctic_orchestration.consumers.engine import ConsumerEngine, Taking
from arctic_orchestration.consumers.partition import matcher
from arctic_orchestration.errors import InvalidInput, LeaseLost, TransitionRefused
from arctic_orchestration.state.consumer_tables import consumer_leases, consumer_partitions
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.arrivals import NOON, Log, Partitions, engine_of
from arctic_orchestration_tests.consumers.model import (
    AT_ONCE,
    ATTEMPTS,
    HELD_FOR,
    LIFE,
    REST,
    Model,
    ModelLease,
    Wanted,
)
from arctic_orchestration_tests.standing_clock import Clock

ORDERS = 300 if os.environ.get("ARCTIC_PROOF") == "full" else 15

KEYS = ["a1", "a2", "b1", "b2"]
#: filters, and what they mean
WHERE: dict[str | None, Wanted | None] = {
    None: None,
    "a*": lambda key: key[0] == "a",
    "*2": lambda key: key[1] == "2",
}


class Consuming(RuleBasedStateMachine):
    """Each rule does one thing in the database and in the model, and compares the answers."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        with database.begin() as tx:
            for table in (consumer_partitions, consumer_leases, consumer_rows):
                tx.execute(sa.delete(table))
        self.database, self.log, self.clock = database, Log(), Clock()
        self.there = Partitions(set(KEYS))
        self.takings: list[Taking] = []
        self.engines: list[ConsumerEngine] = []

    @initialize(
        room=st.sampled_from([2, 2, 10_000]),
        ends=st.sampled_from([None, None, 90]),
        retry=st.sampled_from(["one_by_one", "one_by_one", "together"]),
    )
    def make(self, room: int, ends: int | None, retry: str) -> None:
        """Two that use one name. The log may be longer than the working set."""
        until = None if ends is None else NOON + timedelta(seconds=ends)
        self.model = Model(
            self.log, self.clock, self.there, room, until, one_by_one=retry == "one_by_one"
        )
        for _ in range(2):
            engine = engine_of(
                self.database, self.log, self.clock, existing=self.there, lease=LIFE,
                attempts=ATTEMPTS, retry_after=REST, held_for=HELD_FOR, working_set=room,
                until=until, retry=retry,
            )  # fmt: skip
            engine.events_at_once = AT_ONCE
            self.engines.append(engine)

    def _taking(self, back: int) -> tuple[Taking, ModelLease]:
        taking = self.takings[-1 - min(back, len(self.takings) - 1)]
        return taking, self.model.leases[taking.taken.token]

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        asset=st.sampled_from(["raw/flights"] * 4 + ["raw/other"]),
    )
    def arrive(self, keys: list[str], asset: str) -> None:
        """Partitions are materialized, of the asset or of another one."""
        self.log.arrives(*keys, asset=asset, at=self.clock.now)

    @rule(key=st.sampled_from(KEYS))
    def delete_or_add(self, key: str) -> None:
        """The partition is removed in Dagster, or is there again."""
        self.there.keys ^= {key}

    @rule(
        who=st.sampled_from([0, 1]),
        limit=st.sampled_from([None, 1, 2]),
        where=st.sampled_from([None, None, "a*", "*2"]),
    )
    def take(self, who: int, limit: int | None, where: str | None) -> None:
        """By their places, as many as are wanted of those that nobody has."""
        looked = self.engines[who].take(limit=limit, where=where)
        model = self.model
        keys = model.take(limit, WHERE[where])
        if looked is None:
            assert keys == []
            # Nothing hides what is new.
            assert model.read == len(self.log.events)
            matches = WHERE[where] or (lambda key: True)
            for key, known in model.partitions.items():
                assert not (model.is_due(known) and key in self.there.keys and matches(key))
            return
        assert [one.key for one in looked.taken.partitions] == keys
        token = looked.taken.token
        assert token > max(model.leases, default=0)
        model.leases[token] = ModelLease(token, self.clock.now + LIFE)
        for one in looked.taken.partitions:
            known = model.partitions[one.key]
            assert (one.attempt, one.arrivals) == (known.attempts + 1, len(known.pending))
            known.state, known.token = "leased", token
            known.held, known.pending = known.pending, []
        self.takings.append(looked)

    @precondition(lambda self: self.takings)
    @rule(
        back=st.sampled_from([0, 0, 0, 1, 2]),
        words=st.lists(
            st.sampled_from(["ack", "ack", "fail", "share", "back"]), min_size=4, max_size=4
        ),
        reset=st.sampled_from([False, False, False, True]),
    )
    def end(self, back: int, words: list[str], reset: bool) -> None:
        """Taken of a live lease alone; each partition by its own word.

        On Postgres the consumer may be reset after the lease was locked.
        """
        taking, lease = self._taking(back)
        keys = [one.key for one in taking.taken.partitions]
        words_of = dict(zip(keys, words, strict=False))
        try:
            with self.database.begin() as tx:
                partition_leases.lock_lease(tx, taking.taken.consumer_id, lease.token)
                if reset and tx.dialect.name == "postgresql":
                    self._reset(from_now=False, locked=lease.token)
                result = partition_leases.end_lease(
                    tx, taking.taken.consumer_id, lease.token,
                    failed={key: "broken" for key in keys if words_of[key] == "fail"},
                    shared={key: "one of them" for key in keys if words_of[key] == "share"},
                    put_back={key: "not now" for key in keys if words_of[key] == "back"},
                    time=self.clock,
                )  # fmt: skip
        except LeaseLost:
            assert not lease.live or lease.emptied
            return
        assert lease.live
        assert not lease.emptied
        lease.live = False
        counts = [result.acknowledged, result.failed, result.put_back]
        number = {word: list(words_of.values()).count(word) for word in words_of.values()}
        failed = number.get("fail", 0) + number.get("share", 0)
        assert counts == [number.get("ack", 0), failed, number.get("back", 0)]
        for key, word in words_of.items():
            known = self.model.partitions[key]
            if word == "ack":
                self.model.acknowledge(known)
            else:
                counted, shared = word in ("fail", "share"), word == "share"
                self.model.lose(known, counts=counted, rests=True, shared=shared)

    @precondition(lambda self: self.takings)
    @rule(back=st.sampled_from([0, 0, 1, 2]), who=st.sampled_from([0, 1]))
    def renew(self, back: int, who: int) -> None:
        """True for whoever has it, however late."""
        taking, lease = self._taking(back)
        still = lease.live and not lease.emptied
        assert self.engines[who].renew(taking.taken) is still
        if still:
            lease.expires = self.clock.now + LIFE

    @rule(key=st.sampled_from(KEYS))
    def retry(self, key: str) -> None:
        """Manually: what is discarded or done comes again, what is leased does not."""
        known = self.model.partitions.get(key)
        if known is None:
            return
        with self.database.begin() as tx:
            one = store.by_name(tx, "default", "totals")
            try:
                control.retry(tx, one, [key], self.clock.now)
            except TransitionRefused:
                assert known.state == "leased"
                return
        assert known.state != "leased"
        self.model.retry(known)

    @rule(from_now=st.booleans(), meant=st.sampled_from([False, False, True]))
    def reset(self, from_now: bool, meant: bool) -> None:
        """All begins again, not too often; not after the end."""
        if not meant:
            return
        try:
            self._reset(from_now=from_now, locked=None)
        except InvalidInput:
            assert from_now
            assert self.model.until is not None
            assert self.clock.now >= self.model.until

    def _reset(self, *, from_now: bool, locked: int | None) -> None:
        end = LogEnd(storage_id="storage", position=self.log.end().to_json())
        with self.database.begin() as tx:
            one = store.by_name(tx, "default", "totals")
            start = "from_now" if from_now else "from_beginning"
            control.reset(tx, one, start, self.clock.now, end=end)
        self.model.reset(from_now=from_now, locked=locked)

    @rule(seconds=st.sampled_from([1, 20, 59, 60]))
    def wait(self, seconds: int) -> None:
        """Time goes on."""
        self.clock.passes(seconds=seconds)

    @invariant()
    def nothing_is_lost_and_nothing_ends_twice(self) -> None:
        """Each arrival that was read is in one place; and rows say what the model says."""
        model = self.model
        somewhere = set(model.ended)
        for known in model.partitions.values():
            for arrival in (*known.pending, *known.held):
                assert arrival not in somewhere
                somewhere.add(arrival)
        read = range(model.begin, model.read)
        assert {number for number in read if model.is_own(self.log.events[number])} <= somewhere
        with self.database.read() as tx:
            one = store.by_name(tx, "default", "totals")
            rows = {row.partition: row for row in working_set.partitions_of(tx, one.id)}
            live = [row.token for row in partition_leases.live_leases(tx, one.id)]
        assert rows.keys() == model.partitions.keys()
        for key, known in model.partitions.items():
            row = rows[key]
            assert (row.state, row.attempts, row.token or 0, row.place, row.held) == (
                known.state, known.attempts, known.token, known.place, known.absent is not None,
            )  # fmt: skip
        assert live == [lease.token for lease in model.leases.values() if lease.live]


@pytest.mark.proof
def test_consumers_do_what_their_model_does(state: Database) -> None:
    """Arrivals, takings, all ends of a lease, deletions, retries and time, in any order."""
    run_machine(
        lambda: Consuming(state),  # type: ignore[arg-type]
        settings=settings(
            max_examples=ORDERS,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _never(*arguments: object) -> None:
    """Looks at nothing."""


def _hold_nothing(tx: sa.Connection, consumer_id: int, token: int) -> int:
    return 0


_arrive = working_set._Entry.arrive


def _forget_a_late_one(entry: working_set._Entry, *arguments: Any) -> None:
    if entry.state != "leased":
        _arrive(entry, *arguments)


def _think_it_was_there(entry: working_set._Entry, *arguments: Any) -> None:
    existed = entry.existed
    _arrive(entry, *arguments)
    entry.existed = existed


def _read_no_further(engine: ConsumerEngine, **how: Any) -> Taking | None:
    engine.read_on()
    return engine._claim(how["limit"], matcher(how["where"]), None)[0]


#: what is wrong with each: it ignores the lease, loses what arrives late, takes what is announced
#: for deleted, and lets what cannot be taken hide the rest
WRONG: dict[str, tuple[tuple[object, str, Callable[..., object]], ...]] = {
    "doubling": (
        (partition_leases, "lock_lease", _hold_nothing),
        (partition_leases, "check_number", _never),
    ),
    "losing": ((working_set._Entry, "arrive", _forget_a_late_one),),
    "deleting": ((working_set._Entry, "arrive", _think_it_was_there),),
    "hiding": ((ConsumerEngine, "take", _read_no_further),),
}


def _hides(state: Database) -> None:
    """Partitions that are not there, as many as are read at once, and one that is."""
    machine = Consuming(state)
    machine.make(room=2, ends=None, retry="together")
    machine.arrive(keys=["a1", "a2"], asset="raw/flights")
    machine.delete_or_add("a1")
    machine.delete_or_add("a2")
    machine.arrive(keys=["b1"], asset="raw/flights")
    machine.take(who=0, limit=None, where=None)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_model_finds_what_hides_the_rest(
    state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an engine that reads once finds nothing, and the model a partition."""
    _hides(state)
    for place, name, wrong in WRONG["hiding"]:
        monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        _hides(state)


@pytest.mark.parametrize("backend", ["sqlite"])
# The last one takes forty seconds, and is found in an order of its own above.
@pytest.mark.parametrize("way", WRONG if ORDERS > 15 else [way for way in WRONG if way != "hiding"])
def test_the_model_finds_what_is_wrong(
    state: Database, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: each law that is broken is found."""
    for place, name, wrong in WRONG[way]:
        monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        run_machine(
            lambda: Consuming(state),  # type: ignore[arg-type]
            settings=settings(
                # What is drawn depends on the constants of all modules that are imported.
                max_examples=2000,
                stateful_step_count=30,
                deadline=None,
                print_blob=False,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            ),
        )
