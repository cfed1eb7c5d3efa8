"""What becomes of a job with its run: started, lost, retried, deleted, or another job's."""

from dataclasses import replace

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration_tests.schedules.simulated import MakeWorld, at, schedule
from arctic_orchestration_tests.schedules.test_engine import job_rows, states


def test_a_manual_run_of_the_target_counts(world: MakeWorld) -> None:
    """A limit without a group counts runs whoever started them."""
    here = world([schedule(constraints=[only.concurrency(1)])])
    here.dagster.start("rollup", "manual")
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == []
    here.dagster.end("manual")
    assert here.tick(2) == ["run-1"]


def test_a_deleted_run_gives_its_slot_back(world: MakeWorld) -> None:
    """Nobody tells of the end of a run that was deleted; it is looked up after five minutes."""
    here = world([schedule(constraints=[only.concurrency(1)])])
    here.dagster.start("rollup", "manual")
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.delete("manual")
    assert here.tick(299) == []
    assert here.tick(302) == ["run-1"]
    here.feed.arrive("raw/a", "2")
    here.tick(303)
    here.dagster.delete("run-1")
    assert here.tick(604) == ["run-2"]


def test_a_run_that_never_started_is_requested_three_times(world: MakeWorld) -> None:
    """Infrastructure failures are not the job's; the third ends it, with the reason."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    for number in (1, 2, 3):
        assert here.tick(number * 2) == [f"run-{number}"]
        here.tick(number * 2 + 1)
        here.dagster.end(f"run-{number}", RunStatus.FAILURE, started=False)
    assert here.tick(9) == []
    assert states(here) == ["failed"]
    assert job_rows(here)[0]["reason"] == "3 runs failed before they started, the last run-3"
    assert [request.run_key[-2:] for request in here.dagster.requests] == ["-1", "-2", "-3"]


def test_a_run_whose_record_does_not_say_yet_that_it_failed_is_not_waited_for(
    world: MakeWorld,
) -> None:
    """Dagster stores the event first: a tick in between leaves the decision to the next one."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    here.tick(2)
    record = here.dagster.runs["run-1"]
    here.dagster.end("run-1", RunStatus.FAILURE, started=False)
    failed = here.dagster.runs["run-1"]
    here.dagster.runs["run-1"] = replace(record, status=RunStatus.STARTING, started=False)
    assert here.tick(3) == []
    assert states(here) == ["launching"]
    here.dagster.runs["run-1"] = failed
    assert here.tick(4) == ["run-2"]
    here.tick(5)
    assert (states(here), job_rows(here)[0]["run_id"]) == (["launched"], "run-2")


def test_a_failure_of_the_work_itself_is_not_repeated(world: MakeWorld) -> None:
    """A run that started and failed ends the job."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end("run-1", RunStatus.FAILURE)
    assert here.tick(2) == []
    assert states(here) == ["failed"]


def test_a_job_goes_on_with_dagsters_retry_of_its_run(world: MakeWorld) -> None:
    """Dagster retries a failed run: the job keeps its slot in between and ends with the retry."""
    here = world([schedule(constraints=[only.concurrency(1)])])
    here.dagster.retries_enabled = True
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end("run-1", RunStatus.FAILURE)
    here.feed.arrive("raw/a", "2")
    assert here.tick(2) == [], "nobody knows yet whether the run is retried"
    here.dagster.end("run-1", RunStatus.FAILURE, tags={"dagster/will_retry": "true"})
    assert here.tick(8) == []
    first = here.dagster.runs["run-1"]
    here.dagster.start("rollup", "retry", {**first.tags, "dagster/parent_run_id": "run-1"})
    assert here.tick(9) == []
    here.dagster.end("retry", tags={"dagster/will_retry": "false"})
    assert here.tick(10) == ["run-2"]
    assert states(here) == ["succeeded", "launching"]


def test_a_failed_run_that_is_not_retried_ends_its_job(world: MakeWorld) -> None:
    """With retries on, a failed run says that there will be none."""
    here = world([schedule()])
    here.dagster.retries_enabled = True
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end("run-1", RunStatus.FAILURE, tags={"dagster/will_retry": "false"})
    here.tick(2)
    assert states(here) == ["failed"]


def test_a_lost_request_is_handed_out_again_and_makes_one_run(world: MakeWorld) -> None:
    """The requests of a tick that never reached Dagster come back under the same key."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    lost = here.engine.tick(at(1)).requests
    assert len(lost) == 1
    assert here.tick(2) == ["run-1"]
    assert here.dagster.submit(lost) == []
