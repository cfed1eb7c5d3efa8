"""Parents of every kind: what they make of the child that waits for them."""

import threading
from datetime import timedelta

import pytest

from arctic_orchestration.events.event import RunStatus
from arctic_orchestration.freshness.running import acquired_by_hand
from arctic_orchestration.freshness.skips import skip
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration_tests.freshness.imagined import LIFE, Place, World, spec
from arctic_orchestration_tests.proofs.dagster_processes import until


def test_the_tip_of_a_diamond_is_made_once_and_first(world: World) -> None:
    """Both sides want it; one of them submits it, and the other waits for the same."""
    east = world.place(
        spec("tip"), spec("left", ["tip"]), spec("right", ["tip"]), spec("end", ["left", "right"])
    )
    (asked,) = east.submit("end")
    made = world.settle()
    assert made[0] == "tip"
    assert sorted(made[1:3]) == ["left", "right"]
    assert made[3:] == ["end"]
    assert world.state_of(asked) is SubmissionState.SUCCEEDED


def test_a_chain_of_200_tasks_is_made_from_its_root(world: World) -> None:
    """One submission brings all of them to life, and each waits for the one above."""
    names = [f"t{number:03}" for number in range(200)]
    pairs = zip(names, [None, *names[:-1]], strict=True)
    east = world.place(*(spec(name, [above] if above else []) for name, above in pairs))
    (asked,) = east.submit(names[-1])
    # A tick leaves what takes too long to the next.
    until(lambda: bool(east.tick().requests), 600, "the first run is asked for")
    assert [run.request.task for run in east.waiting_runs()] == [names[0]]
    assert world.settle() == names
    assert world.state_of(asked) is SubmissionState.SUCCEEDED
    assert len(east.runs.known) == 200


def test_a_parent_that_does_not_exist_fails_the_child_at_once(world: World) -> None:
    """Nobody declares it, and it is no asset of the instance."""
    east = world.place(spec("delays", ["fligths"]))
    (asked,) = east.submit("delays")
    assert east.tick().requests == []
    ended = world.again(asked)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == (
        "fligths does not exist: no location of any cluster declares it, and it is no asset of "
        "this Dagster instance"
    )
    assert world.steps(asked)[-1] is Step.STALE_PARENTS


def test_a_parent_that_is_no_task_counts_by_its_materialization(world: World) -> None:
    """It is waited for, as whoever makes it is not ours to ask."""
    east = world.place(spec("delays", {"raw/flights": 3}))
    east.assets.made["raw/flights"] = world.clock.now - timedelta(hours=4)
    (asked,) = east.submit("delays")
    assert east.tick().requests == []
    assert world.state_of(asked) is SubmissionState.WAITING
    east.assets.made["raw/flights"] = world.clock.now
    world.clock.passes(minutes=2)
    assert world.settle() == ["delays"]


def test_a_parent_elsewhere_that_never_ran_is_waited_for_half_an_hour(world: World) -> None:
    """Looked at every two minutes; then the child fails, naming the parent."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    (asked,) = east.submit("delays")
    looks = set()
    for _ in range(180):
        east.tick()
        at = world.again(asked)
        if at.next_check_at is not None:
            looks.add(at.next_check_at - world.clock.now)
        world.clock.passes(seconds=10)
    assert max(looks) == timedelta(minutes=2)
    assert world.state_of(asked) is SubmissionState.WAITING
    east.tick()
    ended = world.again(asked)
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
    asked, _ = east.submit("delays", with_parents=True)
    for _ in range(50):
        east.tick()
        if world.state_of(asked).ended:
            break
        world.clock.passes(minutes=1)
    # The second look is soon, here after a minute, and the third one ten minutes later.
    assert world.clock.now - asked.submitted_at == timedelta(minutes=41)
    assert world.again(asked).reason == (
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
    asked, *_ = east.submit("delays", with_parents=True)
    for place in world.places * 2:
        place.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(130):
        for place in world.places:
            place.tick()
        world.clock.passes(seconds=30)
    assert [run.request.task for run in west.waiting_runs()] == ["flights"]
    waiting = world.again(asked)
    assert waiting.state is SubmissionState.WAITING
    assert "flights (made 1d" in waiting.reason
    assert "which was submitted for it, and is acquired" in waiting.reason
    west.make_all()
    east.runs.becomes(run.run_id, RunStatus.SUCCESS)
    assert world.settle() == ["delays"]


def test_a_parent_elsewhere_that_was_not_submitted_is_nobodys_to_submit(world: World) -> None:
    """The control: it grows too old as well, and is waited for as long as the patience lasts."""
    east = world.place(
        spec("delays", {"flights": 24.0, "weather": 24.0}), spec("weather", kind="job"),
        cluster="east",
    )  # fmt: skip
    west = world.place(spec("flights", freshness_hours=24), cluster="west")
    world.made("flights", hours=23)
    (asked,) = east.submit("delays")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(220):
        for place in world.places:
            place.tick()
        world.clock.passes(seconds=30)
    assert west.runs.known == {}
    ended = world.again(asked)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason.startswith("after 30m still not fresh: flights (made 1d")


def test_a_parent_that_another_location_makes_for_us_may_take_long(world: World) -> None:
    """The control: the location is there, and its run takes two hours."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    west = world.place(spec("flights", kind="job"), cluster="west")
    asked, _ = east.submit("delays", with_parents=True)
    west.tick()
    (run,) = west.waiting_runs()
    west.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(240):
        for place in world.places:
            place.tick()
        world.clock.passes(seconds=30)
    assert world.state_of(asked) is SubmissionState.WAITING
    west.runs.becomes(run.run_id, RunStatus.SUCCESS)
    assert world.settle() == ["delays"]


def test_the_time_in_which_nobody_looked_is_no_part_of_the_patience(world: World) -> None:
    """The database was away for an hour: the parent has as long afterwards as it had before."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    world.place(spec("flights"), cluster="west")
    (asked,) = east.submit("delays")
    for _ in range(10):
        east.tick()
        world.clock.passes(minutes=2)
    world.clock.passes(minutes=60)
    east.tick()
    # 18 minutes had passed until the last look.
    assert world.again(asked).deadline_at == world.clock.now + timedelta(minutes=12)
    for _ in range(6):
        east.tick()
        assert world.state_of(asked) is SubmissionState.WAITING
        world.clock.passes(minutes=2)
    east.tick()
    assert world.state_of(asked) is SubmissionState.FAILED


def test_recheck_and_patience_are_the_tasks(world: World) -> None:
    """Every 30 s, for two minutes."""
    east = world.place(spec("delays", ["flights"], recheck="30s", patience="2m"), cluster="east")
    world.place(spec("flights"), cluster="west")
    (asked,) = east.submit("delays")
    east.tick()
    world.clock.passes(seconds=10)
    east.tick()
    assert world.again(asked).next_check_at == world.clock.now + timedelta(seconds=30)
    world.clock.passes(seconds=80)
    east.tick()
    assert world.state_of(asked) is SubmissionState.WAITING
    world.clock.passes(seconds=30)
    east.tick()
    assert world.state_of(asked) is SubmissionState.FAILED


def test_a_parent_on_the_other_cluster_that_finishes_while_we_wait_wakes_the_child(
    world: World,
) -> None:
    """Without waiting for the next look."""
    east = world.place(spec("delays", ["flights"]), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    (asked,) = east.submit("delays")
    east.tick()
    world.clock.passes(seconds=11)
    east.tick()
    assert world.state_of(asked) is SubmissionState.WAITING
    west.submit("flights")
    world.clock.passes(seconds=1)
    assert world.settle() == ["flights", "delays"]
    assert world.state_of(asked) is SubmissionState.SUCCEEDED


def test_a_parent_that_fails_fails_the_child_and_says_why(world: World) -> None:
    """The grandchild too, each naming its own parent."""
    east = world.place(spec("flights"), spec("delays", ["flights"]), spec("report", ["delays"]))
    (asked,) = east.submit("report")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    assert world.settle() == []
    ended = world.again(asked)
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
    world.settle()
    (again,) = east.submit("delays")
    assert world.settle() == ["flights", "delays"]
    assert world.state_of(again) is SubmissionState.SUCCEEDED


def test_a_run_that_fails_is_repeated_under_a_new_token(world: World) -> None:
    """As often as the task says, and the task stays its own meanwhile."""
    east = world.place(spec("flights", retries=2), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    (asked,), (other,) = east.submit("flights"), west.submit("flights")
    for attempt in (1, 2, 3):
        east.tick()
        west.tick()
        (run,) = east.waiting_runs()
        assert run.request.run_key == f"{asked.id}-{attempt}"
        assert world.row("flights").token == attempt
        assert world.state_of(other) is SubmissionState.SHARING
        east.runs.becomes(run.run_id, RunStatus.FAILURE)
    east.tick()
    assert world.state_of(asked) is SubmissionState.FAILED
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
    assert world.settle() == ["weekly"]
    assert world.state_of(weekly) is SubmissionState.SUCCEEDED
    ended = world.again(daily)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == (
        "flights (made 1d6h ago, to be at most 24 hours old) is skipped: the feed is broken "
        "(by ben)"
    )


def test_a_fresh_parent_on_the_skip_list_that_is_submitted_too_fails_nobody(world: World) -> None:
    """It is too old by its own word, and not to be made; for the child it is fresh enough."""
    east = world.place(spec("weekly", {"flights": 168}), spec("flights"))
    world.made("flights", hours=30)
    with world.state.begin() as tx:
        skip(tx, "flights", "the feed is broken", by="ben", cluster="east", time=world.clock)
    child, parent = east.submit("weekly", "flights")
    assert world.settle() == ["weekly"]
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
    assert world.settle() == ["weather", "delays"]


def test_a_parent_that_is_skipped_while_it_runs_goes_on_and_its_child_waits(world: World) -> None:
    """Once it has ended, its child fails or runs by what came of it."""
    east = world.place(spec("delays", ["flights"]), spec("flights"))
    (asked,) = east.submit("delays")
    east.tick()
    with world.state.begin() as tx:
        skip(tx, "flights", "the feed is broken", by="ben", cluster="east", time=world.clock)
    world.clock.passes(seconds=11)
    east.tick()
    assert world.state_of(asked) is SubmissionState.WAITING
    assert world.settle() == ["flights", "delays"]


def test_a_parent_that_a_person_made_in_vain_is_made_for_its_child(world: World) -> None:
    """Whoever waits did not ask for that run."""
    east = world.place(spec("delays", ["flights"]), spec("flights"))
    by_hand = acquired_by_hand(
        world.state, task="flights", cluster="east", location="lake", run_id="r", life=LIFE,
        time=world.clock,
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError), by_hand:
        (asked,) = east.submit("delays")
        east.tick()
        assert "flights" in world.again(asked).reason
        world.clock.passes(seconds=11)
        east.tick()
        raise ZeroDivisionError
    assert world.settle() == ["flights", "delays"]
    assert world.state_of(asked) is SubmissionState.SUCCEEDED


def test_a_parent_that_its_definition_skips_is_skipped(world: World) -> None:
    """As if it was on the list, in the own location or in all others."""
    east = world.place(spec("flights", skip="until the feed is back"), spec("delays", ["flights"]))
    world.place(spec("fleet", skip="no feed"), cluster="north")
    world.place(spec("fleet", skip="none here"), cluster="west")
    south = world.place(spec("late", ["fleet"]), cluster="south")
    (late,) = south.submit("late")
    (asked,) = east.submit("flights")
    (child,) = east.submit("delays")
    assert world.settle() == []
    assert world.again(asked).reason == "skipped: until the feed is back"
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
    assert world.settle() == []
    assert world.state_of(late) is SubmissionState.WAITING
    west.submit("fleet")
    assert world.settle() == ["fleet", "late"]


def test_tasks_of_a_batch_wait_for_a_place(world: World) -> None:
    """Two of three run at once; the third waits without holding anything."""
    east = world.place(*(spec(name, batch="night", concurrency=2) for name in ("a", "b", "c")))
    east.submit("a", "b", "c")
    assert [request.task for request in east.tick().requests] == ["a", "b"]
    (third,) = [one for one in _live(world) if one.task == "c"]
    assert third.reason == "2 tasks of batch night run, and 2 may"
    assert world.row("c").owner is None
    east.make(east.waiting_runs()[0])
    east.tick()
    assert [run.request.task for run in east.waiting_runs()] == ["b", "c"]


def test_the_places_of_a_batch_are_those_of_all_clusters(world: World) -> None:
    """The other cluster waits, and is woken when the place is free."""
    night = [spec(name, batch="night", concurrency=1) for name in ("a", "b")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    east.submit("a")
    (second,) = west.submit("b")
    east.tick()
    west.tick()
    assert world.again(second).reason == "1 tasks of batch night run, and 1 may"
    world.clock.passes(seconds=11)
    assert world.settle() == ["a", "b"]


def test_the_places_of_a_cluster_that_is_gone_are_free_in_the_end(world: World) -> None:
    """Five minutes after its leases are over; until then it may only have been started anew."""
    night = [spec(name, batch="night", concurrency=1) for name in ("a", "b")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    (first,) = east.submit("a")
    (second,) = west.submit("b")
    east.tick()
    # Its lease is over after a minute; west looks at 0 and 1, and every two minutes from then.
    for minutes in range(8):
        west.tick()
        state = world.state_of(second)
        waits = minutes < 7
        assert state is (SubmissionState.WAITING if waits else SubmissionState.ACQUIRED), minutes
        world.clock.passes(minutes=1)
    assert world.state_of(first) is SubmissionState.ACQUIRED


def test_the_last_place_of_a_batch_is_given_once(world: World) -> None:
    """Both clusters look at the same moment; and again for each of some batches."""
    night = [
        spec(f"{name}{number}", batch=f"night{number}", concurrency=1)
        for name in ("a", "b")
        for number in range(5)
    ]
    places = {
        one: world.place(*night, cluster=name) for one, name in (("a", "east"), ("b", "west"))
    }
    for number in range(5):
        for one, place in places.items():
            place.submit(f"{one}{number}")
    together = threading.Barrier(2, timeout=60)

    def tick(place: Place) -> None:
        together.wait()
        place.tick()

    threads = [threading.Thread(target=tick, args=(place,)) for place in places.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(5):
        owners = [world.row(f"{one}{number}").owner for one in places]
        assert sum(owner is not None for owner in owners) == 1


def test_a_parent_of_the_same_batch_in_another_location_is_submitted_there(world: World) -> None:
    """A batch is one piece of work, wherever its tasks are."""
    east = world.place(spec("delays", ["flights"], batch="night"), cluster="east")
    west = world.place(spec("flights", batch="night"), cluster="west")
    east.submit("delays")
    assert world.settle() == ["flights", "delays"]
    assert [run.request.task for run in west.runs.known.values()] == ["flights"]


def _live(world: World) -> list:  # type: ignore[type-arg]
    from arctic_orchestration.freshness.submissions import live_of

    with world.state.read() as tx:
        return [one for found in live_of(tx, ["a", "b", "c"]).values() for one in found]
