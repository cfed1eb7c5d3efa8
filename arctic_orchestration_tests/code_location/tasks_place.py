"""An instance and a state database with the tasks of a location, on each pair of storages."""

from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData

from arctic_orchestration.freshness import ownership, submissions
from arctic_orchestration.freshness.dagster.submission_history import history_key
from arctic_orchestration.freshness.ownership import TaskRow
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.code_location.tasks_of_tests import defs

SENSOR = "arctic_tasks"
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@dataclass
class Tasks:
    """An instance and a state database, as the daemon and a code server would share them."""

    instance: dg.DagsterInstance
    database: Database

    def __post_init__(self) -> None:
        self.repository = defs.get_repository_def()

    def declare(self, definitions: dg.Definitions) -> None:
        """The location has other tasks from now on."""
        self.repository = definitions.get_repository_def()
        self.tick()

    def tick(self) -> SensorExecutionData:
        """The sensor's tick, as a code server evaluates it."""
        with dg.SensorEvaluationContext(
            instance_ref=self.instance.get_ref(),
            repository_name=self.repository.name,
            repository_def=self.repository,
            sensor_name=SENSOR,
        ) as context:
            return self.repository.get_sensor_def(SENSOR).evaluate_tick(context)

    def run(self, request: dg.RunRequest, **tags: str) -> Any:
        """The run that the daemon makes of a request, in this process."""
        job = self.repository.get_job(str(request.job_name))
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=request.asset_selection,
            partition_key=request.partition_key,
            tags={**request.tags, "dagster/run_key": str(request.run_key), **tags},
            raise_on_error=False,
        )

    def run_manually(self, asset: dg.AssetKey, partition: str | None = None, **tags: str) -> Any:
        """A run that a person starts in Dagster."""
        job = self.repository.get_job("__ASSET_JOB")
        return job.execute_in_process(
            instance=self.instance, asset_selection=[asset], partition_key=partition,
            tags=tags, raise_on_error=False,
        )  # fmt: skip

    def tags_of(self, ran: dg.ExecuteInProcessResult) -> dict[str, str]:
        """The tags that a run has at its end."""
        run = self.instance.get_run_by_id(ran.run_id)
        assert run is not None
        return dict(run.tags)

    def submit(self, task: str, **how: Any) -> Submission:
        with self.database.begin() as tx:
            (made,) = submissions.submit(tx, [task], cluster="default", by="ann", **how)
        return made

    def again(self, submission: Submission) -> Submission:
        with self.database.read() as tx:
            found = submissions.by_id(tx, submission.id)
        assert found is not None
        return found

    def row(self, task: str) -> TaskRow:
        with self.database.read() as tx:
            return ownership.row_of(tx, task)

    @staticmethod
    def failure_of(ran: dg.ExecuteInProcessResult) -> str:
        """What the one step said that failed."""
        (failure,) = ran.get_step_failure_events()
        data = failure.step_failure_data.user_failure_data
        assert data is not None
        return str(data.description)

    def run_all(self) -> list[str]:
        """Ticks and runs until nothing is left to run; returns the tasks in their order."""
        made: list[str] = []
        while requests := self.tick().run_requests:
            for request in requests:
                assert self.run(request).success
                made.append(request.tags["arctic/task"])
        return made


@pytest.fixture
def tasks(storages: tuple[dg.DagsterInstance, Database]) -> Tasks:
    """Both storages, with the tasks of the location registered."""
    instance, database = storages
    made = Tasks(instance=instance, database=database)
    made.tick()
    return made


def observed(tasks: Tasks, task: str) -> list[dict[str, Any]]:
    """What stands on the history of a task, the oldest first."""
    records = tasks.instance.fetch_observations(history_key(task), limit=50).records
    found = []
    for record in reversed(records):
        assert record.asset_observation is not None
        assert not record.event_log_entry.run_id, "it was reported without a run"
        values = record.asset_observation.metadata.items()
        found.append({name: value.value for name, value in values})
    return found
