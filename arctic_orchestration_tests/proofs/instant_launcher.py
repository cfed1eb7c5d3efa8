"""A run launcher that starts no process: a run begins and succeeds where it is launched."""

from contextlib import suppress

from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster._core.launcher import LaunchRunContext

from arctic_orchestration.run_launcher.launcher import of_run_worker
from arctic_orchestration_tests.plain_launcher import PlainRunLauncher


def begin_and_end(instance: DagsterInstance, run: DagsterRun) -> None:
    """Reports the two events of the run."""
    for kind in (DagsterEventType.RUN_START, DagsterEventType.RUN_SUCCESS):
        event = DagsterEvent(event_type_value=kind.value, job_name=run.job_name)
        instance.report_dagster_event(event, run_id=run.run_id)


class InstantRunLauncher(PlainRunLauncher):
    """Reports the events of a run that has nothing to do."""

    def launch_run(self, context: LaunchRunContext) -> None:
        begin_and_end(self._instance, context.dagster_run)


class ClaimingRunLauncher(InstantRunLauncher):
    """Lets runs begin as their processes do that ``ArcticRunLauncher`` starts: with a claim."""

    def launch_run(self, context: LaunchRunContext) -> None:
        reference = of_run_worker(self._instance.get_ref())
        with DagsterInstance.from_ref(reference) as worker, suppress(SystemExit):
            begin_and_end(worker, context.dagster_run)
