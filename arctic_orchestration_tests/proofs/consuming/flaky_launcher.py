"""A run launcher that starts no process: a run fails or succeeds where it is launched.

The first attempt at every fourth partition fails, and the second one at every eighth.
"""

from dagster import DagsterEvent, DagsterEventType
from dagster._core.events import JobFailureData
from dagster._core.launcher import LaunchRunContext

from arctic_orchestration_tests.proofs.instant_launcher import InstantRunLauncher


def fails(partition: str, attempt: int) -> bool:
    """Whether a run of this attempt at a partition such as ``p00004`` fails."""
    number = int(partition[1:])
    return (attempt == 1 and number % 4 == 0) or (attempt == 2 and number % 8 == 0)


class FlakyRunLauncher(InstantRunLauncher):
    """Reports the events of a run that has nothing to do."""

    def launch_run(self, context: LaunchRunContext) -> None:
        run = context.dagster_run
        failed = fails(run.tags["arctic/partition"], int(run.tags["arctic/attempt"]))
        # Its end alone: a run that had begun when its daemon died would go on for ever.
        kind = DagsterEventType.RUN_FAILURE if failed else DagsterEventType.RUN_SUCCESS
        event = DagsterEvent(
            event_type_value=kind.value,
            job_name=run.job_name,
            event_specific_data=JobFailureData(error=None) if failed else None,
        )
        self._instance.report_dagster_event(event, run_id=run.run_id)
