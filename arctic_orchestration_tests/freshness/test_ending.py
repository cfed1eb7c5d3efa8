"""Ends of submissions: who reports them finds each once, with what was so just then."""

from contextlib import ExitStack
from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.ended_submissions import (
    Ending,
    Success,
    ending,
    note_reported,
    unreported,
)
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_submissions
from arctic_orchestration_tests.freshness.imagined import NOON, World, spec


def found(world: World, cluster: str, location: str, *, limit: int = 9) -> list[str]:
    with world.state.read() as tx:
        return unreported(tx, cluster, location, limit=limit)


def noted(world: World, *ids: str) -> None:
    with world.state.begin() as tx:
        for id in ids:
            note_reported(tx, id, world.clock.now)


def end_of(world: World, submission: Submission) -> Ending:
    with world.state.read() as tx:
        made = ending(tx, submission.id)
    assert made is not None
    return made


def test_an_end_is_found_until_it_is_noted(world: World) -> None:
    """The oldest first, and no more than was requested; who has not ended is not among them."""
    lake = world.place(spec("a"), spec("b"))
    (a,), (b,) = lake.submit("a"), lake.submit("b")
    lake.tick()
    assert found(world, "east", "lake") == []
    world.clock.passes(seconds=5)
    of_a, of_b = sorted(lake.waiting_runs(), key=lambda run: run.request.task)
    lake.make(of_b)
    world.clock.passes(seconds=5)
    lake.make(of_a)
    assert found(world, "east", "lake") == [b.id, a.id]
    assert found(world, "east", "lake", limit=1) == [b.id]
    assert found(world, "east", "lake") == [b.id, a.id]
    noted(world, b.id)
    assert found(world, "east", "lake") == [a.id]
    noted(world, a.id)
    assert found(world, "east", "lake") == []


def test_each_location_of_each_cluster_finds_its_own(world: World) -> None:
    """A task that several declare is each one's for what it was submitted for."""
    east = world.place(spec("a"))
    other = world.place(spec("b"), location="reports")
    west = world.place(spec("a"), cluster="west")
    (one,), (two,), (three,) = east.submit("a"), other.submit("b"), west.submit("a")
    assert world.run_all() == ["a", "b"]
    assert found(world, "east", "lake") == [one.id]
    assert found(world, "east", "reports") == [two.id]
    assert found(world, "west", "lake") == [three.id]
    assert found(world, "west", "reports") == []


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_an_end_that_is_committed_after_later_ones_is_not_missed(
    world: World, state: Database
) -> None:
    """A position among moments or ids would have gone past it."""
    lake = world.place(spec("a"), spec("b"))
    (a,), (b,) = lake.submit("a"), lake.submit("b")
    here = task_submissions.c

    def end(tx: sa.Connection, submission: Submission, second: int) -> None:
        at = NOON + timedelta(seconds=second)
        tx.execute(sa.update(task_submissions).where(here.id == submission.id).values(ended_at=at))

    with state.begin() as slow:
        end(slow, a, 1)
        with state.begin() as quick:
            end(quick, b, 2)
        assert found(world, "east", "lake") == [b.id]
        noted(world, b.id)
    assert found(world, "east", "lake") == [a.id]


def test_a_run_outside_of_any_location_is_found_where_its_task_is_declared(world: World) -> None:
    """Nobody else would."""
    world.place(spec("a"))
    world.place(spec("b"), location="reports")
    with world.started_manually("a", location="local") as running:
        running.publish()
    assert found(world, "east", "reports") == []
    (id,) = found(world, "east", "lake")
    assert end_of(world, running.submission).submission.id == id


def test_an_end_reports_how_long_it_took_and_what_was_fresh_then(world: World) -> None:
    """The waits for a parent and for the run apart, and no success but that of the moment."""
    lake = world.place(spec("parent"), spec("child", {"parent": 24}, freshness_hours=24))
    (child,) = lake.submit("child")
    lake.tick()
    lake.tick()
    world.clock.passes(seconds=40)
    (run,) = lake.waiting_runs()
    lake.make(run)
    lake.tick()  # the child is acquired 40 s after it was submitted
    world.clock.passes(seconds=15)
    (run,) = lake.waiting_runs()
    lake.make(run)
    made_at = NOON + timedelta(seconds=55)
    end = end_of(world, child)
    assert (end.step, end.at) == (Step.PUBLISHED, made_at)
    assert (end.waited, end.made_for) == (timedelta(seconds=40), timedelta(seconds=15))
    assert end.success == Success(at=made_at, run_id=run.run_id, cluster="east")
    assert end.fresh

    world.clock.passes(hours=6)
    (again,) = lake.submit("child")
    lake.tick()
    world.clock.passes(hours=1)
    lake.submit("child", force=True)
    assert world.run_all() == ["child"]
    end = end_of(world, again)
    assert (end.step, end.began_at, end.made_for) == (Step.FRESH, None, timedelta(0))
    # Not the forced one an hour later.
    assert end.success == Success(at=made_at, run_id=run.run_id, cluster="east")
    assert end.fresh


def test_what_was_made_before_publications_were_kept_counts(world: World) -> None:
    """Of a success older than those that are kept, the task's own row knows."""
    lake = world.place(spec("a", freshness_hours=2000))
    world.made("a", days=40)
    (submission,) = lake.submit("a")
    lake.tick()
    assert end_of(world, submission).success == Success(
        at=NOON - timedelta(days=40), run_id="before", cluster="east"
    )


def test_who_shared_a_run_of_another_cluster_says_whose(world: World) -> None:
    """Also when it failed; the step is that of its own end."""
    east, west = world.place(spec("a")), world.place(spec("a"), cluster="west")
    (owner,) = east.submit("a")
    east.tick()
    (sharing,) = west.submit("a")
    west.tick()
    (run,) = east.waiting_runs()
    with ExitStack() as stack:
        east.begin(run, stack)
        world.clock.passes(seconds=30)
        east.runs.becomes(run.run_id, RunStatus.FAILURE)
        east.tick()
    west.tick()
    end = end_of(world, sharing)
    assert (end.step, end.waited) == (Step.SHARED_FAILURE, timedelta(seconds=30))
    assert end.shared is not None
    assert (end.shared.id, end.shared.run_id) == (owner.id, run.run_id)
    assert (end.success, end.fresh) == (None, False)
    assert end_of(world, owner).step is Step.FAILED


def test_what_has_not_ended_has_no_end(world: World) -> None:
    """Neither has what is not kept any more."""
    lake = world.place(spec("a"))
    (submission,) = lake.submit("a")
    with world.state.read() as tx:
        assert ending(tx, submission.id) is None
        assert ending(tx, "gone") is None
