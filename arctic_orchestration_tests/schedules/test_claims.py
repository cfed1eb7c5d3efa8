"""The run that begins first is the one that counts for its job."""

from typing import Any

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.run_claims import Refusal, claim
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule
from arctic_orchestration_tests.schedules.test_engine import job_rows, states


def claimed(here: World, run_id: str, **options: Any) -> Refusal | None:
    """What the one job answers to a run that is about to begin."""
    (job,) = job_rows(here)
    with here.database.begin() as tx:
        return claim(tx, job["id"], run_id, **options)


def given_up(world: MakeWorld) -> World:
    """A job whose run-1 was failed before it started; run-2 was made for its second attempt."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    here.dagster.end("run-1", RunStatus.FAILURE, started=False)
    assert here.tick(2) == ["run-2"]
    here.tick(3)
    assert job_rows(here)[0]["run_id"] == "run-2"
    return here


def test_one_of_two_runs_may_begin(world: MakeWorld) -> None:
    """The first claim is granted and final; the second says who has it."""
    here = given_up(world)
    assert claimed(here, "run-1") is None
    refusal = claimed(here, "run-2")
    assert refusal is not None
    assert refusal.begun_run_id == "run-1"
    assert claimed(here, "run-1") is not None, "another process of the same run"


def test_a_job_goes_on_with_the_run_that_began(world: MakeWorld) -> None:
    """Also when its next attempt has a run already, whose end then ends nothing."""
    here = given_up(world)
    assert claimed(here, "run-1") is None
    here.dagster.start("rollup", "run-1", here.dagster.runs["run-1"].tags)
    here.tick(4)
    (job,) = job_rows(here)
    assert (job["state"], job["run_id"]) == ("launched", "run-1")
    assert job["reason"] == "run run-1, which began, and not run run-2"
    here.dagster.end("run-2", RunStatus.CANCELED, started=False)
    here.tick(5)
    assert states(here) == ["launched"]
    here.dagster.end("run-1")
    here.tick(6)
    assert states(here) == ["succeeded"]


def test_a_job_goes_on_with_its_second_run_when_the_first_did_not_begin(world: MakeWorld) -> None:
    """The slow run is canceled when it comes up, and the job does not end with it."""
    here = given_up(world)
    assert claimed(here, "run-2") is None
    here.dagster.end("run-1", RunStatus.CANCELED, started=False)
    here.tick(4)
    assert states(here) == ["launched"]
    here.dagster.end("run-2")
    here.tick(5)
    assert states(here) == ["succeeded"]


def test_a_run_that_was_only_slow_is_not_requested_again(world: MakeWorld) -> None:
    """It was failed before it was enqueued: it is found alive before the next request."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end("run-1", RunStatus.FAILURE, started=False)
    # Its event ENQUEUED is stored after its failure.
    here.dagster.start("rollup", "run-1", here.dagster.runs["run-1"].tags)
    here.feed.events.pop()
    assert here.tick(2) == []
    assert here.tick(3) == []
    (job,) = job_rows(here)
    assert (job["state"], job["run_id"]) == ("launched", "run-1")
    here.dagster.end("run-1")
    here.tick(4)
    assert states(here) == ["succeeded"]


def test_a_run_that_claimed_its_job_and_failed_has_begun(world: MakeWorld) -> None:
    """Its process ended between the claim and the event: no other attempt is made."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    assert claimed(here, "run-1") is None
    here.dagster.end("run-1", RunStatus.FAILURE, started=False)
    assert here.tick(2) == []
    assert states(here) == ["failed"]


def test_a_job_fails_whose_run_began_and_was_deleted_before_it_was_seen(world: MakeWorld) -> None:
    """No other run may begin for it: it would be requested for ever, and hold its limits."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    assert claimed(here, "run-1") is None
    here.dagster.delete("run-1")
    here.feed.events = [event for event in here.feed.events if event.run_id != "run-1"]
    assert here.tick(2) == []
    (job,) = job_rows(here)
    assert (job["state"], job["reason"]) == ("failed", "its run run-1 was deleted from Dagster")


def test_a_run_that_was_deleted_before_it_began_is_requested_again(world: MakeWorld) -> None:
    """Its process cannot begin without it."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.delete("run-1")
    here.feed.events = [event for event in here.feed.events if event.run_id != "run-1"]
    assert here.tick(2) == ["run-2"]
    assert claimed(here, "run-2") is None
    here.tick(3)
    assert states(here) == ["launched"]


def test_a_run_that_was_failed_and_then_began_ends_as_it_ends(world: MakeWorld) -> None:
    """One tick reads its failure, its beginning and its success; or its failure alone."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    assert claimed(here, "run-1") is None
    here.dagster.end("run-1", RunStatus.FAILURE, started=True)
    here.dagster.start("rollup", "run-1", here.dagster.runs["run-1"].tags)
    begun = here.feed.events.pop()
    assert here.tick(2) == []
    assert states(here) == ["launched"], "its failure alone"
    here.feed.events.append(begun)
    here.dagster.end("run-1")
    assert here.tick(3) == []
    assert states(here) == ["succeeded"]


def test_a_retry_takes_the_claim_of_its_run_over(world: MakeWorld) -> None:
    """Dagster retries the run that began; from then on that one may not begin again."""
    here = given_up(world)
    assert claimed(here, "run-2") is None
    assert claimed(here, "retry", instead_of="run-1") is not None
    assert claimed(here, "retry", instead_of="run-2") is None
    assert claimed(here, "run-2") is not None


def test_a_run_of_a_job_that_has_ended_may_not_begin(world: MakeWorld) -> None:
    """What was given up does not begin later; one that was deleted refuses nothing."""
    here = given_up(world)
    here.dagster.end("run-2")
    here.tick(4)
    refusal = claimed(here, "run-1")
    assert refusal is not None
    assert (refusal.begun_run_id, refusal.state) == (None, JobState.SUCCEEDED)
    with here.database.begin() as tx:
        assert claim(tx, "1" * 32, "run-1") is None
    assert here.engine.tick(at(5)).requests == []
