"""A run queue with everything that belongs to it, and what a test does with it."""

import json
import urllib.request
from collections.abc import Iterable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import yaml
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.utils import make_new_run_id
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

from arctic_orchestration import postgres_connections
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.coordinator.jobs_of_proofs import end_marker
from arctic_orchestration_tests.proofs.coordinator.processes import (
    CODE_SERVER,
    DAEMON,
    LOCATION,
    WEBSERVER,
    QueueProcesses,
)
from arctic_orchestration_tests.proofs.coordinator.run_history import Held, places
from arctic_orchestration_tests.proofs.coordinator.shifted_time import ShiftedTime
from arctic_orchestration_tests.proofs.coordinator.timed_launcher import SECONDS

#: seconds between two passes over the queue where they are not quick; the least for Dagster
PASS = 1
OURS = {"module": "arctic_orchestration.coordinator", "class": "ArcticRunCoordinator"}
STOCK = {"module": "dagster", "class": "QueuedRunCoordinator"}
TOLD = {
    "module": "arctic_orchestration_tests.proofs.coordinator.timed_launcher",
    "class": "TimedRunLauncher",
}
REAL = {"module": "dagster", "class": "DefaultRunLauncher"}
REPOSITORY = "__repository__"
_SECONDS = 60
#: what Dagster's daemon logs in each pass that finds no free slot
_FULL = "won't launch more"
_LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""


class RunQueue:
    """An instance under a run coordinator, its processes, and its runs."""

    def __init__(
        self,
        home: Path,
        database_url: str,
        time: ShiftedTime,
        offset: Path,
        *,
        coordinator: Mapping[str, str] = OURS,
        launcher: Mapping[str, str] = TOLD,
        quick: bool = True,
        config: Mapping[str, Any],
    ) -> None:
        """Writes both of Dagster's files into ``home``, and starts the code server."""
        file = home / "dagster.yaml"
        dagster = yaml.safe_load(file.read_text())
        dagster["run_launcher"] = dict(launcher)
        dagster["run_coordinator"] = {
            **coordinator,
            "config": {"dequeue_interval_seconds": PASS, **config},
        }
        file.write_text(yaml.safe_dump(dagster))
        self._executes = launcher == REAL
        self.time = time
        self.database = Database(database_url)
        self.database.upgrade()
        self._daemon: BaseProcess | None = None
        self.processes = QueueProcesses(home, database_url, offset, quick=quick)
        self.processes.start(CODE_SERVER)
        self.instance = DagsterInstance.from_config(str(home))
        postgres_connections.reuse_in_instance(self.instance)
        target = WorkspaceFileTarget([str(home / "workspace.yaml")])
        self._workspace = WorkspaceProcessContext(self.instance, target)

    def start_daemon(self) -> None:
        """Starts the daemon."""
        self._daemon = self.processes.start(DAEMON)

    def kill_daemon(self) -> None:
        """Kills the daemon where it stands."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.join()

    def end(self) -> None:
        """Kills the processes."""
        self.processes.end()
        self._workspace.__exit__(None, None, None)
        self.instance.dispose()
        self.database.close()

    def create(
        self,
        job: str,
        tags: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
        status: DagsterRunStatus = DagsterRunStatus.NOT_STARTED,
    ) -> str:
        """A run of a job with the job's tags, which is not submitted; its id."""
        workspace = self._workspace.create_request_context()
        location = workspace.get_code_location(LOCATION)
        remote = location.get_repository(REPOSITORY).get_full_job(job)
        marker = {} if seconds is None else {SECONDS: f"{seconds:g}"}
        run_id = make_new_run_id()
        self.instance.create_run(
            job_name=job,
            run_id=run_id,
            run_config={},
            status=status,
            tags={**remote.tags, **marker, **(tags or {})},
            root_run_id=None,
            parent_run_id=None,
            step_keys_to_execute=None,
            execution_plan_snapshot=None,
            job_snapshot=remote.job_snapshot,
            parent_job_snapshot=remote.parent_job_snapshot,
            asset_selection=None,
            asset_check_selection=None,
            resolved_op_selection=None,
            op_selection=None,
            remote_job_origin=remote.get_remote_origin(),
            job_code_origin=remote.get_python_origin(),
            asset_graph=workspace.asset_graph,
        )
        return run_id

    def submit(self, job: str, tags: Mapping[str, str] | None = None, **named: Any) -> str:
        """Submits a run of a job, as sensors and schedules do; its id."""
        run_id = self.create(job, tags, **named)
        self.instance.submit_run(run_id, self._workspace.create_request_context())
        return run_id

    def launch_outside(self, job: str, tags: Mapping[str, str] | None = None) -> str:
        """Launches a run of a job past the queue, from this process; its id."""
        run_id = self.create(job, tags)
        self.instance.launch_run(run_id, self._workspace.create_request_context())
        return run_id

    def start_webserver(self) -> None:
        """Starts ``dagster-webserver``, and waits until it answers."""
        self.processes.start(WEBSERVER)

    def launch_in_ui(self, job: str, tags: Mapping[str, str] | None = None) -> str:
        """Launches a run of a job with the mutation that the UI's button sends; its id."""
        params = {
            "mode": "default",
            "runConfigData": "{}",
            "selector": {
                "repositoryLocationName": LOCATION,
                "repositoryName": REPOSITORY,
                "jobName": job,
            },
            "executionMetadata": {
                "tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]
            },
        }
        body = json.dumps({"query": _LAUNCH, "variables": {"params": params}}).encode()
        request = urllib.request.Request(
            f"{self.processes.web_address}/graphql",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            launched = json.load(answer)["data"]["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def run(self, run_id: str) -> DagsterRun:
        """The run as it is now."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run

    def status(self, run_id: str) -> DagsterRunStatus:
        """What has become of a run."""
        return self.run(run_id).status

    def is_queued(self, run_id: str) -> bool:
        """Whether a run still waits."""
        return self.status(run_id) is DagsterRunStatus.QUEUED

    def begun(self, runs: Iterable[str]) -> list[str]:
        """Those of the runs that have left the queue, in the order in which they did."""
        return [held.run_id for held in self.places(runs)]

    def places(self, runs: Iterable[str]) -> list[Held]:
        """The places that the runs hold or held; see ``run_history``."""
        return places(self.instance, runs)

    def count(self, status: DagsterRunStatus, job: str | None = None) -> int:
        """How many runs are in a status."""
        return self.instance.get_runs_count(RunsFilter(job_name=job, statuses=[status]))

    def finish(self, run_id: str, kind: DagsterEventType = DagsterEventType.RUN_SUCCESS) -> None:
        """A run in progress ends; one that a real process executes ends well."""
        if self._executes:
            end_marker(self.instance.root_directory, run_id).touch()
            return
        event = DagsterEvent(event_type_value=kind.value, job_name=self.run(run_id).job_name)
        self.instance.report_dagster_event(event, run_id=run_id)

    def wait_until_begun(self, run_id: str, seconds: float = _SECONDS) -> None:
        """Returns when a run is in progress, or was."""
        waiting = (
            DagsterRunStatus.NOT_STARTED,
            DagsterRunStatus.QUEUED,
            DagsterRunStatus.STARTING,
        )
        self.wait(lambda: self.status(run_id) not in waiting, f"run {run_id} begins", seconds)

    def let_pass_while_full(self) -> None:
        """Returns when a whole pass that found all slots in use has gone by from here on."""
        before = self.processes.daemon_log().count(_FULL)
        # The first of two may have begun before.
        self.wait(lambda: self.processes.daemon_log().count(_FULL) >= before + 2, "two full passes")

    def wait(self, condition: Any, what: str, seconds: float = _SECONDS) -> None:
        """``until``, which on failing shows what the processes have written."""
        try:
            until(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.processes.logs()}") from None

    def let_pass(self, passes: int = 2) -> None:
        """Returns when the daemon has looked at the whole queue so often from here on.

        Each time a run that no rule holds is submitted, and has begun.
        """
        for _ in range(passes):
            self.wait_until_begun(self.submit("plain", seconds=0))
