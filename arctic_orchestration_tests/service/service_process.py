"""``arctic serve`` as a process, which dies by SIGKILL when it comes to a moment."""

import os
import signal
import socket
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from arctic_orchestration.service import worker_reports, workers
from arctic_orchestration.service.cli.serve import serve
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

#: what it has stored when it dies, before its answer
CLAIMED, MERGED = "claimed", "merged"


def start(port: int, environment: Mapping[str, str], dies_when: str = "") -> BaseProcess:
    """Starts it; it listens when this returns."""
    process = forkserver().Process(target=_be, args=(port, dict(environment), dies_when))
    process.start()

    def listens() -> bool:
        assert process.exitcode is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "the service listens")
    return process


def _be(port: int, environment: dict[str, str], dies_when: str) -> None:
    end_with_the_parent()
    # The test that started the fork server may have had an instance, which is gone.
    os.environ.pop("DAGSTER_HOME", None)
    os.environ.update(environment)
    if dies_when == CLAIMED:
        vars(workers)["assignment_of"] = _die
    elif dies_when == MERGED:
        reported = worker_reports._reported
        vars(worker_reports)["_reported"] = lambda *given: _die(reported(*given))
    serve(port=port)


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
