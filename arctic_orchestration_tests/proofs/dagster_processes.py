"""Dagster's daemon and code servers and ``arctic serve``, as processes that a test may kill.

They are forked from a server that has Dagster loaded, since importing it costs seconds, and then
run the commands' own entry points.
"""

import os
import signal
import socket
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import yaml

from arctic_orchestration_tests import open_files
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs import crash_points, forked_runs
from arctic_orchestration_tests.proofs.coordinator import shifted_time
from arctic_orchestration_tests.proofs.processes import end_with_the_parent, free_port

CODE_SERVER, DAEMON, SERVICE = "code_server", "daemon", "service"
#: the name of the code location, if there is no other
HERE = "here"
_HERE = "arctic_orchestration_tests.proofs"
#: after which a run that was to start is given up
_GIVEN_UP_SECONDS = 5


class DagsterProcesses:
    """Daemons, the code servers and services of one instance of Dagster."""

    def __init__(
        self,
        home: Path,
        database_url: str,
        *,
        module: str = f"{_HERE}.lake_of_proofs",
        elsewhere: Mapping[str, str] | None = None,
        launcher: str | None = f"{_HERE}.instant_launcher.InstantRunLauncher",
        without_run_key: str = "",
        monitored: bool = False,
        **environment: str,
    ) -> None:
        """Prepares ``home``, which has a ``dagster.yaml``; starts nothing.

        Args:
            module: the code location, whose name is ``here``.
            elsewhere: the modules of more code locations, by their names.
            launcher: the class of the run launcher; none: Dagster's own, runs are processes.
            environment: more variables for the processes.
        """
        self._home = home
        self._modules = {HERE: module, **(elsewhere or {})}
        self._ports = {location: free_port() for location in self._modules}
        self._service_port = free_port()
        self.points = home / "points"
        self.points.mkdir()
        self._environment = {
            "DAGSTER_HOME": str(home),
            "ARCTIC_DATABASE_URL": database_url,
            crash_points.DIRECTORY: str(self.points),
            crash_points.WITHOUT_RUN_KEY: without_run_key,
            **environment,
        }
        self._started: list[BaseProcess] = []
        #: those that were started, in their order
        self.daemons: list[BaseProcess] = []
        file = home / "dagster.yaml"
        config = yaml.safe_load(file.read_text())
        if launcher:
            where, _, name = launcher.rpartition(".")
            config["run_launcher"] = {"module": where, "class": name}
            if name == "ArcticRunLauncher":
                # A run host is given the environment that its code server began with; the ones
                # here are forked, and began with that of another process.
                config["run_launcher"]["config"] = {"hosts": False}
        config["run_coordinator"] = {
            "module": "dagster",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        }
        if monitored:
            config["run_monitoring"] = {
                "enabled": True,
                "poll_interval_seconds": 1,
                "start_timeout_seconds": _GIVEN_UP_SECONDS,
            }
        file.write_text(yaml.safe_dump(config))
        servers = [
            {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": location}}
            for location, port in self._ports.items()
        ]
        workspace = {"load_from": servers}
        (home / "workspace.yaml").write_text(yaml.safe_dump(workspace))

    @property
    def service_address(self) -> str:
        """Of the services: each listens to the same port."""
        return f"http://127.0.0.1:{self._service_port}"

    def start(self, role: str, location: str = HERE) -> BaseProcess:
        """Starts the code server of a location or a service, which then listens; or a daemon."""
        context = forkserver()
        log = self._home / f"{role}_{len(self._started)}.log"
        port = self._service_port if role == SERVICE else self._ports[location]
        process = context.Process(
            target=_be,
            args=(role, self._modules[location], location, port, self._environment, str(log)),
        )
        process.start()
        self._started.append(process)
        if role == DAEMON:
            self.daemons.append(process)
        else:
            what = f"the {role} listens"
            until(lambda: self._listens(process, port, log), what)
        return process

    def _listens(self, process: BaseProcess, port: int, log: Path) -> bool:
        assert process.exitcode is None, f"it ended: {log.read_text()[-3000:]}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def arm(
        self, point: str, *, skip: int = 0, how: int = signal.SIGKILL, of: int | None = None
    ) -> None:
        """The process that reaches the point gets the signal; see ``crash_points.arm``."""
        (self.points / f"{point}.reached").unlink(missing_ok=True)
        crash_points.arm(self.points, point, skip=skip, how=how, of=of)

    def was_reached(self, point: str) -> bool:
        """Whether the armed point was reached."""
        return crash_points.was_reached(self.points, point)

    def logs(self) -> str:
        """The ends of what the processes have written, for the message of a failure."""
        return "\n".join(
            f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}"
            for file in sorted(self._home.glob("*.log"))
        )

    def end(self) -> None:
        """Kills whatever is left of them."""
        for process in self._started:
            if process.exitcode is None:
                process.kill()
            process.join()


def _be(
    role: str, module: str, location: str, port: int, environment: dict[str, str], log: str
) -> None:
    end_with_the_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    os.chdir(environment["DAGSTER_HOME"])
    if role == CODE_SERVER:
        forked_runs.put_in_place()
    open_files.put_in_place()
    if shifted_time.FILE in environment:
        shifted_time.put_in_place(Path(environment[shifted_time.FILE]))
    if role == SERVICE:
        from arctic_orchestration.service.cli.serve import serve

        serve(port=port)
        return
    from arctic_orchestration_tests.proofs import dagster_commands

    if role == CODE_SERVER:
        dagster_commands.serve(module, port, location)
    else:
        dagster_commands.run_daemon()
