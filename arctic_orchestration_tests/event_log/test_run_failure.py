"""Why a run failed, read from Dagster's event log, on both storages."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration.event_log.dagster_log import DagsterLog


@pytest.fixture
def instance(
    backend: str, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> dg.DagsterInstance:
    return dagster_instance(backend)


@dg.op
def parses() -> None:
    try:
        int("many")
    except ValueError as error:
        raise RuntimeError("the feed has no number") from error


@dg.op(ins={"before": dg.In(dg.Nothing)})
def never() -> None: ...


@dg.op
def refuses() -> None:
    raise dg.Failure(description="token 1 is over")


@dg.op
def silent() -> None:
    raise ValueError


@dg.job(executor_def=dg.in_process_executor)
def chained() -> None:
    never(parses())


@dg.job(executor_def=dg.in_process_executor)
def refused() -> None:
    refuses()


@dg.job(executor_def=dg.in_process_executor)
def wordless() -> None:
    silent()


def test_the_reason_is_the_error_of_the_step_that_failed(
    instance: dg.DagsterInstance,
) -> None:
    """What was raised first, and not that its op failed; of a ``dg.Failure`` its description."""
    log = DagsterLog(instance)

    def why(job: dg.JobDefinition) -> str | None:
        ran = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not ran.success
        return log.why_failed(ran.run_id)

    assert why(chained) == "step parses: ValueError: invalid literal for int() with base 10: 'many'"
    assert why(refused) == "step refuses: token 1 is over"
    assert why(wordless) == "step silent: ValueError"
    log.close()


def test_the_reason_of_a_run_that_never_started_is_that_of_the_run(
    instance: dg.DagsterInstance,
) -> None:
    """As the daemon reports it; a run that did not fail has none."""
    log = DagsterLog(instance)
    run: Any = instance.create_run_for_job(chained)
    assert log.why_failed(run.run_id) is None
    instance.report_run_failed(run, "the code server is away")
    assert log.why_failed(run.run_id) == "the code server is away"
    assert not log.run_statuses([run.run_id])[run.run_id].started
    log.close()
