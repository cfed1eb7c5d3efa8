"""Functions that batches of tests name."""

from typing import Any

from arctic_orchestration.freshness.dagster.materialization import TaskRun

CONSTANT = 7


def done_by(run: TaskRun) -> dict[str, Any]:
    """What the run knows, as metadata."""
    return {"name": run.name, "partition": str(run.partition)}


def silent(run: TaskRun) -> None:
    """Nothing to say."""


def wrong(run: TaskRun) -> list[int]:
    """What no task can be."""
    return [1, 2]


#: the days for which `noted` was called
DAYS: list[str] = []


def noted(run: TaskRun) -> None:
    """Notes what it was called for."""
    DAYS.append(str(run.partition))
