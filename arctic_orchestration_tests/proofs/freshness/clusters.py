"""Clusters as they are: Dagster instances with a storage, a daemon and a code server of their own.

Their runs are processes that the code server starts, as in a real one. All of them share the state
database.
"""

import multiprocessing
import os
import socket
from multiprocessing.process import BaseProcess
from pathlib import Path

import dagster as dg
import yaml

import arctic_orchestration_tests
from arctic_orchestration_tests.conftest import write_dagster_yaml
from arctic_orchestration_tests.proofs.dagster_processes import (
    end_with_the_parent,
    free_port,
    until,
)

_HERE = "arctic_orchestration_tests.proofs"
_ROOT = str(Path(arctic_orchestration_tests.__file__).parents[1])
_START_SECONDS = 120


class Cluster:
    """One cluster; :meth:`end` kills its processes."""

    def __init__(self, name: str, home: Path, database_url: str) -> None:
        home.mkdir()
        self._home, self._port = home, free_port()
        write_dagster_yaml(home)
        file = home / "dagster.yaml"
        config = yaml.safe_load(file.read_text())
        config["run_coordinator"] = {
            "module": "dagster",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        }
        file.write_text(yaml.safe_dump(config))
        server = {"host": "127.0.0.1", "port": self._port, "location_name": "here"}
        (home / "workspace.yaml").write_text(
            yaml.safe_dump({"load_from": [{"grpc_server": server}]})
        )
        self._environment = {
            "DAGSTER_HOME": str(home),
            "ARCTIC_DATABASE_URL": database_url,
            "ARCTIC_CLUSTER": name,
            # Processes of runs find the same code as this one, wherever they begin.
            "PYTHONPATH": os.pathsep.join([_ROOT, os.environ.get("PYTHONPATH", "")]),
        }
        self._started: list[BaseProcess] = []

    def start(self) -> None:
        """Starts the code server, and the daemon once that listens."""
        self._start("code_server")
        until(self._listens, _START_SECONDS, "the code server listens")
        self._start("daemon")

    def log(self) -> str:
        """What its processes have written last, for a test that fails."""
        return "\n".join(
            file.read_text(errors="replace")[-3000:] for file in self._home.glob("*.log")
        )

    def runs(self) -> list[dg.DagsterRun]:
        """All runs of its instance."""
        with dg.DagsterInstance.from_config(str(self._home)) as instance:
            return list(instance.get_runs())

    def end(self) -> None:
        """Kills its processes, and those of its runs with them."""
        for process in self._started:
            process.kill()
            process.join()

    def _start(self, role: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([f"{_HERE}.dagster_commands"])
        log = str(self._home / f"{role}.log")
        process = context.Process(target=_be, args=(role, self._port, self._environment, log))
        process.start()
        self._started.append(process)

    def _listens(self) -> bool:
        assert self._started[0].exitcode is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _be(role: str, port: int, environment: dict[str, str], log: str) -> None:
    end_with_the_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    os.chdir(environment["DAGSTER_HOME"])
    from dagster._cli.api import api_cli
    from dagster._daemon.cli import run_command

    if role == "code_server":
        api_cli(["grpc", "-m", f"{_HERE}.freshness.lake_of_clusters", "--host", "127.0.0.1",
                 "--port", str(port), "--location-name", "here"])  # fmt: skip
    else:
        run_command(["--log-format", "colored", "-w", "workspace.yaml"])
