"""A plan goes through the queue as Dagster's daemon will."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arctic_orchestration.run_queue.limits import merged
from arctic_orchestration.run_queue.pauses import Pausable, Pause
from arctic_orchestration.run_queue.plan import plan
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration_tests.run_queue.queues import NOON, Run, daemon, gates, submitted

JOBS = ("load", "bill", "refund")
MATCHES = st.sampled_from([{"job": "load"}, {"job": "bill"}, {"job": "*"}, {"tags": {"team": "a"}}])
LIMITS = st.integers(0, 3)


def named(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["one", "two"]), values, max_size=2)


CONFIGS = st.fixed_dictionaries(
    {
        "groups": named(
            st.fixed_dictionaries(
                {"match": MATCHES, "limit": LIMITS}, optional={"limit_per_program": LIMITS}
            )
        ),
        # At noon, the first is open and the second is not.
        "windows": named(
            st.sampled_from([("08:00", "20:00"), ("20:00", "08:00")]).flatmap(
                lambda times: st.fixed_dictionaries(
                    {"match": MATCHES, "start": st.just(times[0]), "end": st.just(times[1])}
                )
            )
        ),
        "rates": named(
            st.fixed_dictionaries(
                {"match": MATCHES, "limit": st.integers(1, 3), "per": st.just("1m")}
            )
        ),
        "intervals": named(
            st.fixed_dictionaries({"match": MATCHES, "duration": st.sampled_from(["30s", "2m"])})
        ),
        "queues": named(
            st.fixed_dictionaries(
                {"match": MATCHES, "share": st.sampled_from([1, 3])},
                optional={"level": st.integers(-1, 1), "paused": st.booleans()},
            )
        ),
    }
)
#: Queues that compete, and little else: a queue for each job, and one group across them.
COMPETING = st.fixed_dictionaries(
    {
        "queues": st.fixed_dictionaries(
            {
                job: st.fixed_dictionaries(
                    {"match": st.just({"job": job}), "share": st.sampled_from([1, 2, 5])}
                )
                for job in JOBS
            }
        ),
        "groups": st.dictionaries(
            st.just("team_a"),
            st.fixed_dictionaries({"match": st.just({"tags": {"team": "a"}}), "limit": LIMITS}),
        ),
    }
)


def runs(most: int) -> st.SearchStrategy[list[tuple[str, str, int]]]:
    run = st.tuples(st.sampled_from(JOBS), st.sampled_from(["a", "b"]), st.integers(0, 100))
    return st.lists(run, min_size=most // 2, max_size=most)


@st.composite
def passes(draw: st.DrawFn) -> tuple[Any, ...]:
    """Rules, what is queued, in progress and ended, Dagster's own limits, and the slots."""
    competing = draw(st.booleans())
    rules = Rules.parse(draw(COMPETING if competing else CONFIGS))
    runs_ = [
        submitted(rules, f"r{n}", NOON - timedelta(seconds=age), job=job, tags={"team": team})
        for n, (job, team, age) in enumerate(draw(runs(20 if competing else 12)))
    ]
    for run in runs_:
        if any(key.startswith("arctic/rate.") for key in run.tags) and draw(st.booleans()):
            run.tags = {
                key: "granted" if key.startswith("arctic/rate.") else value
                for key, value in run.tags.items()
            }
    queued, active, ended = [], [], []
    for run in runs_:
        state = draw(st.sampled_from(["queued"] * 4 + ["active", "starting", "ended"]))
        if state == "queued":
            queued.append(run)
            continue
        run.started_at = None if state == "starting" else NOON - timedelta(seconds=40)
        if state == "ended":
            run.ended_at, run.dagster_status = NOON - timedelta(seconds=35), "SUCCESS"
            ended.append(run)
        else:
            run.dagster_status = "STARTED" if run.started_at else "STARTING"
            active.append(run)
    stock = draw(
        st.sampled_from(
            [
                [],
                [{"key": "team", "value": "a", "limit": 1}],
                [{"key": "team", "limit": 2}],
                [{"key": "team", "value": {"applyLimitPerUniqueValue": True}, "limit": 1}],
            ]
        )
    )
    slots = draw(st.integers(1, 8) if competing else st.sampled_from([-1, 0, 1, 3, 5]))
    return rules, queued, active, ended, stock, slots


@settings(max_examples=250)
@given(passes())
def test_the_daemon_starts_what_the_plan_says(given_: tuple[Any, ...]) -> None:
    rules, queued, active, ended, stock, slots = given_
    made = plan(gates(rules, queued, active, ended=ended, stock=stock), max_concurrent_runs=slots)
    assert daemon(made, queued, active, slots) == list(made.starts)


@settings(max_examples=250)
@given(passes())
def test_each_run_starts_or_knows_why_not(given_: tuple[Any, ...]) -> None:
    rules, queued, active, ended, stock, slots = given_
    made = plan(gates(rules, queued, active, ended=ended, stock=stock), max_concurrent_runs=slots)
    assert set(made.starts) | set(made.waits) == {run.run_id for run in queued}
    assert not set(made.starts) & set(made.waits)
    assert all(wait.gate and wait.reason for wait in made.waits.values())


@settings(max_examples=250)
@given(passes())
def test_no_limit_is_exceeded(given_: tuple[Any, ...]) -> None:
    """Counted again, from the configuration and the tags alone."""
    rules, queued, active, ended, stock, slots = given_
    made = plan(gates(rules, queued, active, ended=ended, stock=stock), max_concurrent_runs=slots)
    starting = [run for run in queued if run.run_id in made.starts]
    for name, group in rules.groups.items():
        members = [run for run in active if f"arctic/group.{name}" in run.tags]
        new = [run for run in starting if f"arctic/group.{name}" in run.tags]
        if group.limit is not None and new:
            assert len(members) + len(new) <= group.limit
        if group.limit_per_program is not None:
            for job in {run.job for run in new}:
                same = [run for run in (*members, *new) if run.job == job]
                assert len(same) <= group.limit_per_program
    for name, rate in rules.rates.items():
        new = [run for run in starting if f"arctic/rate.{name}" in run.tags]
        # All that were started were started forty seconds ago, or are being started.
        recent = [run for run in (*active, *ended) if f"arctic/rate.{name}" in run.tags]
        assert not new or len(recent) + len(new) <= rate.limit
    for name, interval in rules.intervals.items():
        for job in JOBS:
            key = f"arctic/interval.{name}"
            new = [run for run in starting if key in run.tags and run.job == job]
            busy = [run for run in active if key in run.tags and run.job == job]
            rested = interval.duration <= timedelta(seconds=35) or not [
                run for run in ended if key in run.tags and run.job == job
            ]
            assert len(new) <= (1 if rested and not busy else 0)
    for name in rules.windows:
        closed = rules.windows[name].start == "20:00"
        assert not closed or all(f"arctic/window.{name}" not in run.tags for run in starting)


@settings(max_examples=250)
@given(passes())
def test_no_slot_is_left_to_a_run_that_waits_for_its_turn(given_: tuple[Any, ...]) -> None:
    rules, queued, active, ended, stock, slots = given_
    made = plan(gates(rules, queued, active, ended=ended, stock=stock), max_concurrent_runs=slots)
    waiting = [wait for wait in made.waits.values() if wait.gate == "turn"]
    if waiting:
        assert len(active) + len(made.starts) >= slots


def low_and_high(**shares: float) -> Rules:
    return Rules.parse(
        {"queues": {name: {"share": share, "match": {"job": name}}
                    for name, share in shares.items()}}
    )  # fmt: skip


def test_a_queue_that_comes_late_has_the_next_free_slot() -> None:
    rules = low_and_high(low=1, high=1)
    active = [submitted(rules, f"a{n}", job="low") for n in range(9)]
    low = [submitted(rules, f"l{n}", job="low") for n in range(20)]
    high = submitted(rules, "h", NOON + timedelta(hours=1), job="high")
    made = plan(gates(rules, [*low, high], active), max_concurrent_runs=10)
    assert made.starts == ["h"]
    assert made.shares["low"] == 9
    assert made.waits["l0"].reason == (
        "its turn: 9 of 10 slots are in use, the others go to runs before it (queue low may use 9)"
    )


@pytest.mark.parametrize(
    ("in_use", "ended", "expected"), [(4, 2, []), (3, 2, ["h0"]), (3, 0, ["h0"])]
)
def test_slots_that_become_free_meanwhile_do_not_go_past_the_shares(
    in_use: int, ended: int, expected: list[str]
) -> None:
    """All were lent to low, whose share of four is one; high has come, and then runs end.

    Without the queue's own share as a bound, low's limit would be what it had in use before.
    """
    rules = low_and_high(low=1, high=3)
    active = [submitted(rules, f"a{n}", job="low") for n in range(in_use)]
    queued = [submitted(rules, f"l{n}", job="low") for n in range(5)]
    later = NOON + timedelta(seconds=9)
    queued += [submitted(rules, f"h{n}", later, job="high") for n in range(5)]
    made = plan(gates(rules, queued, active), max_concurrent_runs=4)
    assert daemon(made, queued, active[ended:], 4) == expected


def test_a_paused_queue_lends_its_share() -> None:
    rules = low_and_high(low=1, high=9)
    runs = [submitted(rules, f"{job}{n}", job=job) for job in ("low", "high") for n in range(4)]
    manual = [Pause(kind=Pausable.QUEUE, name="high", paused=True, reason="maintenance", at=NOON)]
    made = plan(gates(rules, runs, manual=manual), max_concurrent_runs=3)
    assert made.starts == ["low0", "low1", "low2"]
    assert made.waits["high0"].reason == (
        "queue high is paused since 2026-03-02 12:00:00Z (maintenance)"
    )


def test_runs_that_a_group_holds_do_not_claim_their_queues_share() -> None:
    config = {
        "groups": {"g": {"limit": 1, "match": {"job": "high"}}},
        "queues": {"high": {"share": 9, "match": {"job": "high"}}, "low": {"share": 1}},
    }
    rules = Rules.parse(config)
    runs = [submitted(rules, f"h{n}", job="high") for n in range(5)]
    runs += [submitted(rules, f"l{n}", job="x", tags={"arctic/queue": "low"}) for n in range(5)]
    made = plan(gates(rules, runs), max_concurrent_runs=4)
    assert sorted(made.starts) == ["h0", "l0", "l1", "l2"]


def test_runs_that_dagster_holds_do_not_claim_slots() -> None:
    rules = low_and_high(low=1, high=1)
    runs = [submitted(rules, f"{job}{n}", job=job) for job in ("low", "high") for n in range(3)]
    first = plan(gates(rules, runs), max_concurrent_runs=2)
    assert first.starts == ["low0", "high0"]
    again = plan(gates(rules, runs), max_concurrent_runs=2, passed_over={"low0", "high0"})
    assert again.starts == ["low1", "high1"]
    assert again.waits["low0"].gate == "dagster"
    # Dagster counts the held one against its queue before it finds that a pool is full.
    assert {"key": "arctic/queue", "value": "low", "limit": 2} in again.limits


def test_a_run_outside_the_queue_counts_though_it_has_no_tag_of_the_group() -> None:
    rules = Rules.parse({"groups": {"g": {"limit": 2, "match": {"job": "load"}}}})
    manual = Run(run_id="x", job="load", dagster_status="STARTED", started_at=NOON)
    queued = [submitted(rules, f"r{n}") for n in range(3)]
    made = plan(gates(rules, queued, [manual]), max_concurrent_runs=10)
    assert made.starts == ["r0"]
    assert daemon(made, queued, [manual], 10) == ["r0"]


def test_of_several_limits_for_the_same_tag_the_smallest_holds() -> None:
    each = {"applyLimitPerUniqueValue": True}
    limits = [
        {"key": "k", "limit": 3},
        {"key": "k", "value": "v", "limit": 2},
        {"key": "k", "value": each, "limit": 5},
        {"key": "k", "limit": 1},
        {"key": "k", "value": each, "limit": 7},
        {"key": "k", "value": "v", "limit": 4},
    ]
    assert merged(limits) == [
        {"key": "k", "limit": 1},
        {"key": "k", "value": "v", "limit": 2},
        {"key": "k", "value": each, "limit": 5},
    ]
