"""The daemon, the code server and the webserver of one instance, as processes.

Forked as those of ``dagster_processes`` are, with the commands' own entry points.
"""

import os
import socket
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import yaml

from arctic_orchestration_tests import open_files
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs import forked_runs, quick_passes
from arctic_orchestration_tests.proofs.coordinator import shifted_time
from arctic_orchestration_tests.proofs.processes import end_with_the_parent, free_port

CODE_SERVER, DAEMON, WEBSERVER = "code_server", "daemon", "webserver"
LOCATION = "here"
_PROOFS = "arctic_orchestration_tests.proofs"
_QUICK = "ARCTIC_TEST_QUICK_PASSES"


class QueueProcesses:
    """The processes of the instance in ``home``."""

    def __init__(self, home: Path, database_url: str, offset: Path, *, quick: bool) -> None:
        """Writes ``workspace.yaml``; starts nothing.

        Args:
            quick: passes of the daemon follow each other faster than Dagster lets them.
        """
        self._home = home
        self._ports = {CODE_SERVER: free_port(), WEBSERVER: free_port()}
        self._environment = {
            "DAGSTER_HOME": str(home),
            "ARCTIC_DATABASE_URL": database_url,
            shifted_time.FILE: str(offset),
            _QUICK: "1" if quick else "",
        }
        self._started: list[BaseProcess] = []
        server = {
            "host": "127.0.0.1",
            "port": self._ports[CODE_SERVER],
            "location_name": LOCATION,
        }
        workspace = {"load_from": [{"grpc_server": server}]}
        (home / "workspace.yaml").write_text(yaml.safe_dump(workspace))

    def start(self, role: str) -> BaseProcess:
        """Starts the process; one that serves is waited for until it listens."""
        context = forkserver()
        log = self._home / f"{role}_{len(self._started)}.log"
        port = self._ports.get(role, 0)
        process = context.Process(
            target=_be, args=(role, str(self._home), port, self._environment, str(log))
        )
        process.start()
        self._started.append(process)
        if port:
            until(lambda: _listens(process, port, log), f"the {role} listens")
        return process

    @property
    def web_address(self) -> str:
        """Of the webserver."""
        return f"http://127.0.0.1:{self._ports[WEBSERVER]}"

    def daemon_log(self) -> str:
        """What the daemons have written."""
        files = sorted(self._home.glob(f"{DAEMON}_*.log"))
        return "".join(file.read_text(errors="replace") for file in files)

    def logs(self) -> str:
        """The ends of what the processes have written, for the message of a failure."""
        return "\n".join(
            f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}"
            for file in sorted(self._home.glob("*.log"))
        )

    def end(self) -> None:
        """Kills whatever is left of them, and the run workers that they started."""
        for process in self._started:
            if process.exitcode is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.join()


def _listens(process: BaseProcess, port: int, log: Path) -> bool:
    assert process.exitcode is None, f"it ended: {log.read_text()[-3000:]}"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _be(role: str, home: str, port: int, environment: dict[str, str], log: str) -> None:
    end_with_the_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    os.chdir(home)
    if role == CODE_SERVER:
        forked_runs.put_in_place()
    open_files.put_in_place()
    shifted_time.put_in_place(Path(environment[shifted_time.FILE]))
    address = ["--host", "127.0.0.1", "--port", str(port)]
    if role == DAEMON:
        from dagster._daemon.cli import run_command

        if environment[_QUICK]:
            quick_passes.put_in_place()
        run_command(["--log-format", "colored", "-w", "workspace.yaml"])
    elif role == CODE_SERVER:
        from dagster._cli.api import api_cli

        module = f"{_PROOFS}.coordinator.jobs_of_proofs"
        api_cli(["grpc", "-m", module, *address, "--location-name", LOCATION])
    else:
        from dagster_webserver.cli import dagster_webserver

        dagster_webserver([*address, "-w", "workspace.yaml"])
