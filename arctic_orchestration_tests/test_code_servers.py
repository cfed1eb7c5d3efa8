"""A code server shares what the instances of its ticks need, and keeps nothing of them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from arctic_orchestration import Arctic
from arctic_orchestration.errors import InvalidInput


def printed(code: str, *arguments: str) -> list[str]:
    """The words that a process of its own prints: this one is prepared already."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("module", ["dagster._core.storage.event_log", "dagster_postgres.storage"])
def test_a_code_server_imports_postgres_where_it_is_used_alone(module: str) -> None:
    """Importing it takes half a second; a driver that cannot be imported is left to Dagster."""
    code = f"""
import sys
sys.modules["psycopg2"] = None
from arctic_orchestration import code_servers
before = "dagster_postgres" in sys.modules
code_servers.prepare("module_name: {module}")
print(before, any(name.startswith("dagster_postgres") for name in sys.modules))
"""
    assert printed(code) == ["False", str(module.startswith("dagster_postgres"))]


INSTANCES = """
import gc, sys
import dagster as dg
from arctic_orchestration import code_servers

if sys.argv[2] == "prepared":
    code_servers.prepare("module_name: dagster._core.storage.event_log")
reference = dg.DagsterInstance.local_temp(sys.argv[1]).get_ref()

def kept_after(instances):
    for _ in range(instances):
        with dg.DagsterInstance.from_ref(reference) as instance:
            instance.get_runs(limit=1)
    gc.collect()
    return len(gc.get_objects())

kept_after(10)
before = kept_after(1)
print(kept_after(20) - before)
"""


@pytest.mark.parametrize("is_prepared", [True, False])
def test_instances_of_ticks_leave_nothing(is_prepared: bool, tmp_path: Path) -> None:
    """Without it, as the control: alembic keeps objects for each until the process ends."""
    (grown,) = printed(INSTANCES, str(tmp_path), "prepared" if is_prepared else "")
    assert (int(grown) < 20) is is_prepared


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ({"class": "ArcticLauncher"}, "run_launcher.class: got 'ArcticLauncher'"),
        (
            {"class": "ArcticRunLauncher", "config": {"hosts": 0}},
            "config.hosts: got 0",
        ),
        ({"class": "ArcticRunLauncher", "config": {"host": 3}}, "run_launcher.config.host: got 3"),
    ],
)
def test_no_run_is_requested_that_the_launcher_could_not_launch(
    launcher: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Dagster makes the launcher when it launches: each run failed, and then its job."""
    module = "arctic_orchestration.run_launcher"
    (tmp_path / "dagster.yaml").write_text(
        yaml.safe_dump({"run_launcher": {"module": module, **launcher}})
    )
    definitions = Arctic(schedules=[]).definitions()
    (dispatcher,) = [one for one in definitions.sensors or () if one.name == "arctic_dispatcher"]
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        repository = definitions.get_repository_def()
        context = dg.build_sensor_context(instance=instance, repository_def=repository)
        with pytest.raises(InvalidInput) as refused:
            dispatcher.evaluate_tick(context)
    assert message in str(refused.value)
