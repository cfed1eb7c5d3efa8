"""A run whose process has died silently is resumed in a host, as run monitoring does it."""

import os
import signal
from textwrap import dedent

import dagster as dg
import pytest
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher import WorkerStatus

from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import Make
from arctic_orchestration_tests.run_launcher.test_hosts import CODE


def test_a_run_whose_process_died_with_its_host_is_resumed_in_the_next_one(make: Make) -> None:
    """Nothing has reported its end; Dagster executes what is left of it in another process."""
    code = CODE + dedent("""
        ONCE = FOLDER / "once"
        MISDEEDS["sleep once"] = "ONCE.exists() or (ONCE.touch(), time.sleep(600))"
    """)
    place = make(code)
    run_id = place.launch(place.create(do="sleep once"))
    until((place.folder / "once").exists, "the step has begun")
    run = place.instance.get_run_by_id(run_id)
    assert run is not None
    (host,) = place.hosts()
    first = host["runs"][run_id]["pid"]
    for process in (host["pid"], first):
        os.kill(process, signal.SIGKILL)
    launcher = place.instance.run_launcher
    assert launcher.supports_resume_run
    until(
        lambda: launcher.check_run_worker_health(run).status is WorkerStatus.FAILED,
        "its process has ended",
    )
    assert place.status(run_id) is dg.DagsterRunStatus.STARTED
    place.instance.resume_run(run_id, place.workspace.create_request_context(), 1)
    assert place.ended(run_id).status is dg.DagsterRunStatus.SUCCESS, place.messages(run_id)
    (second,) = place.hosts()
    note = place.note_of(run_id)
    assert note["parent"] == second["pid"] != host["pid"]
    assert note["pid"] != first


def test_a_run_that_can_be_resumed_in_no_host_says_why(make: Make) -> None:
    """Dagster's own launcher resumes nothing, and is not named as the one that launched the run."""
    place = make(CODE + "\nthreading.Thread(target=time.sleep, args=(900,), daemon=True).start()\n")
    run_id = place.create()
    run = place.instance.get_run_by_id(run_id)
    assert run is not None
    place.instance.report_dagster_event(
        dg.DagsterEvent("PIPELINE_START", "work", message="it began"), run_id
    )
    expected = "No run host can execute this run: importing its code starts"
    with pytest.raises(DagsterLaunchFailedError, match=expected):
        place.instance.resume_run(run_id, place.workspace.create_request_context(), 1)
    assert "Launched by" not in place.messages(run_id)
