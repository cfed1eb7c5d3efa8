"""Two runs of one request, as two daemons on one instance may create them."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from arctic_orchestration.errors import Refused
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration_tests.freshness.imagined import Place, Run, World, spec


def _doubled(world: World, kind: str = "asset") -> tuple[Place, Submission, list[Run]]:
    """A task with one retry, its submission, and two runs of the first attempt, oldest first."""
    east = world.place(spec("a", kind=kind, retries=1))
    (submission,) = east.submit("a")
    east.tick()
    (run,) = east.waiting_runs()
    twin = replace(run, run_id="twin")
    east.runs.known[twin.run_id] = twin
    return east, submission, [run, twin]


@pytest.mark.parametrize("status", [RunStatus.FAILURE, RunStatus.CANCELED])
@pytest.mark.parametrize("which", [0, 1], ids=["the older", "the younger"])
def test_the_end_of_the_other_run_is_none_of_the_task(
    world: World, which: int, status: RunStatus
) -> None:
    """The one that has begun goes on, is not repeated, and is published."""
    east, submission, runs = _doubled(world)
    mine, other = runs[which], runs[1 - which]
    with ExitStack() as stack:
        running = east.begin(mine, stack)
        with pytest.raises(Refused, match="is used by run"):
            east.begin(other, stack)
        east.runs.becomes(other.run_id, status)
        east.tick()
        running.publish()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert (world.again(submission).run_id, len(east.runs.known)) == (mine.run_id, 2)


def test_a_run_that_can_still_begin_is_waited_for(world: World) -> None:
    """The older one could not start."""
    east, submission, (older, younger) = _doubled(world)
    east.tick()
    east.runs.becomes(older.run_id, RunStatus.FAILURE, started=False)
    east.tick()
    assert world.state_of(submission) is SubmissionState.ACQUIRED
    east.make(younger)
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_that_was_only_created_hides_no_other(world: World) -> None:
    """Its daemon died before it submitted the older one; the job of the younger one is made."""
    east, submission, (older, younger) = _doubled(world, "job")
    east.runs.known[older.run_id] = replace(older, submitted=False)
    east.runs.becomes(younger.run_id, RunStatus.SUCCESS)
    east.tick()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
