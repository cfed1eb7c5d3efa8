"""What run launchers of tests share: no configuration, no process, and no way to end a run."""

from collections.abc import Mapping
from typing import Any, Self

from dagster import DagsterEvent, DagsterEventType
from dagster._core.launcher import RunLauncher
from dagster._serdes import ConfigurableClass, ConfigurableClassData


class PlainRunLauncher(RunLauncher, ConfigurableClass):
    """A subclass defines ``launch_run``."""

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

    def terminate(self, run_id: str) -> bool:
        return False

    def report(self, kind: DagsterEventType, run_id: str, job: str) -> None:
        """Reports an event of a run to the instance."""
        event = DagsterEvent(event_type_value=kind.value, job_name=job)
        self._instance.report_dagster_event(event, run_id=run_id)
