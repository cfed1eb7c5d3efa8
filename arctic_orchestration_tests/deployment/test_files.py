"""The files of ``deploy/`` agree with each other, with the commands and with the documentation."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from click.testing import CliRunner
from dagster._cli import create_dagster_cli

from arctic_orchestration.cli.main import app
from arctic_orchestration.coordinator import ArcticRunCoordinator
from arctic_orchestration.run_launcher import ArcticRunLauncher
from arctic_orchestration.run_launcher.configuration import LauncherRules
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration_tests.deployment.topology import DEPLOY, compose

ROOT = DEPLOY.parent
SERVICES: dict[str, dict[str, Any]] = compose()["services"]
COMMANDS: dict[str, Callable[[], Any]] = {
    "arctic": lambda: typer.main.get_command(app),
    "dagster": create_dagster_cli,
}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize("name", [name for name in SERVICES if "command" in SERVICES[name]])
def test_the_command_of_each_service_is_one(name: str) -> None:
    program, *words = SERVICES[name]["command"]
    # The file is in the image.
    words = [
        word.replace("/opt/dagster/workspace.yaml", str(DEPLOY / "workspace.yaml"))
        for word in words
    ]
    # Help is shown after all words were parsed.
    words.append("--help")
    if program in COMMANDS:
        result = CliRunner().invoke(COMMANDS[program](), words)
        assert result.exit_code == 0, result.output
    elif program == "dagster-daemon":
        # A process that imports the daemon is taken for it.
        done = subprocess.run([Path(sys.executable).with_name(program), *words], text=True)
        assert done.returncode == 0
    else:
        assert program == "spark-class"


def test_services_name_what_there_is() -> None:
    document = compose()
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        for key in ("pid", "network_mode"):
            assert service.get(key, "service:database").removeprefix("service:") in SERVICES, name
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        assert volumes <= set(document["volumes"]), name
        if "build" in service:
            assert service["build"]["target"] in targets, name
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        # Dagster's UI and Spark's page have no access control.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_the_workspace_names_the_code_servers() -> None:
    workspace = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())
    servers = {
        entry["grpc_server"]["host"]: entry["grpc_server"] for entry in workspace["load_from"]
    }
    listening = {name: service for name, service in SERVICES.items() if name.startswith("code-")}
    assert set(servers) == set(listening)
    for name, service in listening.items():
        words = service["command"]
        assert words[words.index("--port") + 1] == str(servers[name]["port"])
        assert words[words.index("--location-name") + 1] == servers[name]["location_name"]


def test_what_the_image_copies_is_there() -> None:
    """Without what ``.dockerignore`` leaves out."""
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE)
    files = [file for line in copied for file in line.split()]
    assert "deploy/dagster.yaml" in files
    assert all((ROOT / file).exists() for file in files)


def test_the_variables_are_documented() -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text()
    for name in SERVICES["daemon"]["environment"]:
        if name.startswith("ARCTIC_"):
            assert f"`{name}`" in reference


def test_the_values_of_the_chart_configure_both_classes() -> None:
    values = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text())
    queue = values["dagsterDaemon"]["runCoordinator"]["config"]["customRunCoordinator"]
    assert getattr(import_module(queue["module"]), queue["class"]) is ArcticRunCoordinator
    Rules.parse(queue["config"])
    launcher = values["runLauncher"]["config"]["customRunLauncher"]
    assert getattr(import_module(launcher["module"]), launcher["class"]) is ArcticRunLauncher
    assert LauncherRules.of_config(launcher["config"]).wrapped.class_ == "K8sRunLauncher"
