"""Runs that a person starts in Dagster: they acquire their task for themselves."""

import pytest

from arctic_orchestration.errors import Refused
from arctic_orchestration.freshness.run_reconciler import NOWHERE
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration_tests.freshness.imagined import LIFE, World, spec


def test_a_run_that_a_person_started_gives_its_task_back_when_it_fails(world: World) -> None:
    """At once, and whoever shared it makes the task instead."""
    east = world.place(spec("flights"))
    manual_run = world.started_manually("flights")
    with pytest.raises(ZeroDivisionError), manual_run as running:
        (submission,) = east.submit("flights")
        east.tick()
        assert world.again(submission).reason == (
            "shares run r of cluster east, location lake "
            f"(submission {running.submission.id}, token 1)"
        )
        world.clock.passes(seconds=1)
        raise ZeroDivisionError("by nothing")
    ended = world.again(running.submission)
    assert (ended.state, ended.reason) == ("failed", "run r failed: ZeroDivisionError: by nothing")
    assert world.row("flights").owner is None
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_that_a_person_started_outside_of_any_location_is_looked_after_too(
    world: World,
) -> None:
    """Its process was killed: whichever location of the cluster ticks says so."""
    east = world.place(spec("flights"))
    with world.started_manually("flights", location=NOWHERE) as running:
        world.clock.passes(seconds=61)
        east.tick()
        assert world.state_of(running.submission) is SubmissionState.LOST
        with pytest.raises(Refused, match="is lost"):
            running.publish()


def test_a_manual_run_that_begins_again_has_its_lease_from_then_on(world: World) -> None:
    """As after an answer that was lost: it trusts the lease as if it had just been taken."""
    first, again = (world.started_manually("flights") for _ in range(2))
    with first as running:
        world.clock.passes(seconds=50)
        with again as repeated:
            assert repeated.submission.id == running.submission.id
            assert world.row("flights").expires_at == world.clock.now + LIFE


def test_a_manual_run_that_was_superseded_is_not_requested_again(world: World) -> None:
    """A person started it, and it is over; the other one's run is what there is."""
    east = world.place(spec("flights"), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    with world.started_manually("flights") as running:
        world.clock.passes(seconds=61)
        west.submit("flights", force=True)
        west.tick()
        east.tick()
        lost = world.again(running.submission)
        assert lost.state is SubmissionState.LOST
        assert lost.reason.startswith("run r fell silent, and a run for submission")
        assert lost.reason.endswith("of cluster west, location lake has taken the task over")
    assert world.run_all() == ["flights"]
    assert east.runs.known == {}
