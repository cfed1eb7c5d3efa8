"""A Dagster instance with ``ArcticRunLauncher``, and a code server of a file that tests write."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.remote_representation.code_location import CodeLocation
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget

from arctic_orchestration import postgres_connections
from arctic_orchestration.run_launcher import messages
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.run_launcher.forked_hosts import (
    forks_in_place,
    interpreters_in_place,
)
from arctic_orchestration_tests.templates import write_dagster_yaml

LOCATION = "hosted"


class HostedPlace:
    """One instance, one code location, and the runs that are launched there."""

    def __init__(
        self,
        folder: Path,
        code: str,
        config: Mapping[str, Any],
        database: tuple[PostgresServer, str] | None = None,
    ) -> None:
        self.folder = folder
        self.code = folder / "hosted_lake.py"
        self.code.write_text(code)
        home = folder / "home"
        home.mkdir()
        launcher = {
            "module": "arctic_orchestration.run_launcher",
            "class": "ArcticRunLauncher",
            "config": dict(config),
        }
        server, name = database or (None, "")
        write_dagster_yaml(home, server=server, database_name=name)
        file = home / "dagster.yaml"
        file.write_text(
            yaml.safe_dump({**yaml.safe_load(file.read_text()), "run_launcher": launcher})
        )
        self.home = home
        self.instance = dg.DagsterInstance.from_config(str(home))
        postgres_connections.reuse_in_instance(self.instance)
        self.workspace = self._load()

    def _load(self) -> WorkspaceProcessContext:
        target = PythonFileTarget(str(self.code), None, str(self.folder), LOCATION)
        return WorkspaceProcessContext(self.instance, target).__enter__()

    @property
    def location(self) -> CodeLocation:
        return self.workspace.create_request_context().get_code_location(LOCATION)

    def reload(self) -> None:
        """Loads the code location again, as the button in Dagster's UI does."""
        self.workspace.reload_code_location(LOCATION)

    def restart(self) -> None:
        """A daemon that ends takes its code server along; the next one starts another."""
        self.workspace.__exit__(None, None, None)
        self.workspace = self._load()

    def create(
        self, job: str = "work", tags: Mapping[str, str] | None = None, **config: Any
    ) -> str:
        """A run that was not launched."""
        repository = next(iter(self.location.get_repositories().values()))
        remote = repository.get_full_job(job)
        run_config = {"ops": {"step": {"config": config}}} if config else {}
        plan = self.location.get_execution_plan(
            remote, run_config, step_keys_to_execute=None, known_state=None
        )
        return self.instance.create_run(
            job_name=job, run_id=None, run_config=run_config, resolved_op_selection=None,
            step_keys_to_execute=None, status=None, tags=dict(tags or {}), root_run_id=None,
            parent_run_id=None, job_snapshot=remote.job_snapshot,
            execution_plan_snapshot=plan.execution_plan_snapshot, parent_job_snapshot=None,
            remote_job_origin=remote.get_remote_origin(),
            job_code_origin=remote.get_python_origin(),
            asset_selection=None, op_selection=None, asset_check_selection=None,
            asset_graph=repository.asset_graph,
        ).run_id  # fmt: skip

    def launch(self, run_id: str) -> str:
        """Launches a run, and returns its id."""
        self.instance.launch_run(run_id, self.workspace.create_request_context())
        return run_id

    def run(self, job: str = "work", **config: Any) -> dg.DagsterRun:
        """Launches a run and waits for its end."""
        return self.ended(self.launch(self.create(job, **config)))

    def ended(self, run_id: str) -> dg.DagsterRun:
        until(lambda: self.status(run_id) in _ENDED, f"the end of run {run_id}")
        found = self.instance.get_run_by_id(run_id)
        assert found is not None
        return found

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run_id)
        assert found is not None
        return found.status

    def note_of(self, run_id: str) -> dict[str, Any]:
        """What the op of the run wrote down."""
        file = self.folder / run_id
        return dict(yaml.safe_load(file.read_text())) if file.exists() else {}

    def messages(self, run_id: str) -> str:
        return "\n".join(
            entry.message or (entry.dagster_event and entry.dagster_event.message) or ""
            for entry in self.instance.all_logs(run_id)
        )

    def hosts(self) -> list[dict[str, Any]]:
        """The hosts that live."""
        return [
            answer
            for answer in messages.call_all({"do": "status"}, 10)
            # A host that is just ending answers so.
            if answer.get("location") == LOCATION
        ]

    def close(self) -> None:
        for _ in messages.call_all({"do": "retire"}, 10):
            pass
        self.workspace.__exit__(None, None, None)
        self.instance.dispose()


_ENDED = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)


#: makes a place whose hosts load some code, with a configuration of the launcher
Make = Callable[..., HostedPlace]


@contextmanager
def hosted_place(
    folder: Path,
    code: str,
    database: tuple[PostgresServer, str] | None = None,
    *,
    interpreters: bool = False,
    **config: Any,
) -> Iterator[HostedPlace]:
    """A place whose hosts have a folder of their own for their sockets, and end with it.

    Args:
        interpreters: its code servers and hosts are started as they are outside of tests.
    """
    # The path of a socket is short; that of a test's folder is not.
    sockets = tempfile.mkdtemp(prefix="hosts-")
    before = os.environ.get("ARCTIC_RUN_HOSTS")
    os.environ["ARCTIC_RUN_HOSTS"] = sockets
    with interpreters_in_place() if interpreters else forks_in_place():
        place = HostedPlace(folder, code, config, database)
        try:
            yield place
        finally:
            place.close()
            shutil.rmtree(sockets, ignore_errors=True)
            if before is None:
                del os.environ["ARCTIC_RUN_HOSTS"]
            else:
                os.environ["ARCTIC_RUN_HOSTS"] = before
