"""What people are shown of tasks."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from arctic_orchestration.errors import NotFound
from arctic_orchestration.freshness.views.explanation import TaskExplanation, explain
from arctic_orchestration.freshness.views.task_tree import roots_of, task_trees
from arctic_orchestration.freshness.views.tasks import task_views
from arctic_orchestration.freshness.views.wait_roots import Root, roots
from arctic_orchestration_tests.freshness.imagined import World, spec


def explained(world: World, task: str) -> TaskExplanation:
    with world.state.read() as tx:
        return explain(tx, task, world.clock.now, assets=world.places[0].assets)


def test_the_list_says_of_each_task_how_fresh_it_is(world: World) -> None:
    """In one word, and how long it stays so."""
    east = world.place(
        spec("running"), spec("waiting", ["elsewhere"]), spec("never"), spec("stale"),
        spec("good", freshness_hours=3), spec("off", skip="not now"),
    )  # fmt: skip
    world.place(spec("elsewhere"), cluster="west")
    world.made("good", hours=1)
    world.made("stale", hours=13)
    east.submit("running", "waiting")
    east.tick()
    with world.state.read() as tx:
        views = {view.name: view for view in task_views(tx, world.clock.now)}
    assert {name: view.state for name, view in views.items()} == {
        "elsewhere": "never", "good": "fresh", "never": "never", "off": "skipped",
        "running": "running", "stale": "stale", "waiting": "waiting",
    }  # fmt: skip
    assert views["good"].fresh_until == world.clock.now + timedelta(hours=2)
    assert views["elsewhere"].places == ("west/lake",)
    with world.state.read() as tx, pytest.raises(NotFound, match=r"names\[0\].*'god'.*good"):
        task_views(tx, world.clock.now, names=["god"])


def test_an_explanation_names_all_parents_and_how_fresh_each_is(world: World) -> None:
    """A fresh one, a stale one, one that is no task, and one that does not exist."""
    east = world.place(
        spec("a"), spec("b"),
        spec("child", {"a": 24, "b": 1, "raw/c": None, "raw/d": 5}, freshness_hours=2),
    )  # fmt: skip
    world.made("a", hours=3)
    world.made("b", hours=2)
    world.made("child", hours=4)
    east.assets.made["raw/c"] = world.clock.now - timedelta(minutes=5)
    lines = explained(world, "child").lines()
    assert lines == [
        "child is to be at most 2 hours old, and was made 4h ago by run before of cluster east: "
        "not fresh.",
        "Parent a is to be at most 24 hours old: made 3h ago, fresh until 2026-01-02 09:00:00Z "
        "(east/lake).",
        "Parent b is to be at most 1 hour old: made 2h ago, not fresh (east/lake).",
        "Parent raw/c is to be made since the start of today (UTC): made 5m ago, fresh until "
        "2026-01-02 00:00:00Z (no task).",
        "Parent raw/d is to be at most 5 hours old: never made, nor known here to exist, not fresh "
        "(no task).",
        "Submitted in east/lake, it would wait (waits for b (made 2h ago, to be at most 1 hour "
        "old), which is submitted for it; raw/d, which does not exist yet: no location of any "
        "cluster declares it, and it is no asset of this Dagster instance; until "
        "2026-01-01 12:30:00Z).",
    ]


def test_an_explanation_says_what_a_submission_waits_for_and_who_has_the_task(
    world: World,
) -> None:
    """With the moment at which it is looked at again."""
    east = world.place(spec("a"), spec("child", {"a": 24}))
    (submission,) = east.submit("child")
    east.tick()
    east.tick()
    waits = explained(world, "child").lines()
    assert waits[2] == (
        f"Submission {submission.id} is waiting: waits for a (never made, to be at most 24 hours "
        "old), which is submitted for it. The next check is at 2026-01-01 12:00:10Z."
    )
    assert "run east-lake-1 of cluster east, location lake makes it" in waits[1]
    parent = explained(world, "a")
    assert parent.lines()[1] == (
        "It is being made by run east-lake-1 of cluster east, location lake, under token 1."
    )
    assert [event.step.value for event in parent.events] == ["submitted", "acquired", "requested"]
    assert parent.latest[0].wanted_by == submission.id


def test_the_root_of_a_wait_is_named_in_one_line(world: World) -> None:
    """Four generations: what the last one waits for is what the first one does just then."""
    names = ["flights", "delays", "routes", "report"]
    east = world.place(
        spec("flights", batch="night", concurrency=1),
        *(spec(name, [parent], batch="night", concurrency=1) for parent, name in pairwise(names)),
        spec("before", batch="night", concurrency=1),
    )
    east.submit("before")
    east.tick()
    (submission,) = east.submit("report")

    def root() -> Root | None:
        with world.state.read() as tx:
            (view,) = task_views(tx, world.clock.now, names=["report"])
        return view.roots.get(submission.id)

    assert root() is None
    east.tick()
    found = root()
    assert found is not None
    assert found.text == (
        "waits for flights, which is waiting: 1 tasks of batch night run, and 1 may "
        "(through routes, delays)"
    )
    assert east.make_all() == ["before"]
    east.tick()
    east.tick()
    found = root()
    assert found is not None
    assert found.text == (
        "waits for flights, which run east-lake-2 of cluster east, location lake makes (through "
        "routes, delays)"
    )
    assert f"Now it {found.text}." in explained(world, "report").lines()
    assert east.make_all() == ["flights"]
    east.tick()
    found = root()
    assert found is not None
    assert (found.submission.task, found.through) == ("delays", ("routes",))
    assert world.run_all() == ["delays", "routes", "report"]
    assert root() is None


def test_the_way_to_a_far_root_is_shown_in_part(world: World) -> None:
    """The nearest three, and how many more there are; only the last of them was asked about."""
    names = [f"t{number:02}" for number in range(40)]
    children = [spec(name, [parent]) for parent, name in pairwise(names)]
    east = world.place(*children)
    world.place(spec("t00"), location="hills")
    (submission,) = east.submit("t39")
    for _ in range(3):
        east.tick()
    with world.state.read() as tx:
        found = roots(tx, [world.again(submission)])[submission.id]
    assert found.text == (
        "waits for t01, which is waiting: waits for t00 (never made, to be made since the start of "
        "today (UTC)); until 2026-01-01 12:30:00Z (through t38, t37, t36 and 34 more)"
    )


def test_the_root_of_a_wait_names_what_no_submission_runs_too(world: World) -> None:
    """A task of another location, on which the one in the middle waits besides."""
    east = world.place(
        spec("flights"), spec("delays", ["flights", "weather"]), spec("report", ["delays"])
    )
    world.place(spec("weather"), location="hills")
    (submission,) = east.submit("report")
    for _ in range(3):
        east.tick()
    with world.state.read() as tx:
        found = roots(tx, [world.again(submission)])[submission.id]
    assert found.text == (
        "waits for flights, which run east-lake-1 of cluster east, location lake makes (through "
        "delays), and for weather, which no submission runs"
    )


def test_a_tree_has_each_task_once_with_what_is_below_it(world: World) -> None:
    """A diamond whose bottom is needed on both sides, and a parent that is no task."""
    world.place(
        spec("top", ["left", "right"]), spec("left", ["bottom"]), spec("right", ["bottom"]),
        spec("bottom", ["raw/a"]),
    )  # fmt: skip
    with world.state.read() as tx:
        views = {view.name: view for view in task_views(tx, world.clock.now)}
    assert roots_of(views) == ["top"]
    (top,) = task_trees(views, ["top"])
    left, right = top.parents
    assert (left.name, right.name) == ("left", "right")
    (first,), (second,) = left.parents, right.parents
    assert [parent.name for parent in first.parents] == ["raw/a"]
    assert first.parents[0].task is None
    assert (second.name, second.parents, second.left_out) == ("bottom", [], 1)


def test_a_deep_tree_ends_and_a_circle_has_a_root(world: World) -> None:
    """At the eighth level stands how many parents follow."""
    world.place(*(spec(f"t{number}", [f"t{number + 1}"]) for number in range(20)))
    with world.state.read() as tx:
        views = {view.name: view for view in task_views(tx, world.clock.now)}
    (node,) = task_trees(views, roots_of(views))
    levels = 1
    while node.parents:
        (node,) = node.parents
        levels += 1
    assert (levels, node.name, node.left_out) == (8, "t7", 1)
    some = {name: views[name] for name in ("t0", "t1")}
    circle = {"t0": some["t0"], "t1": replace(some["t1"], parents=some["t0"].parents)}
    assert roots_of(circle) == ["t0"]
    both = {name: replace(some["t0"], name=name) for name in ("t1",)}
    assert roots_of(both) == ["t1"]
