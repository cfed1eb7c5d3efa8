"""Measures loads as shares of their capacities, for the constraint ``load``.

==========  =================================================================================
``runs``    Dagster's runs that have not ended, including queued ones, as a share of the
            ``max_concurrent_runs`` of the queue. Without such a limit, -1 or another run
            coordinator, the capacity is infinite and the load is 0; with a limit of 0 it is 1
``cpu``     the load average of the last minute per logical processor; above 1 when work queues
            up. It needs no waiting, and one busy moment does not count
``memory``  the memory that is not available to new programs, as a share of all memory
``spark``   the cores that applications hold, as a share of the cores of the living workers of a
            Spark standalone master, from its page ``/json/``; ``ARCTIC_SPARK_UI`` is its address
==========  =================================================================================

``cpu`` and ``memory`` are measured on the machine on which this runs.
"""

import json
import logging
import urllib.request
from collections.abc import Callable, Mapping

import psutil
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from arctic_orchestration.dagster_internals import IN_PROGRESS_RUN_STATUSES

_ANSWER_SECONDS = 2
#: A page of a thousand workers and their applications is far smaller.
_LONGEST_PAGE = 16 * 1024 * 1024
#: an estimate: a program's memory is unknown before it runs
_MEMORY_OF_A_RUN = 0.05
_NOT_ENDED = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    *IN_PROGRESS_RUN_STATUSES,
]
_log = logging.getLogger(__name__)


class LoadProbes:
    """The probes of one machine, one Dagster instance and one Spark cluster."""

    def __init__(
        self, instance: Callable[[], DagsterInstance], *, spark_ui: str | None = None
    ) -> None:
        """Connects to nothing yet.

        Args:
            instance: returns the Dagster instance, when ``runs`` is measured.
            spark_ui: the address of the master's web page, such as ``http://host:8080``.
        """
        self._instance = instance
        self._spark_ui = spark_ui
        self._one_more = {"cpu": 1 / (psutil.cpu_count() or 1), "memory": _MEMORY_OF_A_RUN}
        self._probes: Mapping[str, Callable[[], float | None]] = {
            "runs": self._runs,
            "cpu": self._cpu,
            "memory": self._memory,
            "spark": self._spark,
        }

    def measure(self, probe: str) -> float | None:
        """Returns the load as a share of the capacity, at least 0; None: it cannot be measured.

        Never raises; logs why a load cannot be measured. Cost: ``runs`` is one statement, ``spark``
        one request, whose server may take 2 s for each part of its answer.
        """
        try:
            return self._probes[probe]()
        except Exception as error:
            _log.warning("the load of %s could not be measured: %r", probe, error)
            return None

    def one_more(self, probe: str) -> float:
        """Returns the load that one more run adds before :meth:`measure` includes it.

        A run takes a place of the queue, a processor, a core, and a twentieth of the memory.
        """
        return self._one_more.get(probe, 0.0)

    def _runs(self) -> float:
        instance = self._instance()
        queue = instance.get_concurrency_config().run_queue_config
        if queue is None or queue.max_concurrent_runs < 0:
            return 0.0
        if queue.max_concurrent_runs == 0:
            return 1.0
        self._one_more["runs"] = 1 / queue.max_concurrent_runs
        active = instance.get_runs_count(RunsFilter(statuses=_NOT_ENDED))
        return active / queue.max_concurrent_runs

    def _cpu(self) -> float:
        return float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1)

    def _memory(self) -> float:
        return float(psutil.virtual_memory().percent) / 100

    def _spark(self) -> float:
        if self._spark_ui is None:
            raise LookupError("ARCTIC_SPARK_UI is not set")
        address = f"{self._spark_ui.rstrip('/')}/json/"
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS) as page:
            state = json.loads(page.read(_LONGEST_PAGE))
        cores, used = state["cores"], state["coresused"]
        if not (type(cores) is int and type(used) is int and used >= 0 and cores > 0):
            # A standby master, or one without workers, has no capacity.
            raise ValueError(f"cores: got {cores!r} of which {used!r} are used, expected some")
        self._one_more["spark"] = 1 / cores
        return used / cores
