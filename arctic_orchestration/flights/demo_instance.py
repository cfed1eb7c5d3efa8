"""The Dagster instance of the demo: its folder, its daemon, and leftovers of a killed demo."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import yaml

from arctic_orchestration import private_files
from arctic_orchestration.compaction.dagster.worker_demand import QUEUE_TAG

LOCATION = "flights"

#: JVMs of the demo live for a minute and do little: optimized compilation takes longer than it
#: saves.
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

#: set in the environment of the demo's own processes, to the demo's folder
_MARK = "ARCTIC_DEMO"

_DAGSTER_YAML = {
    "telemetry": {"enabled": False},
    "run_coordinator": {
        "module": "arctic_orchestration.coordinator",
        "class": "ArcticRunCoordinator",
        "config": {
            "max_concurrent_runs": 2,
            "queues": {
                "backfills": {"match": {"tags": {"dagster/backfill": "*"}}},
                # One of the two is enough for merging; it must not wait for the others forever.
                "compaction": {"share": 1, "match": {"tags": {QUEUE_TAG: "*"}}},
                "default": {"share": 1},
            },
        },
    },
    # A run whose daemon died while starting it is given up, and requested again.
    "run_monitoring": {"enabled": True},
    # A run whose process was killed with the demo is run again, with the same tables afterwards.
    "run_retries": {"enabled": True, "max_retries": 3},
}
_OURS = {"module": "arctic_orchestration.run_launcher", "class": "ArcticRunLauncher"}
#: the start of runs: on warm JVMs, with a JVM each, or by Dagster's launcher
LAUNCHERS: Mapping[str, Mapping[str, Any]] = {
    "warm": _OURS,
    "cold-spark": {**_OURS, "config": {"spark": {"sessions": 0}}},
    "dagster": {"module": "dagster", "class": "DefaultRunLauncher"},
}
_WORKSPACE_YAML = {
    "load_from": [
        {
            "python_module": {
                "module_name": "arctic_orchestration.definitions",
                "location_name": LOCATION,
            }
        }
    ]
}
_UNDERWAY = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True)
class DemoInstance:
    """A folder with all files of the demo: storage, state database, lake and logs."""

    home: Path
    launcher: str = "warm"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the demo's processes."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith("ARCTIC_")}
        return {
            **ours,
            _MARK: str(self.home),
            "DAGSTER_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
            "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", _SHORT_LIVED_JVM),
        }

    @property
    def workspace(self) -> Path:
        """The workspace file, for the daemon and the webserver."""
        return self.home / "workspace.yaml"

    @property
    def log(self) -> Path:
        """The daemon's log file."""
        return self.home / "daemon.log"

    def prepare(self) -> None:
        """Creates the folder, or its missing parts."""
        self.home.mkdir(parents=True, exist_ok=True)
        config = {**_DAGSTER_YAML, "run_launcher": dict(LAUNCHERS[self.launcher])}
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(config))
        self.workspace.write_text(yaml.safe_dump(_WORKSPACE_YAML))

    def end_leftovers(self) -> int:
        """Ends the processes of an earlier demo in this folder; returns how many there were.

        Only processes of a demo: never this process or its ancestors, nor processes that only have
        the folder as their ``DAGSTER_HOME``, such as a person's shell.
        """
        spared = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid not in spared and process.environ().get(_MARK) == str(self.home):
                    process.kill()
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        psutil.wait_procs(found, timeout=10)
        return len(found)

    def fail_lost_runs(self, instance: dg.DagsterInstance) -> int:
        """Fails runs in Dagster whose process is gone, so that it retries them."""
        lost = instance.get_runs(dg.RunsFilter(statuses=_UNDERWAY))
        for run in lost:
            instance.report_run_failed(run, "Its process was ended together with the demo.")
        return len(lost)

    def start_daemon(self) -> "subprocess.Popen[bytes]":
        """Starts ``dagster-daemon run``, which starts the code server."""
        with private_files.opened(self.log, "ab") as log:
            return subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("dagster-daemon")),
                    "run",
                    "-w",
                    str(self.workspace),
                ],
                env=dict(self.environment),
                cwd=self.home,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self, daemon: "subprocess.Popen[bytes]") -> None:
        """Ends the daemon, and then its other processes."""
        daemon.send_signal(signal.SIGINT)
        try:
            daemon.wait(timeout=15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        self.end_leftovers()
