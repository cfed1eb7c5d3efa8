"""The one server that forks the processes of tests, with everything imported.

There is one in a process, however many contexts ask for it, and it loads what the first of them
wants: so all ask for the same.
"""

import multiprocessing
import os
from functools import cache
from multiprocessing import forkserver as server
from multiprocessing.context import ForkServerContext

_HERE = "arctic_orchestration_tests"
#: What the processes work with; a name that is left out is imported by each of them, for seconds.
PRELOADED = (
    f"{_HERE}.forked",
    f"{_HERE}.event_log.writers",
    f"{_HERE}.flights.feeder_process",
    f"{_HERE}.lake.appender",
    f"{_HERE}.lake.crashing_committer",
    f"{_HERE}.lake.racing_writer",
    f"{_HERE}.proofs.arrivals",
    f"{_HERE}.proofs.compaction.crew",
    f"{_HERE}.proofs.consuming.consumers",
    f"{_HERE}.proofs.dagster_commands",
    f"{_HERE}.proofs.dispatchers",
    f"{_HERE}.proofs.forked_runs",
    f"{_HERE}.proofs.freshness.outages",
    f"{_HERE}.proofs.freshness.owners",
    f"{_HERE}.run_launcher.forked_hosts",
    f"{_HERE}.service.announcing_process",
    "arctic_orchestration.run_launcher.host",
    "dagster_webserver.cli",
    "pyspark.sql",
    "pytest",
    # The last one: what was loaded before it is left out of collections of garbage.
    f"{_HERE}.frozen",
)

_AT_FIRST = frozenset(os.environ)


def forkserver() -> ForkServerContext:
    """Starts processes as ``multiprocessing`` does, from that server.

    They have no variables that a test has set for itself: the server has the environment of the
    test that is the first to ask for it, whose folders are gone when that has passed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    _start_server()
    return context


@cache
def _start_server() -> None:
    # Once: other threads may read the environment meanwhile, which C does not protect.
    own = {
        name: os.environ.pop(name)
        for name in os.environ.keys() - _AT_FIRST
        if name.startswith(("ARCTIC_", "DAGSTER_"))
    }
    server.ensure_running()
    os.environ.update(own)
