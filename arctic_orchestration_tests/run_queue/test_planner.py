"""A plan that is kept from pass to pass is the one that would be created again."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from arctic_orchestration.run_queue import plan as planning
from arctic_orchestration.run_queue.census import Census
from arctic_orchestration.run_queue.pauses import Pausable, Pause, in_force
from arctic_orchestration.run_queue.plan import Planner, plan
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration_tests.run_queue.queues import NOON, gates, submitted
from arctic_orchestration_tests.run_queue.test_plan import passes

PAUSED = Pause(kind=Pausable.QUEUE, name="one", paused=True, reason="", at=NOON)
#: seconds that go by, what is in progress moves on, one is paused manually, plans pass over runs
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 5, 30, 3600, 9 * 3600]), st.booleans(), st.booleans(), st.booleans()
    ),
    max_size=6,
)


@settings(max_examples=250)
@given(passes(), STEPS)
def test_it_is_the_plan_that_is_made_from_nothing(
    given_: tuple[Any, ...], steps: list[tuple[int, bool, bool, bool]]
) -> None:
    rules, queued, active, ended, stock, slots = given_
    now = NOON
    kept = gates(rules, queued, active, ended=ended, stock=stock)
    planner = Planner(slots)
    planner.plan(kept)
    active, ended = list(active), list(ended)
    for seconds, one_ends, pauses, passes_over in steps:
        now += timedelta(seconds=seconds)
        if one_ends and active:
            over = active.pop()
            over.started_at = over.started_at or now
            over.ended_at, over.dagster_status = now, "SUCCESS"
            ended.append(over)
        manual = [PAUSED] if pauses and "one" in rules.queues else []
        passed_over = [run.run_id for run in queued[::2]] if passes_over else []
        fresh = gates(rules, queued, active, ended=ended, manual=manual, stock=stock, now=now)
        before = kept.census
        census = Census(
            queued=before.queued,
            active=before.active if not one_ends else fresh.census.active,
            ledger=fresh.census.ledger,
        )
        kept.update(census, in_force(rules, manual), now)
        made = planner.plan(kept, passed_over)
        expected = plan(fresh, max_concurrent_runs=slots, passed_over=passed_over)
        assert by_place(made.limits) == by_place(expected.limits)
        assert (made.starts, made.turns, made.waits, made.shares) == (
            expected.starts,
            expected.turns,
            expected.waits,
            expected.shares,
        )


def by_place(limits: Any) -> list[str]:
    return sorted(map(repr, limits))


def test_a_queue_in_which_nothing_changes_is_gone_through_once(monkeypatch: Any) -> None:
    rules = Rules.parse({"groups": {"loads": {"match": {"job": "load"}, "limit": 1}}})
    kept = gates(rules, [submitted(rules, "first"), submitted(rules, "second")])
    gone_through = []
    whole = planning.plan

    def counted(*args: Any, **named: Any) -> Any:
        gone_through.append(1)
        return whole(*args, **named)

    monkeypatch.setattr(planning, "plan", counted)
    planner = Planner(10)
    for seconds in range(5):
        kept.update(kept.census, kept.paused, NOON + timedelta(seconds=seconds))
        assert planner.plan(kept).starts == ["first"]
    assert len(gone_through) == 1
