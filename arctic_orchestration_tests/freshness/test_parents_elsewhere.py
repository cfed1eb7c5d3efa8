"""Parents that another location makes: how long they are waited for, and who submits them."""

from datetime import timedelta

import pytest

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import lifecycle
from arctic_orchestration.freshness.location_removal import forget
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.audit import NO_ACTOR
from arctic_orchestration_tests.freshness.imagined import World, spec


def test_a_parent_elsewhere_that_never_ran_is_waited_for_half_an_hour(world: World) -> None:
    """Looked at every two minutes; then the child fails, naming the parent."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    looks = set()
    for _ in range(180):
        east.tick()
        at = world.again(submission)
        if at.next_check_at is not None:
            looks.add(at.next_check_at - world.clock.now)
        world.clock.passes(seconds=10)
    assert max(looks) == timedelta(minutes=2)
    assert world.state_of(submission) is SubmissionState.WAITING
    east.tick()
    ended = world.again(submission)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == (
        "after 30m still not fresh: flights (never made, to be made since the start of today (UTC))"
    )
    assert east.runs.known == {}
    # Nobody submits what another location makes.
    assert world.places[1].runs.known == {}


def test_a_parent_that_is_handed_to_a_location_that_is_down_is_not_waited_for_for_ever(
    world: World,
) -> None:
    """As long as for any parent elsewhere, once its location was not seen for five minutes."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    submission, _ = east.submit("delays", with_parents=True)
    for _ in range(50):
        east.tick()
        if world.state_of(submission).ended:
            break
        world.clock.passes(minutes=1)
    # The second look is soon, here after a minute, and the third one ten minutes later.
    assert world.clock.now - submission.submitted_at == timedelta(minutes=41)
    assert world.again(submission).reason == (
        "after 30m still not fresh: flights (never made, to be made since the start of today "
        "(UTC)), which was submitted together with it, and is submitted in a location that was not "
        "seen for 41m"
    )


def test_a_parent_elsewhere_that_grows_too_old_while_its_child_waits_is_submitted_again(
    world: World,
) -> None:
    """It was fresh when both were submitted, and had nothing to do; another parent takes hours."""
    needs = {"flights": 24.0, "weather": 24.0}
    east = world.place(spec("delays", needs), spec("weather", kind="job"), cluster="east")
    west = world.place(spec("flights", freshness_hours=24), cluster="west")
    world.made("flights", hours=23)
    submission, *_ = east.submit("delays", with_parents=True)
    for place in world.places * 2:
        place.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(130):
        for place in world.places:
            place.tick()
        world.clock.passes(seconds=30)
    assert [run.request.task for run in west.waiting_runs()] == ["flights"]
    waiting = world.again(submission)
    assert waiting.state is SubmissionState.WAITING
    assert "flights (made 1d" in waiting.reason
    assert "which was submitted for it, and is acquired" in waiting.reason
    west.make_all()
    east.runs.becomes(run.run_id, RunStatus.SUCCESS)
    assert world.run_all() == ["delays"]


def test_a_parent_elsewhere_that_was_not_submitted_is_not_submitted_here(world: World) -> None:
    """The control: it grows too old as well, and is waited for as long as the patience lasts."""
    east = world.place(
        spec("delays", {"flights": 24.0, "weather": 24.0}), spec("weather", kind="job"),
        cluster="east",
    )  # fmt: skip
    west = world.place(spec("flights", freshness_hours=24), cluster="west")
    world.made("flights", hours=23)
    (submission,) = east.submit("delays")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(220):
        for place in world.places:
            place.tick()
        world.clock.passes(seconds=30)
    assert west.runs.known == {}
    ended = world.again(submission)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason.startswith("after 30m still not fresh: flights (made 1d")


def test_a_parent_that_another_location_makes_for_us_may_take_long(world: World) -> None:
    """The control: the location is there, and its run takes two hours."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    west = world.place(spec("flights", kind="job"), cluster="west")
    submission, _ = east.submit("delays", with_parents=True)
    west.tick()
    (run,) = west.waiting_runs()
    west.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(240):
        for place in world.places:
            place.tick()
        world.clock.passes(seconds=30)
    assert world.state_of(submission) is SubmissionState.WAITING
    west.runs.becomes(run.run_id, RunStatus.SUCCESS)
    assert world.run_all() == ["delays"]


def test_the_time_without_checks_is_no_part_of_the_patience(world: World) -> None:
    """The database was away for an hour: the parent has as long afterwards as it had before."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    for _ in range(10):
        east.tick()
        world.clock.passes(minutes=2)
    world.clock.passes(minutes=60)
    east.tick()
    # 18 minutes had passed until the last look.
    assert world.again(submission).deadline_at == world.clock.now + timedelta(minutes=12)
    for _ in range(6):
        east.tick()
        assert world.state_of(submission) is SubmissionState.WAITING
        world.clock.passes(minutes=2)
    east.tick()
    assert world.state_of(submission) is SubmissionState.FAILED


@pytest.mark.parametrize(
    ("recheck", "seconds", "ends_after"),
    [
        ("10s", 80, timedelta(seconds=23 * 80)),
        ("2m", 120, timedelta(minutes=30)),
        # The first gap may be an outage: patience ends half an hour after it.
        ("2m", 190, timedelta(seconds=11 * 190)),
        ("10s", 3600, timedelta(hours=2)),
    ],
)
def test_slow_ticks_are_part_of_the_patience(
    world: World, recheck: str, seconds: int, ends_after: timedelta
) -> None:
    """Each check is late, and the task fails nevertheless."""
    east = world.place(spec("delays", ["flights"], recheck=recheck), cluster="east")
    world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    for _ in range(50):
        east.tick()
        if world.state_of(submission).ended:
            break
        world.clock.passes(seconds=seconds)
    assert world.state_of(submission) is SubmissionState.FAILED
    assert world.clock.now - submission.submitted_at == ends_after


def test_a_check_that_is_late_in_a_location_that_ticks_extends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ticks had too much to do for 20 minutes."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    east.tick()
    with monkeypatch.context() as busy:
        busy.setattr(lifecycle, "_TICK_SECONDS", -1)
        for _ in range(40):
            world.clock.passes(seconds=30)
            east.tick()
    east.tick()
    deadline = submission.submitted_at + timedelta(minutes=30)
    assert world.again(submission).deadline_at == deadline


def test_an_outage_of_another_location_is_part_of_the_patience(world: World) -> None:
    """Of one with the same name in another cluster, and of one beside it in the same cluster."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    others = [
        world.place(spec("flights"), cluster="west"),
        world.place(spec("weather"), cluster="east", location="other"),
    ]
    (submission,) = east.submit("delays")
    for _ in range(10):
        east.tick()
        world.clock.passes(minutes=1)
    for other in others:
        other.tick()
    deadline = submission.submitted_at + timedelta(minutes=30)
    assert world.again(submission).deadline_at == deadline


def test_each_outage_between_ticks_is_no_part_of_the_patience(world: World) -> None:
    """With another process of the sensor after the second."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    for outage in range(1, 4):
        for _ in range(4):
            east.tick()
            world.clock.passes(seconds=31)
        world.clock.passes(minutes=10)
        if outage == 2:
            east.deployed([spec("delays", ["flights"])])
        east.tick()
        # The last tick before the outage was half a minute before it began.
        away = outage * timedelta(minutes=10, seconds=31)
        deadline = submission.submitted_at + timedelta(minutes=30) + away
        assert world.again(submission).deadline_at == deadline


def test_recheck_and_patience_are_the_tasks(world: World) -> None:
    """Every 30 s, for two minutes."""
    east = world.place(spec("delays", ["flights"], recheck="30s", patience="2m"), cluster="east")
    world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    east.tick()
    world.clock.passes(seconds=10)
    east.tick()
    assert world.again(submission).next_check_at == world.clock.now + timedelta(seconds=30)
    world.clock.passes(seconds=80)
    east.tick()
    assert world.state_of(submission) is SubmissionState.WAITING
    world.clock.passes(seconds=30)
    east.tick()
    assert world.state_of(submission) is SubmissionState.FAILED


def test_a_parent_on_the_other_cluster_that_finishes_while_we_wait_wakes_the_child(
    world: World,
) -> None:
    """Without waiting for the next look."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("delays")
    east.tick()
    world.clock.passes(seconds=11)
    east.tick()
    assert world.state_of(submission) is SubmissionState.WAITING
    west.submit("flights")
    world.clock.passes(seconds=1)
    assert world.run_all() == ["flights", "delays"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_parent_of_the_same_batch_in_another_location_is_submitted_there(world: World) -> None:
    """A batch is one piece of work, wherever its tasks are."""
    east = world.place(spec("delays", ["flights"], batch="night"), cluster="east")
    west = world.place(spec("flights", batch="night"), cluster="west")
    east.submit("delays")
    assert world.run_all() == ["flights", "delays"]
    assert [run.request.task for run in west.runs.known.values()] == ["flights"]


@pytest.mark.parametrize("forgotten", [False, True], ids=["dropped", "forgotten"])
def test_a_parent_that_moves_within_its_batch_is_submitted_at_its_new_place(
    world: World, *, forgotten: bool
) -> None:
    """What was submitted for the child at the former place ends without a run."""
    former = world.place(spec("parent", batch="night"), location="former")
    lake = world.place(spec("child", ["parent"], batch="night"))
    (child,) = lake.submit("child")
    lake.tick()
    world.clock.passes(minutes=3)
    new = world.place(spec("parent", batch="night"), location="new")
    if forgotten:
        forget(world.state, "former", cluster="east", by=NO_ACTOR, time=world.clock)
    else:
        former.deployed([])
        former.tick()
    lake.tick()
    new.tick()
    assert new.make_all() == ["parent"]
    lake.tick()
    assert lake.make_all() == ["child"]
    assert world.state_of(child) is SubmissionState.SUCCEEDED
