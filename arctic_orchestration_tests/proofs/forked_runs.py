"""Processes of runs that a code server of the tests forks, in place of a new Python for each.

Dagster's code server starts them by ``spawn``, and each imports Dagster for two seconds of CPU.
Here the server forks a process before it has threads or connections, which forks those of runs: the
start method ``forkserver``, whose server need not import anything.
"""

import multiprocessing
import os
import socket
from importlib import import_module
from multiprocessing import forkserver
from types import SimpleNamespace
from typing import Any

from dagster._grpc import server

from arctic_orchestration.dagster_internals import MODULES_OF_RUNS

for _module in MODULES_OF_RUNS:
    import_module(_module)


def put_in_place() -> None:
    """To be called in the process of a code server, before it has threads."""
    address = f"\0arctic-runs-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        # The server ends when the code server does; the processes of runs go on.
        alive, held = os.pipe()
        forked = os.fork()
        if forked == 0:
            os.close(held)
            try:
                forkserver.main(listener.fileno(), alive, [])
            finally:
                os._exit(0)
        os.close(alive)
    known: Any = vars(forkserver)["_forkserver"]
    known._forkserver_address = address
    known._forkserver_alive_fd = held
    known._forkserver_pid = forked
    setattr(server, "multiprocessing", SimpleNamespace(get_context=_context))  # noqa: B010


def _context(method: str) -> Any:
    return multiprocessing.get_context("forkserver" if method == "spawn" else method)
