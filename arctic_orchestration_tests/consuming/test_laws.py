"""Consumers against a small model of them, in every order that Hypothesis thinks of.

The model knows of arrivals, one by one: each is unread, waits, is somebody's, or has ended:
acknowledged, discarded, or gone with its partition. It never ends twice, and never is lost.

``ARCTIC_PROOF=full`` tries 300 orders on each database, by default 15.
"""

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from arctic_orchestration.consuming import consumers, control, leasing, working_set
from arctic_orchestration.consuming.engine import Taking
from arctic_orchestration.database.consumer_tables import (
    consumer_leases,
    consumer_partitions,
)
from arctic_orchestration.database.consumer_tables import consumers as consumer_rows
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import LeaseLost, TransitionRefused
from arctic_orchestration_tests.consuming.arrivals import (
    Clock,
    Log,
    Partitions,
    engine_of,
)

ORDERS = 300 if os.environ.get("ARCTIC_PROOF") == "full" else 15

LIFE = timedelta(seconds=60)
REST = timedelta(seconds=20)
ATTEMPTS = 2
KEYS = ["a1", "a2", "b1", "b2"]


@dataclass
class ModelPartition:
    """What the model knows of a partition that was read."""

    place: int
    #: arrivals that are not ended and not somebody's
    pending: list[int]
    #: arrivals that somebody has
    held: list[int] = field(default_factory=list)
    #: arrivals that were given up last
    discarded: list[int] = field(default_factory=list)
    state: str = "waiting"
    token: int = 0
    attempts: int = 0
    rests_until: datetime | None = None
    existed: bool = False


@dataclass
class ModelLease:
    """What the model knows of a lease."""

    token: int
    expires: datetime
    live: bool = True


class Consuming(RuleBasedStateMachine):
    """Each rule does one thing in the database and in the model, and compares the answers."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        with database.begin() as tx:
            for table in (consumer_partitions, consumer_leases, consumer_rows):
                tx.execute(sa.delete(table))
        self.database, self.log, self.clock = database, Log(), Clock()
        self.there = Partitions(set(KEYS))
        self.engine = engine_of(
            database, self.log, self.clock, existing=self.there, lease=LIFE, attempts=ATTEMPTS,
            retry_after=REST,
        )  # fmt: skip
        self.engine.events_at_once = 2
        self.read = 0
        self.places = 0
        self.model: dict[str, ModelPartition] = {}
        self.leases: dict[int, ModelLease] = {}
        self.takings: list[Taking] = []
        #: of each arrival, how it ended
        self.ended: dict[int, str] = {}
        #: of each arrival that was read, its number among all that the consumer took
        self.numbers: dict[int, int] = {}
        #: counts down for what is delivered again by hand
        self.by_hand = 0

    def _end(self, arrivals: list[int], how: str) -> None:
        for arrival in arrivals:
            assert arrival not in self.ended
            self.ended[arrival] = how

    def _read(self) -> None:
        """What the consumer does before it takes: all that has arrived becomes known."""
        for number in range(self.read, len(self.log.events)):
            event = self.log.events[number]
            if event.subject != "raw/flights":
                continue
            self.places += 1
            self.numbers[number] = self.places
            known = self.model.get(str(event.partition))
            if known is None:
                known = self.model[str(event.partition)] = ModelPartition(self.places, [])
            elif known.state in ("discarded", "acknowledged"):
                known.state, known.place = "waiting", self.places
            if known.state == "waiting":
                self._begin_anew(known)
            known.pending.append(number)
        self.read = len(self.log.events)

    def _begin_anew(self, known: ModelPartition) -> None:
        """What arrived has all its attempts, and may be announced before its key is added."""
        known.attempts, known.rests_until, known.existed = 0, None, False

    def _give_back(self, known: ModelPartition, *, counts: bool, rests: bool) -> None:
        known.state, known.token = "waiting", 0
        if known.pending:
            self._begin_anew(known)
        elif counts:
            known.attempts += 1
            known.rests_until = self.clock.now + REST if rests else None
            if known.attempts == ATTEMPTS:
                known.state, known.rests_until = "discarded", None
                self._end(known.held, "discarded")
                known.held, known.discarded = [], known.held
        known.pending, known.held = known.held + known.pending, []

    def _expire(self) -> None:
        for lease in self.leases.values():
            if lease.live and lease.expires <= self.clock.now:
                lease.live = False
                for known in self.model.values():
                    if known.token == lease.token:
                        self._give_back(known, counts=True, rests=False)

    def _forget_deleted(self) -> None:
        for key, known in list(self.model.items()):
            if known.state not in ("waiting", "discarded"):
                continue
            if key in self.there.keys:
                known.existed = True
            elif known.existed:
                self._end(known.pending, "gone")
                del self.model[key]

    def _ready(self) -> list[str]:
        return sorted(
            (
                key
                for key, known in self.model.items()
                if known.state == "waiting"
                and known.existed
                and (known.rests_until is None or known.rests_until <= self.clock.now)
            ),
            key=lambda key: self.model[key].place,
        )

    @rule(key=st.sampled_from(KEYS), asset=st.sampled_from(["raw/flights"] * 4 + ["raw/other"]))
    def arrive(self, key: str, asset: str) -> None:
        """A partition is materialized, of the asset or of another one."""
        self.log.arrives(key, asset=asset)

    @rule(key=st.sampled_from(KEYS))
    def delete_or_add(self, key: str) -> None:
        """The partition is removed in Dagster, or is there again."""
        self.there.keys ^= {key}

    @rule(limit=st.sampled_from([None, 1, 2]), where=st.sampled_from([None, None, "a*", "*2"]))
    def take(self, limit: int | None, where: str | None) -> None:
        """By their places, as many as are wanted of those that nobody has."""
        looked = self.engine.take(limit=limit, where=where)
        self._read()
        waits = any(
            known.state == "waiting"
            and (known.rests_until is None or known.rests_until <= self.clock.now)
            for known in self.model.values()
        )
        over = any(one.live and one.expires <= self.clock.now for one in self.leases.values())
        if waits or over:
            self._expire()
            self._forget_deleted()
        wanted = [
            key
            for key in self._ready()
            if where is None or (key[0] == "a" if where == "a*" else key[1] == "2")
        ][:limit]
        if not wanted:
            assert looked is None
            return
        assert looked is not None
        assert [one.key for one in looked.taken.partitions] == wanted
        token = looked.taken.token
        assert token > max(self.leases, default=0)
        self.leases[token] = ModelLease(token, self.clock.now + LIFE)
        for one in looked.taken.partitions:
            known = self.model[one.key]
            assert (one.attempt, one.arrivals) == (known.attempts + 1, len(known.pending))
            known.state, known.token = "leased", token
            known.held, known.pending = known.pending, []
        self.takings.append(looked)

    @precondition(lambda self: self.takings)
    @rule(
        back=st.sampled_from([0, 0, 0, 1, 2]),
        words=st.lists(st.sampled_from(["ack", "ack", "fail", "back"]), min_size=4, max_size=4),
    )
    def settle(self, back: int, words: list[str]) -> None:
        """Taken of a live lease alone; each partition by its own word."""
        taking = self.takings[-1 - min(back, len(self.takings) - 1)]
        keys = [one.key for one in taking.taken.partitions]
        said = dict(zip(keys, words, strict=False))
        lease = self.leases[taking.taken.token]
        try:
            with self.database.begin() as tx:
                settled = leasing.settle(
                    tx, taking.taken.consumer_id, lease.token,
                    failed={key: "broken" for key in keys if said[key] == "fail"},
                    put_back={key: "not now" for key in keys if said[key] == "back"},
                    time=self.clock,
                )  # fmt: skip
        except LeaseLost:
            assert not lease.live
            return
        assert lease.live
        lease.live = False
        counts = [settled.acknowledged, settled.failed, settled.put_back]
        assert counts == [list(said.values()).count(word) for word in ("ack", "fail", "back")]
        for key, word in said.items():
            known = self.model[key]
            if word != "ack":
                self._give_back(known, counts=word == "fail", rests=True)
                continue
            self._end(known.held, "acknowledged")
            known.held, known.attempts, known.rests_until, known.token = [], 0, None, 0
            known.state = "waiting" if known.pending else "acknowledged"
            if known.pending:
                self._begin_anew(known)
                known.place = self.numbers[known.pending[-1]]

    @precondition(lambda self: self.takings)
    @rule(back=st.sampled_from([0, 0, 1, 2]))
    def renew(self, back: int) -> None:
        """True for whoever has it, however late."""
        taking = self.takings[-1 - min(back, len(self.takings) - 1)]
        lease = self.leases[taking.taken.token]
        assert self.engine.renew(taking.taken) is lease.live
        if lease.live:
            lease.expires = self.clock.now + LIFE

    @rule(key=st.sampled_from(KEYS))
    def retry(self, key: str) -> None:
        """By hand: what is discarded or done comes again, what somebody has does not."""
        known = self.model.get(key)
        if known is None:
            return
        with self.database.begin() as tx:
            one = consumers.named(tx, "default", "totals")
            try:
                control.retry(tx, one, [key], self.clock.now)
            except TransitionRefused:
                assert known.state == "leased"
                return
        assert known.state != "leased"
        if known.state == "acknowledged":
            # As if it had arrived once more; such arrivals have numbers of their own.
            self.places += 1
            self.by_hand -= 1
            known.place = self.places
            known.pending.append(self.by_hand)
        elif known.state == "discarded":
            for arrival in known.discarded:
                del self.ended[arrival]
            known.pending, known.discarded = known.discarded, []
        known.state, known.attempts, known.rests_until = "waiting", 0, None

    @rule(seconds=st.sampled_from([1, 20, 59, 60]))
    def wait(self, seconds: int) -> None:
        """Time goes on."""
        self.clock.passes(seconds=seconds)

    @invariant()
    def nothing_is_lost_and_nothing_ends_twice(self) -> None:
        """Each arrival that was read is in one place; and rows say what the model says."""
        somewhere = set(self.ended)
        for known in self.model.values():
            for arrival in (*known.pending, *known.held):
                assert arrival not in somewhere
                somewhere.add(arrival)
        read = {n for n in range(self.read) if self.log.events[n].subject == "raw/flights"}
        assert read <= somewhere
        with self.database.read() as tx:
            one = consumers.named(tx, "default", "totals")
            rows = {row.partition: row for row in working_set.partitions_of(tx, one.id)}
            live = [row.token for row in leasing.live_leases(tx, one.id)]
        assert rows.keys() == self.model.keys()
        for key, known in self.model.items():
            row = rows[key]
            assert (row.state, row.attempts, row.token or 0, row.place) == (
                known.state, known.attempts, known.token, known.place,
            )  # fmt: skip
        assert live == [lease.token for lease in self.leases.values() if lease.live]


def test_consumers_do_what_their_model_does(state: Database) -> None:
    """Arrivals, takings, all ends of a lease, deletions, retries and time, in any order."""
    run_machine(
        lambda: Consuming(state),
        settings=settings(
            max_examples=ORDERS,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("way", ["doubling", "losing"])
def test_the_model_finds_what_is_wrong(
    state: Database, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a settlement that ignores the lease, and a reading that forgets a late one."""
    if way == "doubling":
        monkeypatch.setattr(leasing, "hold", lambda tx, consumer_id, token: 0)
        monkeypatch.setattr(leasing, "check_number", lambda settled, partitions, token: None)
    else:
        arrive = working_set._Entry.arrive

        def forget(entry: working_set._Entry, *arguments: object) -> None:
            if entry.state != "leased":
                arrive(entry, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(working_set._Entry, "arrive", forget)
    with pytest.raises(AssertionError):
        run_machine(
            lambda: Consuming(state),
            settings=settings(
                max_examples=200,
                stateful_step_count=30,
                deadline=None,
                print_blob=False,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            ),
        )
