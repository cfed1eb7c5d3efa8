"""Code servers and run hosts that are forked with everything imported, in place of new Pythons.

Importing Dagster takes each of them more than a second of CPU, and most tests are about something
else. They run the commands' own entry points, with the arguments, the environment, the folder and
the pipes that the interpreters would have.
"""

import io
import json
import multiprocessing.process
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock

from dagster._grpc import server
from dagster_shared.ipc import open_ipc_subprocess

from arctic_orchestration.dagster_internals import create_postgres_engine, replace_engine_factory
from arctic_orchestration.run_launcher import host_client
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

Environment = Mapping[str, str]
#: of the processes of hosts, and of what they fork
NAME = "arctic-host"

#: of the code servers that were forked; the kernel shows that of the process they come from
_environments: dict[int, Environment] = {}
_environment = host_client._environment
#: the code servers, in the order of their start
_code_servers: list["ForkedProcess"] = []


class ForkedProcess:
    """As much of a ``subprocess.Popen`` as Dagster and the launcher use."""

    def __init__(self, process: BaseProcess, stdin: IO[bytes] | None = None) -> None:
        assert process.pid is not None
        self._process = process
        self.pid = process.pid
        self.stdin = stdin

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


@contextmanager
def forks_in_place() -> Iterator[None]:
    """While the block lasts, this process forks its code servers and hosts.

    Code servers end with the block: Dagster only asks them to.
    """

    def environment(process: int) -> Environment:
        return _environments.get(process) or _environment(process)

    before = len(_code_servers)
    try:
        with _code_servers_from(_fork_code_server), hosts_are_forked(environment):
            yield
    finally:
        for each in _code_servers[before:]:
            if each.poll() is None:
                each.kill()
        del _code_servers[before:]


@contextmanager
def interpreters_in_place() -> Iterator[None]:
    """While the block lasts, it starts them as it does outside of tests."""
    with (
        _code_servers_from(open_ipc_subprocess),
        mock.patch.multiple(host_client, subprocess=subprocess, _environment=_environment),
    ):
        yield


def _code_servers_from(start: Callable[..., Any]) -> Any:
    return mock.patch.object(server, "open_ipc_subprocess", start)


def hosts_are_forked(environment: Callable[[int], Environment]) -> Any:
    """Forks the hosts; ``environment`` returns what the code server of a process id began with."""
    return mock.patch.multiple(
        host_client,
        subprocess=SimpleNamespace(Popen=_popen, PIPE=subprocess.PIPE),
        _environment=environment,
    )


def _fork_code_server(
    command: Sequence[str], *, cwd: str | None, env: Environment
) -> ForkedProcess | subprocess.Popen[bytes]:
    python, *arguments = command
    if python != sys.executable or arguments[:3] != ["-m", "dagster", "api"]:
        return subprocess.Popen(command, cwd=cwd, env=env)
    process = forkserver().Process(
        target=_be_code_server, args=(arguments[3:], dict(env), cwd or os.getcwd())
    )
    process.start()
    forked = ForkedProcess(process)
    _environments[forked.pid] = env
    _code_servers.append(forked)
    return forked


def _be_code_server(arguments: list[str], environment: Environment, folder: str) -> None:
    from dagster._cli.api import api_cli

    from arctic_orchestration_tests.proofs import forked_runs

    end_with_the_parent()
    _begin(environment, folder)
    forked_runs.put_in_place()
    api_cli(arguments)


def _popen(
    command: Sequence[str], *, env: Environment, cwd: str, pass_fds: Sequence[int],
    stdout: IO[bytes] | int | None, **same: Any,
) -> ForkedProcess | subprocess.Popen[bytes]:  # fmt: skip
    if command[0] != sys.executable:
        return subprocess.Popen(command, env=env, cwd=cwd, pass_fds=pass_fds, stdout=stdout, **same)
    (answer,) = pass_fds
    reading, writing = os.pipe()
    output = stdout if stdout is None or isinstance(stdout, int) else stdout.fileno()
    # Connections are what a process may be given of open files.
    with Connection(reading, writable=False) as start, _copied(answer) as answers:
        outputs = [] if output is None else [_copied(output)]
        process = forkserver().Process(
            target=_be_host, args=(dict(env), cwd, start, answers, outputs)
        )
        process.start()
        for copied in outputs:
            copied.close()
    # A process that ends would wait for it, as it would not for an interpreter that it started.
    vars(multiprocessing.process)["_children"].discard(process)
    return ForkedProcess(process, os.fdopen(writing, "wb"))


def _copied(descriptor: int) -> "Connection[Any, Any]":
    return Connection(os.dup(descriptor), readable=False)


def _be_host(
    environment: Environment,
    folder: str,
    start: "Connection[Any, Any]",
    answers: "Connection[Any, Any]",
    outputs: "list[Connection[Any, Any]]",
) -> None:
    from arctic_orchestration.run_launcher import host

    os.setsid()
    _call_this_process(NAME)
    # A host must not keep connections, and its runs see to it themselves that they reuse them.
    replace_engine_factory(create_postgres_engine)
    _begin(environment, folder)
    for output in outputs:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        output.close()
    with os.fdopen(os.dup(start.fileno())) as text:
        what = json.load(text)
    start.close()
    answer = os.dup(answers.fileno())
    answers.close()
    sys.stdin = io.StringIO(json.dumps({**what, "answer": answer}))
    host.main()


def _begin(environment: Environment, folder: str) -> None:
    """What an interpreter that is started with ``-m`` begins with."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, str(Path.cwd()))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _call_this_process(name: str) -> None:
    """As an interpreter is known by its arguments."""
    Path("/proc/self/comm").write_text(name)
