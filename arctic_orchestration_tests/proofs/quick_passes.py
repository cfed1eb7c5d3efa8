"""Passes over the run queue that follow each other faster than Dagster's daemon lets them."""

import time
from typing import Any

from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import (
    QueuedRunCoordinatorDaemon,
)

#: between the end of a pass and the next one
SECONDS = 0.2


def put_in_place() -> None:
    """Takes the daemon's own waiting away: it waits for half seconds, and one second at least."""
    run_iteration = QueuedRunCoordinatorDaemon.run_iteration

    def quick_iteration(daemon: QueuedRunCoordinatorDaemon, *args: Any, **named: Any) -> Any:
        daemon.interval_seconds = 0
        time.sleep(SECONDS)
        yield from run_iteration(daemon, *args, **named)

    replaced: Any = QueuedRunCoordinatorDaemon
    replaced.run_iteration = quick_iteration
