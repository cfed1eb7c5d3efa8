"""The Dagster instance of the demo: its folder, its daemon, and what a killed demo left behind."""

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

#: JVMs of the demo live for a minute, and have little to do: what they compile well takes longer
#: than it saves.
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
                # One of the two is enough for merging; it may not wait for the others for ever.
                "compaction": {"share": 1, "match": {"tags": {QUEUE_TAG: "*"}}},
                "default": {"share": 1},
            },
        },
    },
    # A run whose daemon died while starting it is given up, and asked for again.
    "run_monitoring": {"enabled": True},
    # A run whose process was killed with the demo is run again; its tables are the same after.
    "run_retries": {"enabled": True, "max_retries": 3},
}
_OURS = {"module": "arctic_orchestration.run_launcher", "class": "ArcticRunLauncher"}
#: how runs begin: on warm JVMs, with a JVM each, or as Dagster's launcher begins them
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
    """A folder with everything the demo makes: storage, state database, lake and logs."""

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
        """Where the daemon writes."""
        return self.home / "daemon.log"

    def prepare(self) -> None:
        """Makes the folder, or what of it is missing."""
        self.home.mkdir(parents=True, exist_ok=True)
        config = {**_DAGSTER_YAML, "run_launcher": dict(LAUNCHERS[self.launcher])}
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(config))
        self.workspace.write_text(yaml.safe_dump(_WORKSPACE_YAML))

    def end_leftovers(self) -> int:
        """Ends the processes of an earlier demo in this folder; returns how many there were.

        Only what a demo started: never this process or one that it descends from, nor what only
        has the folder as its ``DAGSTER_HOME``, as the shell of somebody who looks at it.
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
        """Tells Dagster of runs whose process is gone, so that it retries them."""
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
        """Ends the daemon, and then whatever it started."""
        daemon.send_signal(signal.SIGINT)
        try:
            daemon.wait(timeout=15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        self.end_leftovers()
