"""A run launcher without processes: a run begins at once, and ends when that is reported.

A run with the tag ``proof/seconds`` ends so long after it began; any other one when the test
reports its end to the instance.
"""

import heapq
import json
import os
import threading
import time

from dagster import DagsterEventType
from dagster._core.launcher import LaunchRunContext
from dagster._serdes import ConfigurableClassData

from arctic_orchestration_tests.plain_launcher import PlainRunLauncher

#: the tag that says how long a run lasts
SECONDS = "proof/seconds"
#: the file in ``DAGSTER_HOME`` that gets a line for each launch
LAUNCHES = "launches.jsonl"


class TimedRunLauncher(PlainRunLauncher):
    """Reports that a run begins and, after the time of its tag, that it succeeds."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._ends: list[tuple[float, str, str]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        super().__init__(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        run = context.dagster_run
        line = {"at": time.time(), "run_id": run.run_id, "job": run.job_name}
        file = os.path.join(self._instance.root_directory, LAUNCHES)
        with open(file, "a") as launches:
            launches.write(json.dumps(line) + "\n")
        self.report(DagsterEventType.RUN_START, run.run_id, run.job_name)
        if SECONDS in run.tags:
            self._end_after(float(run.tags[SECONDS]), run.run_id, run.job_name)

    def _end_after(self, seconds: float, run_id: str, job: str) -> None:
        with self._changed:
            heapq.heappush(self._ends, (time.monotonic() + seconds, run_id, job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._end_runs, daemon=True)
                self._thread.start()
            self._changed.notify()

    def _end_runs(self) -> None:
        while True:
            with self._changed:
                while not self._ends or self._ends[0][0] > time.monotonic():
                    left = self._ends[0][0] - time.monotonic() if self._ends else None
                    self._changed.wait(left)
                _, run_id, job = heapq.heappop(self._ends)
            self.report(DagsterEventType.RUN_SUCCESS, run_id, job)
