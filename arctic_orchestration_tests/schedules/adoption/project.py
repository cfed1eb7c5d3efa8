"""A project on a real Dagster instance, whose daemon's passes and time are the test's."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.test_utils import create_run_for_test, freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from arctic_orchestration.dagster_internals import event_log_storage_of, runless_entry
from arctic_orchestration.schedules.dagster import dispatcher
from arctic_orchestration.schedules.dagster.adoption.session import Session
from arctic_orchestration.schedules.dagster.adoption.workspace import LoadedRepository
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.proofs.instant_launcher import begin_and_end

LOCATION = "lake"
START = datetime(2026, 3, 2, 10, 5, tzinfo=UTC)
_LOGGER = logging.getLogger("dagster.daemon")


@dataclass(kw_only=True)
class Project:
    """The project, at a moment that only the test moves."""

    instance: dg.DagsterInstance
    database: Database
    module: str
    patch: pytest.MonkeyPatch
    now: datetime = START
    iteration_times: dict[str, Any] = field(default_factory=dict)
    _opened: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        origin = InProcessCodeLocationOrigin(
            LoadableTargetOrigin(module_name=self.module), location_name=LOCATION
        )
        target = InProcessWorkspaceLoadTarget([origin])
        self.workspace = self._opened.enter_context(WorkspaceProcessContext(self.instance, target))
        self.location = self.workspace.create_request_context().get_code_location(LOCATION)
        (self.remote,) = self.location.get_repositories().values()
        self.patch.setattr(dispatcher, "utc_now", lambda: self.now)
        self.repository = LoadedRepository(
            origin=origin, repository=self._definitions().get_repository_def(), now=self.now
        )

    def _definitions(self) -> dg.Definitions:
        from importlib import import_module

        found = import_module(self.module).defs
        assert isinstance(found, dg.Definitions)
        return found

    @classmethod
    @contextmanager
    def opened(
        cls,
        instance: dg.DagsterInstance,
        url: str,
        module: str,
        patch: pytest.MonkeyPatch,
        now: datetime = START,
    ) -> "Iterator[Project]":
        """The project of a module, with a state database by its URL, for the block."""
        patch.setenv("ARCTIC_DATABASE_URL", url)
        patch.setenv("DAGSTER_HOME", instance.root_directory)
        with closing(Database(url)) as database:
            made = cls(instance=instance, database=database, module=module, patch=patch, now=now)
            with closing(made):
                yield made

    def close(self) -> None:
        self._opened.close()

    @contextmanager
    def at_now(self) -> Iterator[None]:
        with freeze_time(self.now):
            yield

    def advance(self, by: timedelta) -> None:
        self.now += by

    def start(self, *names: str) -> None:
        """A person starts schedules and sensors."""
        with self.at_now():
            for name in names:
                if self.remote.has_schedule(name):
                    self.instance.start_schedule(self.remote.get_schedule(name))
                else:
                    self.instance.start_sensor(self.remote.get_sensor(name))

    def daemon_pass(self, crashes: Mapping[str, Any] | None = None) -> None:
        """One iteration of Dagster's scheduler and of its sensor daemon, our dispatcher's too."""
        with self.at_now():
            flags: Any = dict(crashes or {})
            done = [
                *launch_scheduled_runs(
                    self.workspace,
                    _LOGGER,
                    self.now,
                    self.iteration_times,
                    debug_crash_flags=flags,
                ),
                *execute_sensor_iteration(
                    self.workspace, _LOGGER, None, None, debug_crash_flags=flags
                ),
            ]
        assert [error for error in done if error is not None] == []

    def restart_daemon(self) -> None:
        self.iteration_times.clear()

    def arrive(self, asset: str, partition: str | None = None) -> None:
        with self.at_now():
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(asset, partition=partition)
            )

    def succeed(self, job: str) -> str:
        """A run of a job of the project succeeds; returns its id."""
        remote = self.remote.get_full_job(job)
        run = create_run_for_test(
            self.instance, job_name=job, remote_job_origin=remote.get_remote_origin()
        )
        begin_and_end(self.instance, run)
        return str(run.run_id)

    @contextmanager
    def open_arrival(self, asset: str, partition: str) -> Iterator[None]:
        """An asset arrives in a transaction of Postgres that ends with the block."""
        storage: Any = event_log_storage_of(self.instance)
        entry = runless_entry(dg.AssetMaterialization(asset, partition=partition))
        row = storage._event_to_row(entry)
        with storage.index_transaction() as connection:
            connection.execute(SqlEventLogStorageTable.insert(), row)
            yield

    def status(self, name: str) -> str:
        """The status in Dagster's storage."""
        states = {state.name: state for state in self.instance.all_instigator_state()}
        return str(states[name].status.value)

    def session(self) -> Session:
        """What a command opens."""
        return Session(
            database=self.database,
            cluster="default",
            instance=self.instance,
            repositories=[self.repository],
            clock=lambda: self.now,
            actor=Actor(name="tester", cluster="default"),
        )

    def runs(self, job: str | None = None) -> list[dg.DagsterRun]:
        found = self.instance.get_runs(dg.RunsFilter(job_name=job))
        return sorted(found, key=lambda run: run.run_id)

    def owners(self, job: str) -> Counter[str]:
        """Who requested the runs of a job."""
        return Counter(
            "ours" if "arctic/schedule" in run.tags else "Dagster" for run in self.runs(job)
        )
