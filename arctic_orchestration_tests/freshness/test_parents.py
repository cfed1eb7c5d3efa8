"""Parents of every kind: what they make of the child that waits for them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import definitions, submission_facts
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.skip_list import skip
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration_tests.freshness.imagined import World, spec
from arctic_orchestration_tests.patience import until


def test_the_tip_of_a_diamond_is_made_once_and_first(world: World) -> None:
    """Both sides want it; one of them submits it, and the other waits for the same."""
    east = world.place(
        spec("tip"), spec("left", ["tip"]), spec("right", ["tip"]), spec("end", ["left", "right"])
    )
    (submission,) = east.submit("end")
    made = world.run_all()
    assert made[0] == "tip"
    assert sorted(made[1:3]) == ["left", "right"]
    assert made[3:] == ["end"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_chain_of_200_tasks_is_made_from_its_root(world: World) -> None:
    """One submission brings all of them to life, and each waits for the one above."""
    names = [f"t{number:03}" for number in range(200)]
    pairs = zip(names, [None, *names[:-1]], strict=True)
    east = world.place(*(spec(name, [above] if above else []) for name, above in pairs))
    (submission,) = east.submit(names[-1])
    # A tick leaves what takes too long to the next.
    until(lambda: bool(east.tick().requests), "the first run is asked for", 600)
    assert [run.request.task for run in east.waiting_runs()] == [names[0]]
    assert world.run_all() == names
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert len(east.runs.known) == 200


def test_a_parent_that_does_not_exist_is_waited_for_with_patience(world: World) -> None:
    """Nobody declares it, and it is no asset of the instance: the child fails after 30 minutes."""
    east = world.place(spec("delays", ["fligths"]))
    (submission,) = east.submit("delays")
    for _ in range(15):
        assert east.tick().requests == []
        assert world.state_of(submission) is SubmissionState.WAITING
        world.clock.passes(minutes=2)
    east.tick()
    ended = world.again(submission)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == (
        "after 30m still not fresh: fligths, which does not exist yet: no location of any cluster "
        "declares it, and it is no asset of this Dagster instance"
    )
    assert world.steps(submission)[-1] is Step.STALE_PARENTS


def test_a_parent_whose_cluster_registers_later_is_waited_for(world: World) -> None:
    """As after a first deployment, in which the clusters start one after another."""
    east = world.place(spec("delays", ["flights"]))
    (submission,) = east.submit("delays")
    east.tick()
    world.clock.passes(minutes=2)
    west = world.place(spec("flights"), cluster="west")
    west.submit("flights")
    assert world.run_all() == ["flights", "delays"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_parent_that_is_no_task_counts_by_its_materialization(world: World) -> None:
    """It is waited for, as whoever makes it is not ours to ask."""
    east = world.place(spec("delays", {"raw/flights": 3}))
    east.assets.made["raw/flights"] = world.clock.now - timedelta(hours=4)
    (submission,) = east.submit("delays")
    assert east.tick().requests == []
    assert world.state_of(submission) is SubmissionState.WAITING
    east.assets.made["raw/flights"] = world.clock.now
    world.clock.passes(minutes=2)
    assert world.run_all() == ["delays"]


def test_a_parent_that_fails_fails_the_child_and_says_why(world: World) -> None:
    """The grandchild too, each naming its own parent."""
    east = world.place(spec("flights"), spec("delays", ["flights"]), spec("report", ["delays"]))
    (submission,) = east.submit("report")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    assert world.run_all() == []
    ended = world.again(submission)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == (
        "delays (never made, to be made since the start of today (UTC)) failed: flights (never "
        "made, to be made since the start of today (UTC)) failed: run east-lake-1 failed"
    )


def test_a_failed_parent_is_tried_again_by_the_next_submission(world: World) -> None:
    """What failed before the child was submitted says nothing."""
    east = world.place(spec("flights"), spec("delays", ["flights"]))
    east.submit("delays")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    world.run_all()
    (again,) = east.submit("delays")
    assert world.run_all() == ["flights", "delays"]
    assert world.state_of(again) is SubmissionState.SUCCEEDED


def test_a_run_that_fails_is_repeated_under_a_new_token(world: World) -> None:
    """As often as the task says, and the task stays its own meanwhile."""
    east = world.place(spec("flights", retries=2), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    (submission,), (other,) = east.submit("flights"), west.submit("flights")
    for attempt in (1, 2, 3):
        east.tick()
        west.tick()
        (run,) = east.waiting_runs()
        assert run.request.run_key == f"{submission.id}-{attempt}"
        assert world.row("flights").token == attempt
        assert world.state_of(other) is SubmissionState.SHARING
        east.runs.becomes(run.run_id, RunStatus.FAILURE)
    east.tick()
    assert world.state_of(submission) is SubmissionState.FAILED
    west.tick()
    shared = world.again(other)
    # What is shared is the outcome, also this one.
    assert world.steps(other)[-1] is Step.SHARED_FAILURE
    assert shared.state is SubmissionState.FAILED
    assert shared.reason == (
        "shared run east-lake-3 of cluster east, location lake, which failed: run east-lake-3 "
        "failed"
    )
    assert west.runs.known == {}


def test_a_skipped_parent_counts_by_its_own_last_success_alone(world: World) -> None:
    """Fresh enough for one child, too old for the other; it is not run for either."""
    east = world.place(
        spec("flights"), spec("weekly", {"flights": 168}), spec("daily", {"flights": 24})
    )
    world.made("flights", hours=30)
    with world.state.begin() as tx:
        skip(tx, "flights", "the feed is broken", by="ben", cluster="east", time=world.clock)
    (weekly,), (daily,) = east.submit("weekly"), east.submit("daily")
    assert world.run_all() == ["weekly"]
    assert world.state_of(weekly) is SubmissionState.SUCCEEDED
    ended = world.again(daily)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == (
        "flights (made 1d6h ago, to be at most 24 hours old) is skipped: the feed is broken "
        "(by ben)"
    )


def test_a_fresh_parent_on_the_skip_list_that_is_submitted_too_fails_no_child(world: World) -> None:
    """It is too old by its own word, and not to be made; for the child it is fresh enough."""
    east = world.place(spec("weekly", {"flights": 168}), spec("flights"))
    world.made("flights", hours=30)
    with world.state.begin() as tx:
        skip(tx, "flights", "the feed is broken", by="ben", cluster="east", time=world.clock)
    child, parent = east.submit("weekly", "flights")
    assert world.run_all() == ["weekly"]
    assert world.state_of(child) is SubmissionState.SUCCEEDED
    assert world.state_of(parent) is SubmissionState.SKIPPED


def test_a_parent_that_is_submitted_too_and_has_nothing_to_do_is_not_waited_for(
    world: World,
) -> None:
    """Nobody has looked at it yet; the control is one that is too old, and is made first."""
    east = world.place(spec("delays", {"flights": 168, "weather": 168}), cluster="east")
    world.place(spec("flights"), spec("weather"), cluster="west")
    world.made("flights", hours=1)
    world.made("weather", hours=30)
    child, *_ = east.submit("delays", "flights", "weather")
    east.tick()
    waiting = world.again(child)
    assert waiting.state is SubmissionState.WAITING
    assert waiting.reason == (
        "waits for weather (made 1d6h ago, to be at most 168 hours old), which was submitted "
        "together with it, and is submitted"
    )
    assert world.run_all() == ["weather", "delays"]


def test_a_parent_that_is_skipped_while_it_runs_goes_on_and_its_child_waits(world: World) -> None:
    """Once it has ended, its child fails or runs by what came of it."""
    east = world.place(spec("delays", ["flights"]), spec("flights"))
    (submission,) = east.submit("delays")
    east.tick()
    with world.state.begin() as tx:
        skip(tx, "flights", "the feed is broken", by="ben", cluster="east", time=world.clock)
    world.clock.passes(seconds=11)
    east.tick()
    assert world.state_of(submission) is SubmissionState.WAITING
    assert world.run_all() == ["flights", "delays"]


def test_a_parent_whose_manual_run_failed_is_made_for_its_child(world: World) -> None:
    """Whoever waits did not ask for that run."""
    east = world.place(spec("delays", ["flights"]), spec("flights"))
    manual_run = world.started_manually("flights")
    with pytest.raises(ZeroDivisionError), manual_run:
        (submission,) = east.submit("delays")
        east.tick()
        assert "flights" in world.again(submission).reason
        world.clock.passes(seconds=11)
        east.tick()
        raise ZeroDivisionError
    assert world.run_all() == ["flights", "delays"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_parent_that_its_definition_skips_is_skipped(world: World) -> None:
    """As if it was on the list, in the own location or in all others."""
    east = world.place(spec("flights", skip="until the feed is back"), spec("delays", ["flights"]))
    world.place(spec("fleet", skip="no feed"), cluster="north")
    world.place(spec("fleet", skip="none here"), cluster="west")
    south = world.place(spec("late", ["fleet"]), cluster="south")
    (late,) = south.submit("late")
    (submission,) = east.submit("flights")
    (child,) = east.submit("delays")
    assert world.run_all() == []
    assert world.again(submission).reason == "skipped: until the feed is back"
    assert world.state_of(child) is SubmissionState.FAILED
    assert world.again(late).reason == (
        "fleet (never made, to be made since the start of today (UTC)) is skipped: no feed"
    )


def test_a_parent_that_one_of_two_locations_skips_is_waited_for(world: World) -> None:
    """The other one may make it."""
    east = world.place(spec("late", ["fleet"]), cluster="east")
    world.place(spec("fleet", skip="no feed"), cluster="north")
    west = world.place(spec("fleet"), cluster="west")
    (late,) = east.submit("late")
    assert world.run_all() == []
    assert world.state_of(late) is SubmissionState.WAITING
    west.submit("fleet")
    assert world.run_all() == ["fleet", "late"]


@pytest.mark.parametrize("location", ["lake", "other"])
def test_a_check_costs_in_proportion_to_the_parents(
    world: World, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant number of statements, and each declaration is looked at a few times."""
    costs = [_cost_of_a_check(world, location, parents, monkeypatch) for parents in (10, 40)]
    assert costs[0][0] == costs[1][0]
    assert costs[1][1] == 4 * costs[0][1]


def _cost_of_a_check(
    world: World, location: str, parents: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """How many statements a check of a task takes, and how often it looks at a declaration."""
    names = [f"of{parents}-{number}" for number in range(parents)]
    child = spec(f"child{parents}", names)
    made = [spec(name) for name in names]
    east = world.place(child, *(made if location == "lake" else []))
    if location != "lake":
        world.place(*made, location=location)
    submission, *_ = east.submit(child.name, with_parents=True)
    statements, looks = 0, 0

    def count_statement(*_: Any) -> None:
        nonlocal statements
        statements += 1

    class Counted(Definition):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += 1
            return super().__getattribute__(name)

    def counted(tx: sa.Connection, names: Sequence[str]) -> list[Counted]:
        return [
            Counted(cluster=one.cluster, location=one.location, spec=one.spec)
            for one in definitions.definitions(tx, names)
        ]  # fmt: skip

    with world.state.read() as tx, monkeypatch.context() as watched:
        sa.event.listen(tx, "before_cursor_execute", count_statement)
        watched.setattr(
            submission_facts, "definitions", _Replaced(definitions, definitions=counted)
        )
        facts = submission_facts.facts_of(
            tx, submission, east.assets, world.clock.now, only_look=True
        )
    assert len(facts.parents) == parents
    assert all(one.ours is not None for one in facts.parents)
    return statements, looks


class _Replaced:
    """A module with other members."""

    def __init__(self, module: Any, **members: Any) -> None:
        self._module = module
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
