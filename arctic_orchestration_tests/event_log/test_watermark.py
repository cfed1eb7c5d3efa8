"""The exact method as a state machine, against a small model of Postgres."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidInput, LogWentBack
from arctic_orchestration.event_log import watermark
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.watermark import Holders, ReaderState, Zone
from arctic_orchestration_tests.event_log.simulated_postgres import STEPS, SimulatedPostgres

scripts = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.sampled_from(STEPS), st.integers(0, 3)),
    ),
    max_size=160,
)

#: A is given 1, B is given 2 and commits first; the reader polls twice; then A commits.
LATE_COMMIT = [
    ("lock", 0), ("insert", 0), ("lock", 0), ("insert", 1), ("show", 1), ("unlock", 0),
    *[("answer", 0)] * 24, ("show", 0), ("unlock", 0),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bound is so small that all of them are met in short scripts."""
    monkeypatch.setattr(watermark, "IDS_PER_STEP", 4)
    monkeypatch.setattr(watermark, "RANGES_PER_STEP", 2)
    monkeypatch.setattr(watermark, "STEPS_PER_POLL", 3)
    monkeypatch.setattr(watermark, "HOLES_AT_MOST", 3)


def run_script(server: SimulatedPostgres, script: list[tuple[str, int]]) -> SimulatedPostgres:
    """The server after the script, when all have committed and all is read."""
    for step, which in script:
        server.do(step, which)
    server.finish()
    return server


class TestEveryInterleaving:
    """Locks, ids, commits, rollbacks, prepared transactions, crashes between any two queries."""

    @given(scripts, st.integers(1, 5))
    def test_each_committed_row_is_delivered_once(
        self, script: list[tuple[str, int]], limit: int
    ) -> None:
        """Whatever happens between two statements, nothing is lost and nothing comes twice."""
        server = run_script(SimulatedPostgres(limit=limit), script)
        assert sorted(server.delivered) == server.committed

    def test_hundreds_of_longer_scripts_lose_nothing_either(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Random scripts with many rows, and polls about as often as commits."""
        steps = (*STEPS, *["insert"] * 4, "show", "unlock", *["answer"] * 12)
        for seed in range(800):
            chance = random.Random(seed)
            monkeypatch.setattr(watermark, "HOLES_AT_MOST", 3 if seed % 2 else 1000)
            script = [(chance.choice(steps), chance.randrange(4)) for _ in range(250)]
            server = run_script(SimulatedPostgres(limit=1 + seed % 9), script)
            assert sorted(server.delivered) == server.committed, seed

    @given(scripts)
    def test_when_all_is_read_the_position_is_small(self, script: list[tuple[str, int]]) -> None:
        """At rest nothing is stored but the watermark."""
        server = run_script(SimulatedPostgres(), script)
        assert server.state.zones == ()
        assert server.state.seen == IdRanges()


class TestControls:
    """The same scripts lose rows as soon as a part of the method is left out."""

    def test_the_late_commit_is_delivered(self) -> None:
        """Row 2 comes first, row 1 when its transaction commits."""
        assert run_script(SimulatedPostgres(), LATE_COMMIT).delivered == [2, 1]

    def test_without_the_holders_the_late_commit_is_lost(self) -> None:
        """Control: with nobody to wait for, the method is the naive cursor."""

        class WithoutHolders(SimulatedPostgres):
            def _reply(self, query: object) -> object:
                if isinstance(query, watermark.HoldersQuery):
                    return Holders(basis="1", present=frozenset())
                return super()._reply(query)

        assert run_script(WithoutHolders(), LATE_COMMIT).delivered == [2]

    def test_without_the_rule_for_prepared_transactions_they_are_lost(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A transaction that is prepared between two polls takes another name."""
        script = [*LATE_COMMIT[:-2], ("prepare", 0), *[("answer", 0)] * 24, *LATE_COMMIT[-2:]]
        assert run_script(SimulatedPostgres(), script).delivered == [2, 1]
        monkeypatch.setattr(watermark, "_prepared", lambda names: frozenset())
        assert run_script(SimulatedPostgres(), script).delivered == [2]

    def test_holders_read_before_the_head_lose_rows(self) -> None:
        """Control: in the other order a writer can begin in between and be missed."""

        def holders_first(state: ReaderState, limit: int) -> watermark.Queries:
            early = yield watermark.HoldersQuery()
            queries = watermark.poll(state, limit)
            query = next(queries)
            try:
                while True:
                    is_holders_query = isinstance(query, watermark.HoldersQuery)
                    query = queries.send(early if is_holders_query else (yield query))
            except StopIteration as end:
                result: watermark.ReadResult = end.value
                return result

        # The early answer is empty; then A is given 1, and B is given 2 and commits.
        script = [("answer", 0), ("answer", 0), *LATE_COMMIT]
        assert run_script(SimulatedPostgres(), script).delivered == [2, 1]
        assert run_script(SimulatedPostgres(poll=holders_first), script).delivered == [2]


class TestOneLongTransaction:
    """A transaction stays open while very much is written around it."""

    def test_zones_and_holes_stay_few_and_others_come_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """500 short transactions beside an open one: each is delivered before the next."""
        monkeypatch.setattr(watermark, "STEPS_PER_POLL", 16)
        server = SimulatedPostgres(limit=100)
        server.do("lock")
        server.do("insert")
        for number in range(2, 502):
            server.do("lock")
            server.do("insert", 1)
            server.do("show", 1)
            server.do("unlock")
            for _ in range(30):
                server.do("answer")
            assert server.delivered[-1] == number
            assert len(server.state.zones) <= 2
            assert len(server.state.seen) <= 1
        server.finish()
        assert server.delivered == [*range(2, 502), 1]

    def test_a_late_commit_beside_it_does_not_wait_for_it(self) -> None:
        """1 stays open; 2 is committed after 3 was read, and comes all the same."""
        server = SimulatedPostgres()
        for _ in range(3):
            server.do("lock")
        for number in range(3):
            server.do("insert", number)
        server.do("show", 2)
        server.do("unlock")
        for _ in range(30):
            server.do("answer")
        assert server.delivered == [3]
        server.do("show", 1)
        server.do("unlock")
        for _ in range(30):
            server.do("answer")
        assert server.delivered == [3, 2]
        server.finish()
        assert server.delivered == [3, 2, 1]

    def test_nothing_is_queried_again_while_no_writer_ends(self) -> None:
        """While the same transaction is open, an idle poll runs two short queries."""
        state = ReaderState(
            watermark=10,
            basis="1",
            zones=(Zone(upto=1_000_000, holders=frozenset({"3/1"}), read=1_000_000),),
            seen=IdRanges([(12, 1_000_000)]),
        )
        queries = watermark.poll(state, 100)
        assert next(queries) == watermark.HeadQuery()
        assert queries.send(1_000_000) == watermark.HoldersQuery()
        with pytest.raises(StopIteration) as end:
            queries.send(Holders(basis="1", present=frozenset({"3/1"})))
        assert end.value.value.state == state
        assert len(str(state.to_json())) < 120


class TestFromNow:
    """The position "from now on"."""

    def answers(self, *answers: object) -> ReaderState:
        queries = watermark.from_now()
        next(queries)
        for answer in answers:
            try:
                queries.send(answer)
            except StopIteration as end:
                state: ReaderState = end.value
                return state
        raise AssertionError("the dialogue asks for more")

    def test_with_no_writer_it_is_the_head(self) -> None:
        """Head 7, nobody writes: all up to 7 is left out."""
        no_holders = Holders(basis="1", present=frozenset())
        assert self.answers(7, no_holders, 7, no_holders) == ReaderState(watermark=7, basis="1")

    def test_what_is_open_at_that_moment_is_delivered_later(self) -> None:
        """3 is open, 1, 2 and 4 are there: later only 3 comes, and then 5."""
        writer = Holders(basis="1", present=frozenset({"3/1"}))
        waits = itertools.chain.from_iterable((None, writer) for _ in range(watermark.PATIENCE))
        visible = IdRanges([(1, 2), (4, 4)])
        state = self.answers(4, writer, *waits, 4, writer, visible)
        server = SimulatedPostgres(state=state)
        server._sequence = 4
        server._rows = {1: True, 2: True, 4: True}
        server.do("lock")
        server._writers[0].ids.append(3)
        for _ in range(20):
            server.do("answer")
        assert server.delivered == []
        server.do("show")
        server.do("unlock")
        server.do("lock")
        server.do("insert")
        server.finish()
        assert sorted(server.delivered) == [3, 5]


class TestStoredForm:
    """The position as JSON."""

    def test_something_else_is_refused(self) -> None:
        """A text that is no position is named in the error."""
        with pytest.raises(InvalidInput, match="a position of a Postgres log"):
            ReaderState.from_json({"settled": "x", "basis": "", "zones": [], "seen": []})

    def test_a_recreated_log_stops_the_reader(self) -> None:
        """The watermark is 50, but the last id of the sequence is 2."""
        server = SimulatedPostgres(state=ReaderState(watermark=50, basis="1"))
        with pytest.raises(
            LogWentBack, match="up to id 50 were read, but the last id of its sequence is 2"
        ):
            run_script(
                server, [("lock", 0), ("insert", 0), ("insert", 0), ("show", 0), ("unlock", 0)]
            )
