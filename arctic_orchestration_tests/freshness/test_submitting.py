"""Submissions: what may be requested, and what is refused with nothing written."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.skip_list import skip, skips, unskip
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.freshness_tables import task_events, task_submissions
from arctic_orchestration_tests.freshness.imagined import World, spec


def test_what_is_exactly_as_old_as_it_may_be_is_fresh(world: World) -> None:
    """To the microsecond, for the task itself and for a parent."""
    east = world.place(spec("flights", freshness_hours=24), spec("delays", {"flights": 24}))
    world.made("flights", hours=24)
    (submission,) = east.submit("flights")
    (child,) = east.submit("delays")
    assert world.run_all() == ["delays"]
    assert world.state_of(submission) is SubmissionState.FRESH
    assert world.state_of(child) is SubmissionState.SUCCEEDED

    world.made("delays", hours=48)
    world.made("flights", hours=24, microseconds=1)
    (submission,) = east.submit("flights")
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_today_starts_at_midnight_in_the_tasks_zone(world: World) -> None:
    """In New York the first of January begins at five in UTC."""
    east = world.place(spec("flights", timezone="America/New_York"))
    world.clock.now = world.clock.now.replace(hour=4, minute=59)
    world.made("flights", hours=20)
    (submission,) = east.submit("flights")
    east.tick()
    assert world.state_of(submission) is SubmissionState.FRESH
    world.clock.passes(minutes=1)
    (submission,) = east.submit("flights")
    assert world.run_all() == ["flights"]


def test_force_makes_what_is_fresh_and_does_not_share_what_was_begun_before(world: World) -> None:
    """Ten forced ones at once are one run; one that comes while that runs is another."""
    east = world.place(spec("flights"))
    world.made("flights", minutes=1)
    submitted = [one for _ in range(10) for one in east.submit("flights", force=True)]
    east.tick()
    east.tick()
    world.clock.passes(seconds=30)
    (late,) = east.submit("flights", force=True)
    east.tick()
    east.make(east.waiting_runs()[0])
    world.clock.passes(seconds=30)
    assert world.run_all() == ["flights"]
    states = [world.state_of(one) for one in submitted]
    assert sorted(states) == ["fresh"] * 9 + ["succeeded"]
    assert world.state_of(late) is SubmissionState.SUCCEEDED
    assert len(east.runs.known) == 2


def test_a_forced_submission_does_not_fail_with_a_run_that_was_begun_before(world: World) -> None:
    """Its success would not have counted; but one that is begun afterwards is shared to its end."""
    east = world.place(spec("flights"))
    east.submit("flights")
    east.tick()
    world.clock.passes(seconds=5)
    first, second = (east.submit("flights", force=True)[0] for _ in range(2))
    east.tick()
    assert world.state_of(first) is SubmissionState.SHARING
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    east.tick()
    east.tick()
    states = {world.state_of(one) for one in (first, second)}
    assert states == {SubmissionState.ACQUIRED, SubmissionState.SHARING}
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    assert world.run_all() == []
    assert {world.state_of(one) for one in (first, second)} == {SubmissionState.FAILED}
    assert len(east.runs.known) == 2


def test_the_freshness_of_a_submission_is_its_own(world: World) -> None:
    """Instead of what the task says, stricter or not."""
    east = world.place(spec("flights", freshness_hours=1))
    world.made("flights", hours=2)
    (lenient,) = east.submit("flights", freshness_hours=3)
    (strict,) = east.submit("flights", freshness_hours=1.5)
    east.tick()
    assert world.state_of(lenient) is SubmissionState.FRESH
    assert world.state_of(strict) is SubmissionState.ACQUIRED


def test_only_some_tasks_of_a_batch_run_and_the_others_are_waited_for(world: World) -> None:
    """Their parents, too, as far as they are not among them."""
    batch = {"batch": "night"}
    east = world.place(spec("a", **batch), spec("b", ["a"], **batch), spec("c", ["b"], **batch))
    submitted = east.submit("night", only=["b", "c"])
    assert [one.task for one in submitted] == ["b", "c"]
    assert world.run_all() == []
    assert "a (never made" in world.again(submitted[0]).reason
    world.made("a")
    world.clock.passes(minutes=2)
    assert world.run_all() == ["b", "c"]


def test_all_parents_are_submitted_with_a_task_wherever_they_are(world: World) -> None:
    """Children come after their parents."""
    east = world.place(spec("delays", ["flights"]), spec("report", ["delays"]), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    for name in ("flights", "delays", "report"):
        world.made(name, hours=25)
    submitted = east.submit("report", with_parents=True)
    assert [(one.task, one.cluster) for one in submitted] == [
        ("report", "east"), ("delays", "east"), ("flights", "west"),
    ]  # fmt: skip
    assert world.run_all() == ["flights", "delays", "report"]
    assert len(west.runs.known) == 1


@pytest.mark.parametrize("how", [{"force": True}, {"freshness_hours": 1}])
def test_force_and_hours_say_nothing_of_the_parents_that_are_submitted_too(
    world: World, how: dict[str, Any]
) -> None:
    """They were made 2 hours ago, which is fresh enough for everybody."""
    east = world.place(
        spec("flights", freshness_hours=48),
        spec("delays", {"flights": 48}, freshness_hours=48),
        spec("report", {"delays": 48}, freshness_hours=48),
    )
    for name in ("flights", "delays", "report"):
        world.made(name, hours=2)
    submitted = east.submit("report", with_parents=True, **how)
    assert [one.force for one in submitted] == ["force" in how, False, False]
    assert world.run_all() == ["report"]
    states = [world.state_of(one) for one in submitted]
    assert states == [SubmissionState.SUCCEEDED, SubmissionState.FRESH, SubmissionState.FRESH]


def test_parents_that_are_submitted_too_are_as_fresh_as_their_children_need_them(
    world: World,
) -> None:
    """Each is fresh by its own word: one child needs it less fresh, the other one more."""
    east = world.place(
        spec("delays", {"weather": 24, "fleet": 240}),
        spec("report", {"delays": None, "weather": 60}),
        cluster="east",
    )
    west = world.place(
        spec("weather", {"radar": 12}, freshness_hours=48),
        spec("radar", freshness_hours=48),
        spec("fleet", freshness_hours=480),
        cluster="west",
    )
    for name in ("weather", "radar", "fleet"):
        world.made(name, hours=30)
    submitted = {one.task: one for one in east.submit("report", with_parents=True)}
    since = {name: world.clock.now - one.required_since for name, one in submitted.items()}
    assert since["weather"] == timedelta(hours=24)
    assert since["radar"] == timedelta(hours=12)
    assert since["fleet"] == timedelta(hours=240)
    assert world.run_all() == ["radar", "weather", "delays", "report"]
    assert len(west.runs.known) == 2
    assert world.state_of(submitted["fleet"]) is SubmissionState.FRESH


def test_a_task_of_several_locations_is_made_by_that_of_the_own_cluster(world: World) -> None:
    """Or by the one that is named."""
    here, there = {"cluster": "east"}, {"cluster": "west"}
    east = world.place(spec("flights"), **here)
    world.place(spec("flights"), **there)
    (submission,) = east.submit("flights")
    assert (submission.cluster, submission.location) == ("east", "lake")
    world.place(spec("flights"), cluster="east", location="second")
    with pytest.raises(InvalidInput, match="declares task flights: lake of cluster east, second"):
        east.submit("flights")
    (submission,) = east.submit("flights", location="second")
    assert submission.location == "second"


@pytest.mark.parametrize(("count", "message"), [(5, "t0, t1, t2, t3, t4"), (8, "t4 and 3 more")])
def test_of_many_tasks_that_are_unlike_a_name_five_are_listed_and_how_many_more(
    world: World, count: int, message: str
) -> None:
    """The first ones by name."""
    east = world.place(*(spec(f"t{number}") for number in range(count)))
    with pytest.raises(NotFound, match=f"'flights'; there is .*{message}$"):
        east.submit("flights")


@pytest.mark.parametrize(
    ("names", "how", "message"),
    [
        (["flihgts"], {}, r"names\[0\]: no task has the name 'flihgts'; there is flights"),
        (["flights", "x"], {}, r"names\[1\]"),
        ([], {}, "names: got \\[\\], expected at least one name"),
        (["flights"], {"freshness_hours": 0}, "freshness_hours: got 0, expected more than 0"),
        (["flights"], {"freshness_hours": -1}, "freshness_hours: got -1"),
        (["flights"], {"freshness_hours": float("nan")}, "freshness_hours: got nan"),
        (["flights"], {"freshness_hours": True}, "freshness_hours: got True, expected a number"),
        (["flights"], {"freshness_hours": 1, "force": True}, "freshness_hours: got 1, expected no"),
        (["flights"], {"only": ["delays"]}, "only: got 'delays', expected one of the tasks"),
        (["flights"], {"only": []}, "only: got \\[\\]"),
        (["flights"], {"location": "lkae"}, "location: got 'lkae', expected one that .*: lake"),
        (["flights"], {"only": ["flights"], "with_parents": True}, "with_parents: got True"),
    ],
)
def test_a_bad_submission_is_refused_and_nothing_is_written(
    world: World, names: list[str], how: dict[str, Any], message: str
) -> None:
    """With the field, what was found there, and what was expected."""
    east = world.place(spec("flights"))
    with pytest.raises((InvalidInput, NotFound), match=message):
        east.submit(*names, **how)
    with world.state.read() as tx:
        for table in (task_submissions, task_events):
            assert tx.execute(sa.select(sa.func.count()).select_from(table)).scalar() == 0


def test_the_skip_list_ends_a_submission_and_has_a_history(world: World) -> None:
    """Put on it, given another reason, taken off."""
    east = world.place(spec("flights"))
    args: dict[str, Any] = {"by": "ben", "cluster": "east", "time": world.clock}
    with world.state.begin() as tx:
        skip(tx, "flights", "broken", **args)
        skip(tx, "flights", "the feed is broken", **args)
    (submission,) = east.submit("flights")
    east.tick()
    ended = world.again(submission)
    assert (ended.state, ended.reason) == ("skipped", "skipped: the feed is broken (by ben)")
    with world.state.begin() as tx:
        assert [one.task for one in skips(tx)] == ["flights"]
        unskip(tx, "flights", **args)
        with pytest.raises(NotFound, match="not on the skip list, which has: nothing"):
            unskip(tx, "flights", **args)
        with pytest.raises(NotFound, match="no task has the name 'fligths'; there is flights"):
            skip(tx, "fligths", "broken", **args)
        with pytest.raises(InvalidInput, match="reason"):
            skip(tx, "flights", " ", **args)
    east.submit("flights")
    assert world.run_all() == ["flights"]


@pytest.mark.parametrize(("location", "parents"), [("one", ["a1", "b1"]), ("two", ["a2"])])
def test_the_parents_are_those_of_the_declaration_that_runs(
    world: World, location: str, parents: list[str]
) -> None:
    """Another location declares the task, and one of its ancestors, with other parents."""
    one = world.place(
        spec("child", ["a1"]), spec("a1", ["b1"]), spec("b1"), location="one"
    )  # fmt: skip
    world.place(
        spec("child", ["a2"]), spec("a1", ["b2"]), spec("a2"), spec("b2"), location="two"
    )  # fmt: skip
    submitted = one.submit("child", location=location, with_parents=True)
    assert [(made.task, made.location) for made in submitted] == [
        ("child", location), *((parent, location) for parent in parents)
    ]  # fmt: skip


def test_a_submission_of_yesterday_is_not_made_fresh_by_midnight(world: World) -> None:
    """What it required since is what it required when it was submitted."""
    east = world.place(spec("delays", ["flights"], patience="1d"), cluster="east")
    world.place(spec("flights"), cluster="west")
    world.clock.now = world.clock.now.replace(hour=23, minute=59)
    (submission,) = east.submit("delays")
    east.tick()
    world.made("flights")
    world.clock.passes(minutes=5)
    # Made since it was submitted: fresh, though another day has begun.
    assert world.run_all() == ["delays"]
    assert submission.required_since == world.clock.now.replace(
        day=1, hour=0, minute=0
    ) + timedelta(0)
