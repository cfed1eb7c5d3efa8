"""Starts the processes of a race, and gathers what they report."""

import queue
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


class Race:
    """Processes that all do the same, each with a number of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: list[BaseProcess] = []

    def run(self, act: Callable[..., None], count: int, **named: Any) -> list[Any]:
        """The reports of ``act(url, number, all_together, reports, turns, **named)``.

        ``all_together`` is a barrier for all ``count`` processes; ``turns`` has a flag for each,
        of which the first is raised.
        """
        context = forkserver()
        reports = context.Queue()
        all_together = context.Barrier(count, timeout=PATIENCE_SECONDS)
        turns = [context.Event() for _ in range(count)]
        turns[0].set()
        for number in range(count):
            process = context.Process(
                target=act,
                args=(self._url, number, all_together, reports, turns),
                kwargs=named,
            )
            process.start()
            self._processes.append(process)
        found = [self._next(reports) for _ in range(count)]
        for ended in self._processes:
            ended.join(PATIENCE_SECONDS)
            assert ended.exitcode == 0
        return found

    def _next(self, reports: Any) -> Any:
        """The next report; fails at once when a process fails."""
        for _ in range(PATIENCE_SECONDS):
            try:
                return reports.get(timeout=1)
            except queue.Empty:
                assert not any(process.exitcode for process in self._processes)
        raise AssertionError(f"no report within {PATIENCE_SECONDS} s")

    def end(self) -> None:
        """Kills whoever is left."""
        for process in self._processes:
            process.kill()
            process.join()
