"""Clusters as they are: Dagster instances with a storage, a daemon and a code server of their own.

Their runs are processes that the code server starts, as in a real one. All of them share the state
database.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

import arctic_orchestration_tests
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    DagsterProcesses,
)
from arctic_orchestration_tests.proofs.freshness.lake_of_clusters import GATES
from arctic_orchestration_tests.templates import write_dagster_yaml

_ROOT = str(Path(arctic_orchestration_tests.__file__).parents[1])


class Cluster:
    """One cluster; :meth:`end` kills its processes."""

    def __init__(self, name: str, home: Path, database_url: str) -> None:
        home.mkdir()
        self._home = home
        self._gates = home / "gates"
        self._gates.mkdir()
        self._code_server: int | None = None
        self._at_gates: list[psutil.Process] = []
        write_dagster_yaml(home)
        environment: dict[str, Any] = {"ARCTIC_CLUSTER": name, GATES: str(self._gates)}
        self._processes = DagsterProcesses(
            home,
            database_url,
            module="arctic_orchestration_tests.proofs.freshness.lake_of_clusters",
            launcher=None,
            **environment,
            # Processes of runs find the same code as this one, wherever they begin.
            PYTHONPATH=os.pathsep.join([_ROOT, os.environ.get("PYTHONPATH", "")]),
        )

    def start(self) -> None:
        """Starts the code server, and the daemon once that listens."""
        self._code_server = self._processes.start(CODE_SERVER).pid
        self._processes.start(DAEMON)

    def log(self) -> str:
        """What its processes have written last, for a test that fails."""
        return self._processes.logs()

    def runs(self) -> list[dg.DagsterRun]:
        """All runs of its instance."""
        with dg.DagsterInstance.from_config(str(self._home)) as instance:
            return list(instance.get_runs())

    def statuses_at_the_end(self, seconds: float) -> dict[str, str]:
        """How its runs ended, by their ids, once all of them have."""
        with dg.DagsterInstance.from_config(str(self._home)) as instance:

            def ended() -> bool:
                return all(run.is_finished for run in instance.get_runs())

            until(ended, "all runs have ended", seconds)
            return {run.run_id: run.status.value for run in instance.get_runs()}

    def at_gate(self, run_id: str) -> psutil.Process | None:
        """The process that makes ``held`` in a run, once it waits there; none: not yet."""
        pid_file = self._gates / f"{run_id}.pid"
        if not pid_file.exists():
            return None
        found = psutil.Process(int(pid_file.read_text()))
        self._at_gates.append(found)
        return found

    def run_process(self, working: psutil.Process) -> psutil.Process:
        """The process of a run, which the code server has forked, by one that works in it."""
        (server_of_runs,) = psutil.Process(self._code_server).children()
        started = server_of_runs.children()
        (found,) = set(started) & {working, *working.parents()}
        return found

    def open_gate(self, run_id: str) -> None:
        """Lets the run of ``held`` go on."""
        (self._gates / f"{run_id}.open").touch()

    def end(self) -> None:
        """Kills its processes, and those of its runs with them."""
        for process in self._at_gates:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._processes.end()
