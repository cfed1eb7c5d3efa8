"""A run queue as Dagster's daemon works it: real storage, real workspace, the daemon in process."""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.definitions.selector import JobSubsetSelector
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.storage.event_log.schema import (
    ConcurrencyLimitsTable,
    ConcurrencySlotsTable,
    PendingStepsTable,
)
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import KeyValueStoreTable
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from arctic_orchestration.clock import utc_now
from arctic_orchestration_tests.run_queue.coordinator.launching import RecordingRunLauncher

#: the code locations of ``lake_of_queue.py``
LOCATIONS = ("lake", "harbour")
STOCK = {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"}
OURS = {"module": "arctic_orchestration.coordinator", "class": "ArcticRunCoordinator"}
COORDINATORS = ("stock", "ours", "ours with rules")

_EVENTS = {
    Status.STARTED: DagsterEventType.RUN_START,
    Status.SUCCESS: DagsterEventType.RUN_SUCCESS,
    Status.FAILURE: DagsterEventType.RUN_FAILURE,
    Status.CANCELING: DagsterEventType.RUN_CANCELING,
    Status.CANCELED: DagsterEventType.RUN_CANCELED,
}


def rules_of_others() -> dict[str, Any]:
    """Rules of each kind but queues, which hold what they match and match no run of the tests."""
    match = {"job": "never_there"}
    now = utc_now()
    opens, closes = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (6, 7))
    return {
        "groups": {
            "nobody": {"limit": 0, "match": match},
            "one_each": {"limit_per_program": 1, "match": match},
        },
        "windows": {"closed": {"start": opens, "end": closes, "timezone": "UTC", "match": match}},
        "rates": {"rare": {"limit": 1, "per": "1h", "match": match}},
        "intervals": {"calm": {"duration": "1h", "match": match}},
    }


def coordinator_of(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The section ``run_coordinator`` of a ``dagster.yaml``, for one of ``COORDINATORS``."""
    if kind == "stock":
        return {**STOCK, "config": dict(config)}
    rules = rules_of_others() if kind == "ours with rules" else {}
    return {**OURS, "config": {**rules, **config}}


@dataclass
class RunQueue:
    """One Dagster instance, its workspace, its queue and the daemon that works it."""

    instance: DagsterInstance
    context: WorkspaceProcessContext
    daemon: QueuedRunCoordinatorDaemon

    @property
    def launcher(self) -> RecordingRunLauncher:
        """What launches the runs, and can be made to fail."""
        launcher = self.instance.run_launcher
        assert isinstance(launcher, RecordingRunLauncher)
        return launcher

    @property
    def coordinator(self) -> Any:
        """The run coordinator that ``dagster.yaml`` names."""
        return self.instance.run_coordinator

    @property
    def launched(self) -> list[str]:
        """The ids of all runs that were launched, in this order."""
        return list(self.launcher.launched)

    def submit(
        self,
        job: str = "load",
        *,
        tags: Mapping[str, str] | None = None,
        status: Status = Status.QUEUED,
        assets: Collection[str] = (),
        location: str = "lake",
        run_id: str | None = None,
    ) -> DagsterRun:
        """Makes a run of a job, as Dagster's webserver does, and submits it.

        With another status than QUEUED it is only made, with this status, as if something else
        than the queue had launched it. ``assets`` are the ones of the job that it makes, as
        ``a/b``. The job's own tags are added. Answers with the run as it is stored then.
        """
        run_id = run_id or make_new_run_id()
        _make_log_of_run(self.instance, run_id)
        workspace = self.context.create_request_context()
        code_location = workspace.get_code_location(location)
        remote_job = code_location.get_job(
            JobSubsetSelector(
                location_name=location,
                repository_name="__repository__",
                job_name=job,
                op_selection=None,
                asset_selection=[AssetKey(name.split("/")) for name in assets] or None,
            )
        )
        plan = code_location.get_execution_plan(
            remote_job, {}, step_keys_to_execute=None, known_state=None, instance=self.instance
        )
        run = self.instance.create_run(
            job_name=job,
            run_id=run_id,
            run_config={},
            status=Status.NOT_STARTED if status is Status.QUEUED else status,
            tags={**remote_job.run_tags, **(tags or {})},
            root_run_id=None,
            parent_run_id=None,
            step_keys_to_execute=None,
            execution_plan_snapshot=plan.execution_plan_snapshot,
            job_snapshot=remote_job.job_snapshot,
            parent_job_snapshot=remote_job.parent_job_snapshot,
            asset_selection=frozenset(AssetKey(name.split("/")) for name in assets) or None,
            asset_check_selection=None,
            resolved_op_selection=None,
            op_selection=None,
            remote_job_origin=remote_job.get_remote_origin(),
            job_code_origin=remote_job.get_python_origin(),
            asset_graph=workspace.asset_graph,
        )
        if status is Status.QUEUED:
            self.instance.submit_run(run.run_id, workspace)
        return self.run(run)

    def iterate(self, *, at: float | None = None) -> list[str]:
        """One pass of the daemon: the ids of the runs that it launched, in this order.

        ``at`` (seconds since 1970) is the moment by which the daemon pauses code locations.
        """
        before = len(self.launcher.launched)
        for _ in self.daemon.run_iteration(self.context, fixed_iteration_time=at):
            pass
        return self.launcher.launched[before:]

    def run(self, run: DagsterRun | str) -> DagsterRun:
        """A run, by itself or its id, as it is stored now."""
        stored = self.instance.get_run_by_id(run if isinstance(run, str) else run.run_id)
        assert stored is not None
        return stored

    def status(self, run: DagsterRun | str) -> Status:
        """The status of a run, as it is stored now."""
        return self.run(run).status

    def report(self, run: DagsterRun | str, status: Status) -> None:
        """A run begins or ends, by the event that its own process would report."""
        stored = self.run(run)
        event = DagsterEvent(event_type_value=_EVENTS[status].value, job_name=stored.job_name)
        self.instance.report_dagster_event(event, run_id=stored.run_id)

    def events(self, run: DagsterRun | str, kind: DagsterEventType) -> list[str]:
        """The messages of a run's events of a kind."""
        run_id = run if isinstance(run, str) else run.run_id
        records = self.instance.get_records_for_run(run_id, of_type=kind).records
        return [record.event_log_entry.user_message or "" for record in records]


def _make_log_of_run(instance: DagsterInstance, run_id: str) -> None:
    """On SQLite each run's log is a file; a copy of an empty one is much sooner there."""
    storage = instance.event_log_storage
    if isinstance(storage, SqliteEventLogStorage):
        log = Path(storage.path_for_shard(run_id))
        empty_log = log.parent.parent / "empty_log"
        if not empty_log.exists():
            with storage.run_connection("new"):
                pass
            Path(storage.path_for_shard("new")).rename(empty_log)
        shutil.copy(empty_log, log)


def empty(instance: DagsterInstance) -> None:
    """Deletes all that an instance has stored."""
    instance.wipe()
    instance.wipe_all_schedules()
    # What Dagster's own wiping leaves there.
    runs: Any = instance.run_storage
    with runs.connect() as connection:
        connection.execute(KeyValueStoreTable.delete())
    events: Any = instance.event_log_storage
    with events.index_connection() as connection:
        for table in (ConcurrencySlotsTable, ConcurrencyLimitsTable, PendingStepsTable):
            connection.execute(table.delete())


def workspace() -> InProcessWorkspaceLoadTarget:
    module = "arctic_orchestration_tests.run_queue.coordinator.lake_of_queue"
    return InProcessWorkspaceLoadTarget(
        [
            InProcessCodeLocationOrigin(
                LoadableTargetOrigin(module_name=module, attribute=location),
                location_name=location,
            )
            for location in LOCATIONS
        ]
    )


#: For what no test of upstream states: without rules, our class hands everything to the stock one.
#: Dagster 1.12 suspends no run.
SUSPENDED = [status for status in Status if status.name == "SUSPENDED"]

beyond_upstream = pytest.mark.parametrize(
    "coordinator", ["stock", "ours with rules"], indirect=True
)


#: how a daemon goes through its queue: configuration and page size
LOOP: Mapping[str, Any] = {"page_size": 25}
THREADS: Mapping[str, Any] = {"dequeue_use_threads": True, "page_size": 1}
