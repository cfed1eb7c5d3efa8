"""The order inside a queue, and how long anything waits in it at most.

``ARCTIC_PROOF=full`` floods the queue with 10,000 tasks, by default with 300.
"""

import os
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.queue import claim_order, queues
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.ranking import (
    SECONDS_PER_LEVEL,
    benefit_of,
    decoded_bytes,
    overtaken_until,
    rank_of,
    waits_at_most,
)
from arctic_orchestration.compaction.queue.task import PlannedTask
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.compaction_tables import compaction_tasks, is_planned
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MERGE, MIB, NOON, planned, seen
from arctic_orchestration_tests.standing_clock import Clock

FULL = os.environ.get("ARCTIC_PROOF") == "full"
FLOOD = 10_000 if FULL else 300

HOUR = timedelta(hours=1)
_levels = st.integers(-1000, 1000)
_smalls = st.integers(0, 10**6)
_bytes = st.integers(0, 2**50)
_ages = st.integers(0, 10**8).map(lambda seconds: NOON + timedelta(seconds=seconds))


def test_the_benefit_is_small_files_per_mebibyte_brought_below_one() -> None:
    """Sixteen files of 64 KiB: 16/17; two of 16 MiB: 1/17; none: 0."""
    assert benefit_of(16, MIB) == pytest.approx(16 / 17, abs=1e-6)
    assert benefit_of(2, 32 * MIB) == pytest.approx(1 / 17, abs=1e-6)
    assert benefit_of(0, MIB) == 0
    assert benefit_of(1, 0) < 1


def test_cpu_time_counts_not_bytes() -> None:
    """Copied row groups cost an eighth; deletes, small files and a file alone are decoded."""
    assert decoded_bytes(2, False, 32 * MIB) == 4 * MIB
    assert decoded_bytes(2, True, 32 * MIB) == 32 * MIB
    assert decoded_bytes(1, False, 32 * MIB) == 32 * MIB
    assert decoded_bytes(33, False, 32_999_999) == 32_999_999
    assert decoded_bytes(33, False, 33_000_000) == 4_125_000
    # Two files of 16 MiB, without deletes and with one.
    assert benefit_of(2, 4 * MIB) == pytest.approx(1 / 3, abs=1e-6)
    assert benefit_of(2, 32 * MIB) == pytest.approx(1 / 17, abs=1e-6)


def test_a_rank_is_the_age_less_level_and_benefit() -> None:
    """Noon of 2026-01-01 is second 1,767,268,800; a level is worth an hour, 1/17 a 17th of it."""
    noon = 1_767_268_800_000_000
    assert rank_of(NOON, 0, 0, MIB) == noon
    assert rank_of(NOON, 2, 0, MIB) == noon - 7_200_000_000
    assert rank_of(NOON, -1, 0, MIB) == noon + 3_600_000_000
    assert rank_of(NOON, 0, 2, 32 * MIB) == noon - 105_882_352
    # The ninth task of a table: half of half an hour.
    assert rank_of(NOON, 0, 0, MIB, place=8) == noon + 900_000_000
    assert rank_of(NOON + HOUR, 1, 0, MIB) == noon
    assert rank_of(NOON, 1, 0, MIB, seconds_per_level=60) == noon - 60_000_000


@given(level=_levels, one=st.tuples(_smalls, _bytes), other=st.tuples(_smalls, _bytes), age=_ages)
def test_a_level_counts_before_any_benefit(
    level: int, one: tuple[int, int], other: tuple[int, int], age: object
) -> None:
    """Of the same age, the higher level is first, however little it gains."""
    assert rank_of(age, level + 1, *one) < rank_of(age, level, *other)  # type: ignore[arg-type]


@given(small=st.integers(1, 10**5), size=st.integers(1, 2**40), more=st.integers(1, 10**5))
def test_more_small_files_for_fewer_bytes_never_come_later(
    small: int, size: int, more: int
) -> None:
    """At equal level and age."""
    assert rank_of(NOON, 0, small + more, size) <= rank_of(NOON, 0, small, size)
    assert rank_of(NOON, 0, small, size) <= rank_of(NOON, 0, small, size + more)


@given(
    level=_levels, small=_smalls, size=_bytes, since=_ages,
    other=st.tuples(_smalls, _bytes), below=st.integers(0, 2000),
    later=st.timedeltas(timedelta(0), timedelta(days=1)), place=st.integers(0, 10**6),
)  # fmt: skip
def test_nothing_overtakes_after_the_promised_moment(
    level: int,
    small: int,
    size: int,
    since: object,
    other: tuple[int, int],
    below: int,
    later: timedelta,
    place: int,
) -> None:
    """A task of any level up to the highest that begins to wait then, or later, is behind."""
    highest = level + below // 2
    until = overtaken_until(since, level, highest)  # type: ignore[arg-type]
    mine = rank_of(since, level, small, size, place=place)  # type: ignore[arg-type]
    assert rank_of(until + later, highest - below, *other) > mine
    assert rank_of(until + later, highest, *other) > mine


def test_the_bound_of_a_computed_example() -> None:
    """Level 1 of at most 3: 3 hours. 99 others on 10 slots, twice 5 min: 20 rounds of 5 min."""
    assert waits_at_most(
        1, highest_level=3, capacity=100, slots=10, longest=timedelta(minutes=5), attempts=2
    ) == timedelta(hours=3) + 20 * timedelta(minutes=5)
    assert waits_at_most(
        5, highest_level=3, capacity=1, slots=1, longest=timedelta(minutes=5), seconds_per_level=60
    ) == timedelta(minutes=6)


_arrivals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(0, 40), st.integers(1, 10),
              st.integers(0, 2)),
    min_size=1, max_size=40,
)  # fmt: skip


@given(arrivals=_arrivals, slots=st.integers(1, 3), capacity=st.integers(1, 12))
def test_no_task_waits_longer_than_the_bound(
    arrivals: list[tuple[int, int, int, int, int]], slots: int, capacity: int
) -> None:
    """In a small model of a queue: gaps, levels, small files, seconds, failures; S is 5 seconds."""
    seconds_per_level, longest, tries = 5, 10, 3
    waiting: list[dict[str, int]] = []
    busy: list[tuple[int, dict[str, int]]] = []
    coming, moment = [], 0
    for number, (gap, level, small, seconds, failures) in enumerate(arrivals):
        moment += gap
        rank = rank_of(NOON + timedelta(seconds=moment), level, small, MIB, seconds_per_level)
        coming.append({"n": number, "at": moment, "level": level, "rank": rank,
                       "seconds": seconds, "left": failures, "claims": 0})  # fmt: skip
    now = 0
    while coming or waiting or busy:
        ended = [task for end, task in busy if end == now]
        busy = [(end, task) for end, task in busy if end != now]
        waiting += [task for task in ended if task["left"] >= task["claims"]]
        while coming and coming[0]["at"] == now:
            task = coming.pop(0)
            if len(waiting) + len(busy) < capacity:
                waiting.append(task)
        waiting.sort(key=lambda task: (task["rank"], task["n"]))
        while waiting and len(busy) < slots:
            task = waiting.pop(0)
            task["claims"] += 1
            assert task["claims"] <= tries
            busy.append((now + task["seconds"], task))
            bound = waits_at_most(
                task["level"], highest_level=3, capacity=capacity, slots=slots,
                longest=timedelta(seconds=longest), attempts=tries,
                seconds_per_level=seconds_per_level,
            )  # fmt: skip
            if task["claims"] == 1:
                assert timedelta(seconds=now - task["at"]) <= bound
        now += 1


def test_tasks_are_claimed_by_level_then_benefit_then_age(database: Database) -> None:
    """Until an older one has waited long enough: an hour for a level."""
    clock = Clock()
    with database.begin() as tx:
        seen(tx, "lake.low")
        seen(tx, "lake.high", level=1)
        early = NOON - HOUR - timedelta(minutes=58)
        offer(tx, "lake.low", [planned("old", small_files=0)], early)
        plan = [planned("much", size=32 * MIB, small_files=2), planned("x", small_files=16)]
        offer(tx, "lake.high", plan, NOON)
        seen(tx, "lake.new")
        offer(tx, "lake.new", [planned("new", small_files=99)], NOON)
        # Ranks in minutes before noon: old 118, x 60 + 56.5, much 60 + 3.5, new 59.4.
        claimed = []
        while claim := attempts.claim(tx, [], "w", time=clock):
            claimed.append(claim.group.files[0].path)
    assert claimed == ["old", "x", "much", "new"]


@pytest.mark.proof
def test_a_flood_of_one_table_does_not_starve_a_trickle_of_others(
    database: Database, backend: str
) -> None:
    """The flood is of a higher level and gains more, and goes on while the trickle waits.

    Four slots, a minute a task, a minute a level. Every claim is of the smallest rank, and each
    task of the trickle waits no longer than the bound says.
    """
    slots, longest, level, per_level = 4, timedelta(minutes=1), 5, 60
    capacity = FLOOD + 20
    clock, number, trickle, waited = Clock(), 0, 0, list[timedelta]()
    bound = waits_at_most(
        0, highest_level=level, capacity=capacity, slots=slots, longest=longest,
        seconds_per_level=per_level,
    )  # fmt: skip
    waiting: dict[str, datetime] = {}
    with database.begin() as tx:
        queues.update_queue(tx, "default", capacity=capacity)
        seen(tx, "lake.flood", level=level)
    # Long enough for all that was there at the beginning, and as much again in new floods.
    rounds, flood = FLOOD // slots + 30, list[PlannedTask]()
    refill = max(rounds // 6, 1)
    for turn in range(rounds):
        with database.begin() as tx:
            if turn % refill == 0:
                fresh = FLOOD - len(flood)
                flood += [planned(f"f{number + n}", small_files=1000) for n in range(fresh)]
                number += fresh
                assert not offer(
                    tx, "lake.flood", flood, clock.now, seconds_per_level=per_level
                ).blocked
            if turn % max(rounds // 16, 1) == 0 and trickle < 10:
                name = f"lake.small{trickle}"
                seen(tx, name)
                offered = offer(tx, name, [planned(name)], clock.now, seconds_per_level=per_level)
                waiting[offered.taken[0]] = clock.now
                trickle += 1
            for _ in range(slots):
                first = tx.execute(
                    sa.select(sa.func.min(compaction_tasks.c.rank)).where(is_planned)
                )
                least = first.scalar_one()
                claim = attempts.claim(tx, ["default"], "w", time=clock)
                assert claim is not None
                assert claim.task.rank == least
                attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
                commits.committed(tx, [claim.task.id], number, time=clock)
                number += 1
                if claim.task.table == "lake.flood":
                    flood = flood[1:] if flood[0].paths == _paths(claim) else _without(flood, claim)
                elif claim.task.id in waiting:
                    waited.append(clock.now - waiting.pop(claim.task.id))
        clock.now += longest
    print(f"{backend}: {len(waited)} of the trickle waited {max(waited)} at most, bound {bound}")
    assert len(waited) >= 1
    assert all(wait <= bound for wait in waited)
    # Who still waits has not waited longer either.
    assert all(clock.now - since <= bound for since in waiting.values())


def test_a_claim_reads_the_index_among_many(database: Database, backend: str) -> None:
    """As many tasks wait as there are in the flood; the database says how it finds the first."""
    with database.begin() as tx:
        queues.update_queue(tx, "default", capacity=FLOOD)
        seen(tx, "lake.flood")
        offer(tx, "lake.flood", [planned(f"f{n}", f"g{n}") for n in range(FLOOD)], NOON)
    for analyzed in (False, True):
        with database.begin() as tx:
            if analyzed:
                tx.execute(sa.text("analyze"))
            statement = claim_order.FIRST.params(of_queue="default").compile(
                tx, compile_kwargs={"literal_binds": True}
            )
            how = "explain query plan" if backend == "sqlite" else "explain"
            lines = [str(row) for row in tx.execute(sa.text(f"{how} {statement}"))]
        text = "\n".join(lines)
        assert "ix_arctic_compaction_tasks_claimable" in text, text
        assert "SCAN" not in text.upper().replace("INDEX SCAN", ""), text
        assert "Sort" not in text, text
        assert "TEMP B-TREE" not in text, text
    for _ in range(100):
        with database.begin() as tx:
            steps = _counted_steps(tx) if backend == "sqlite" else [0]
            assert attempts.claim(tx, ["default"], "w") is not None
        # Without the index it takes thirteen for each task.
        assert steps[0] < 10 * FLOOD


def _counted_steps(tx: sa.Connection) -> list[int]:
    """Counts the instructions of SQLite's virtual machine from now on, in hundreds."""
    steps = [0]

    def note() -> int:
        steps[0] += 100
        return 0

    connection: Any = tx.connection.driver_connection
    connection.set_progress_handler(note, 100)
    return steps


def _paths(claim: attempts.Claim) -> tuple[str, ...]:
    return tuple(file.path for file in claim.group.files)


def _without(flood: list[PlannedTask], claim: attempts.Claim) -> list[PlannedTask]:
    return [task for task in flood if task.paths != _paths(claim)]


def test_an_hour_is_a_level() -> None:
    """What the documents say."""
    assert timedelta(seconds=SECONDS_PER_LEVEL) == HOUR
