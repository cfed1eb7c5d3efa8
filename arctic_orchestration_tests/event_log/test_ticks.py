"""Which ticks of a sensor are over, read from Dagster's own records."""

from collections.abc import Callable, Sequence

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import TickData, TickStatus
from dagster_shared.error import SerializableErrorInfo

from arctic_orchestration.event_log.ticks import DagsterTicks, FailedTick

A_FAULT = SerializableErrorInfo("it failed", [], None)
REQUESTED = [dg.RunRequest(run_key="job-1", job_name="work")]


@pytest.fixture
def instance(
    backend: str, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> dg.DagsterInstance:
    """A real instance on each storage."""
    return dagster_instance(backend)


@pytest.mark.parametrize(
    ("status", "requests", "over"),
    [
        (TickStatus.STARTED, None, False),
        (TickStatus.STARTED, REQUESTED, False),
        (TickStatus.SUCCESS, REQUESTED, True),
        (TickStatus.SKIPPED, REQUESTED, True),
        (TickStatus.SKIPPED, None, False),
        (TickStatus.FAILURE, None, True),
        (TickStatus.FAILURE, REQUESTED, False),
    ],
)
def test_a_tick_is_over_when_only_its_own_daemon_can_have_reported_that(
    instance: dg.DagsterInstance,
    status: TickStatus,
    requests: Sequence[dg.RunRequest] | None,
    over: bool,
) -> None:
    """Another daemon may skip a tick without requests, and fail one that it resumed."""
    tick = instance.create_tick(
        TickData(
            instigator_origin_id="origin",
            instigator_name="arctic_dispatcher",
            instigator_type=InstigatorType.SENSOR,
            status=status,
            timestamp=0.0,
            selector_id="selector",
            run_requests=requests,
            run_ids=[],
            error=A_FAULT if status is TickStatus.FAILURE else None,
        )
    )
    id = str(tick.tick_id)
    ticks = DagsterTicks(lambda: instance, ["repository", "sensor", id])
    assert ticks.current == id
    assert ticks.ended([id]) == ([id] if over else [])


def test_a_tick_that_was_purged_is_over(instance: dg.DagsterInstance) -> None:
    """Dagster deletes records of ticks by their age."""
    assert DagsterTicks(lambda: instance, None).ended(["12345"]) == ["12345"]


def test_an_evaluation_outside_of_a_daemon_is_no_tick(instance: dg.DagsterInstance) -> None:
    """The UI's test of a sensor, or a test: the log key ends with the time."""
    assert DagsterTicks(lambda: instance, ["r", "s", "20260101_120000"]).current is None
    assert DagsterTicks(lambda: instance, None).current is None


def test_a_failed_tick_reports_its_error_and_the_missing_runs(
    instance: dg.DagsterInstance,
) -> None:
    """In the order of submission; one that goes on, or is gone, has not failed."""
    requests = [dg.RunRequest(run_key=f"job-{number}", job_name="work") for number in range(3)]
    cause = SerializableErrorInfo("KeyError: 'down'\nin line 7", [], "KeyError")
    error = SerializableErrorInfo("it failed", [], "DagsterUserCodeProcessError", cause)

    def tick(status: TickStatus, error: SerializableErrorInfo | None = None) -> str:
        made = instance.create_tick(
            TickData(
                instigator_origin_id="origin",
                instigator_name="arctic_dispatcher",
                instigator_type=InstigatorType.SENSOR,
                status=status,
                timestamp=0.0,
                selector_id="selector",
                run_requests=requests,
                reserved_run_ids=["run-0", "run-1", "run-2"],
                run_ids=["run-0"],
                error=error,
            )
        )
        return str(made.tick_id)

    goes_on, failed = tick(TickStatus.STARTED), tick(TickStatus.FAILURE, error)
    ticks = DagsterTicks(lambda: instance, None)
    assert ticks.failed([goes_on, failed, "12345"]) == {
        failed: FailedTick(error="KeyError: 'down'", unmade=("job-1", "job-2"))
    }
    assert ticks.failed([]) == {}
