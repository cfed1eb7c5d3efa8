"""The runs that Dagster's daemon makes of what the sensor requests."""

import logging
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.sensor import execute_sensor_iteration

from arctic_orchestration_tests.consumers.dagster_assets import arrive

#: runs are executed where they are submitted
_AT_ONCE = {
    "run_coordinator": {
        "module": "dagster._core.run_coordinator",
        "class": "DefaultRunCoordinator",
    },
    "run_launcher": {
        "module": "dagster._core.launcher.sync_in_memory_run_launcher",
        "class": "SyncInMemoryRunLauncher",
    },
}
REPORT, SUMMARY = dg.AssetKey("report"), dg.AssetKey("summary")


def tick(instance: dg.DagsterInstance) -> None:
    """What the daemon does in one round."""
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name="arctic_orchestration_tests.consumers.lake_of_sensors"),
        location_name="here",
    )
    with WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget([origin])) as context:
        logger = logging.getLogger("dagster.daemon.SensorDaemon")
        errors = list(execute_sensor_iteration(context, logger, None, None))
    assert [error for error in errors if error is not None] == []


def materialized(instance: dg.DagsterInstance, run_id: str) -> set[dg.AssetKey | None]:
    """The assets of which a run has made the day."""
    found = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert {entry.get_dagster_event().partition for entry in found} == {"2026-01-01"}
    return {entry.get_dagster_event().asset_key for entry in found}


@pytest.mark.usefixtures("state")
def test_a_run_says_what_it_makes(
    backend: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its assets, their checks and its partition; what a person requests; or its job's name."""
    home = Path(dagster_instance(backend).root_directory)
    config = yaml.safe_load((home / "dagster.yaml").read_text())
    (home / "dagster.yaml").write_text(yaml.safe_dump({**config, **_AT_ONCE}))
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        arrive(instance, "days", "2026-01-01")
        tick(instance)
        runs = {run.tags["arctic/consumer"]: run for run in instance.get_runs()}
        assert set(runs) == {"all", "part", "job"}
        assert {run.tags["dagster/partition"] for run in runs.values()} == {"2026-01-01"}
        assert {name: run.asset_selection for name, run in runs.items()} == {
            "all": {REPORT, SUMMARY},
            "part": {SUMMARY},
            "job": None,
        }
        assert runs["all"].asset_check_selection == {
            dg.AssetCheckKey(REPORT, "is_whole"), dg.AssetCheckKey(SUMMARY, "is_short")
        }  # fmt: skip
        assert runs["job"].job_name == "named"
        assert {run.status for run in runs.values()} == {dg.DagsterRunStatus.SUCCESS}
        made = {name: materialized(instance, run.run_id) for name, run in runs.items()}
        assert made == {"all": {REPORT, SUMMARY}, "part": {SUMMARY}, "job": {REPORT}}
