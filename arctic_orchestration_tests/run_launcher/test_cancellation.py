"""A run that is terminated while it starts ends as canceled, whatever its process just does."""

import json
from collections.abc import Iterator
from textwrap import dedent
from threading import Thread

import dagster as dg
import pytest

from arctic_orchestration.run_launcher import messages
from arctic_orchestration.run_launcher.launcher import HOST_TAG
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import HostedPlace, hosted_place

#: Dagster makes the executor after it has looked at the run's status, and before the run starts.
CODE = dedent("""
    import time
    from pathlib import Path
    import dagster as dg
    from dagster._core.executor.in_process import InProcessExecutor
    from dagster._core.execution.retries import RetryMode

    FOLDER = Path(__file__).parent

    @dg.executor(requirements=[])
    def held(init):
        (FOLDER / "held").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.01)
        return InProcessExecutor(retries=RetryMode.DISABLED)

    @dg.op
    def step(context):
        (FOLDER / context.run_id).write_text("{}")
        time.sleep(600)

    @dg.job(executor_def=held)
    def waits():
        step()

    @dg.job(executor_def=dg.in_process_executor)
    def work():
        step()

    defs = dg.Definitions(jobs=[waits, work])
""")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedPlace]:
    with hosted_place(tmp_path_factory.mktemp("c"), CODE) as made:
        yield made


def test_a_start_does_not_make_a_failure_of_a_termination(place: HostedPlace) -> None:
    run_id = place.launch(place.create("waits"))
    until((place.folder / "held").exists, "the process is about to start the run")
    assert place.instance.run_launcher.terminate(run_id)
    (place.folder / "go").touch()
    assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED


@pytest.mark.parametrize("attempt", range(3))
def test_a_run_is_terminated_whose_process_has_only_begun(place: HostedPlace, attempt: int) -> None:
    """A process that finds its run canceling takes itself for a duplicate, and ends."""
    run_id = place.create()
    launching = Thread(target=place.launch, args=[run_id])
    launching.start()
    try:
        request = {"do": "status"}
        until(
            lambda: any(run_id in answer["runs"] for answer in messages.call_all(request, 10)),
            "its host has the run",
        )
        assert place.instance.run_launcher.terminate(run_id)
        assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED
    finally:
        launching.join()


def test_a_run_that_has_no_process_yet_is_launched_after_a_termination(place: HostedPlace) -> None:
    run_id = place.create()
    assert not place.instance.run_launcher.terminate(run_id)
    assert "no process yet" in place.messages(run_id)
    place.launch(run_id)
    until(lambda: (place.folder / run_id).exists(), "the step has begun")
    assert place.instance.run_launcher.terminate(run_id)
    assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED


def test_a_run_of_another_machine_is_left_as_it_is(place: HostedPlace) -> None:
    """It is not canceling: run monitoring would report its end while its process goes on."""
    run_id = place.launch(place.create())
    until((place.folder / run_id).exists, "the step has begun")
    record = place.instance.get_run_record_by_id(run_id)
    assert record is not None
    here = record.dagster_run.tags[HOST_TAG]
    elsewhere = json.dumps({**json.loads(here), "machine": "elsewhere"})
    place.instance.add_run_tags(run_id, {HOST_TAG: elsewhere})
    assert not place.instance.run_launcher.terminate(run_id)
    assert "on its machine only, elsewhere" in place.messages(run_id)
    assert place.status(run_id) is dg.DagsterRunStatus.STARTED
    place.instance.add_run_tags(run_id, {HOST_TAG: here})
    assert place.instance.run_launcher.terminate(run_id)
    assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED
