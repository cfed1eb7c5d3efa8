"""A run launcher that starts no process: a run begins and succeeds where it is launched."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster._core.launcher import LaunchRunContext, RunLauncher
from dagster._serdes import ConfigurableClass, ConfigurableClassData

from arctic_orchestration.run_launcher.launcher import of_run_worker


def begin_and_end(instance: DagsterInstance, run: DagsterRun) -> None:
    """Reports the two events of the run."""
    for kind in (DagsterEventType.RUN_START, DagsterEventType.RUN_SUCCESS):
        event = DagsterEvent(event_type_value=kind.value, job_name=run.job_name)
        instance.report_dagster_event(event, run_id=run.run_id)


class InstantRunLauncher(RunLauncher, ConfigurableClass):
    """Reports the events of a run that has nothing to do."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> Self:
        return cls(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        begin_and_end(self._instance, context.dagster_run)

    def terminate(self, run_id: str) -> bool:
        return False


class ClaimingRunLauncher(InstantRunLauncher):
    """Lets runs begin as their processes do that ``ArcticRunLauncher`` starts: with a claim."""

    def launch_run(self, context: LaunchRunContext) -> None:
        reference = of_run_worker(self._instance.get_ref())
        with DagsterInstance.from_ref(reference) as worker, suppress(SystemExit):
            begin_and_end(worker, context.dagster_run)
