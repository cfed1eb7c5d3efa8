"""Errors of a user's code whose text no database can store: one job's never stops the others.

As of a file whose name is not UTF-8, or of one with NUL, which Postgres does not store.
"""

import logging
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.neighbours import (
    DAYS,
    Jobs,
    check_schedules,
    check_tasks,
)
from arctic_orchestration_tests.code_location.tasks_place import Tasks, tasks

__all__ = ["tasks"]

TEXTS = pytest.mark.parametrize("text", ["caf\udce9.csv", "a\0b"], ids=["surrogate", "nul"])


@pytest.fixture(autouse=True)
def _unlogged() -> Iterator[None]:
    """pytest-xdist cannot send a log with such a text."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def jobs(text: str) -> Jobs:
    """A job whose configuration fails with the text, and one that is as it should be."""

    def configuration(_: Any) -> dict[str, Any]:
        raise ValueError(text)

    @dg.op
    def nothing() -> None: ...

    @dg.job(partitions_def=DAYS, config=dg.PartitionedConfig(DAYS, configuration))
    def odd() -> None:
        nothing()

    @dg.job
    def good() -> None:
        nothing()

    return odd, good


@TEXTS
def test_the_schedules_of_a_location_go_on(place: Place, text: str) -> None:
    check_schedules(place, jobs(text), "\ufffd")


@TEXTS
def test_the_tasks_of_a_location_go_on(tasks: Tasks, text: str) -> None:
    check_tasks(tasks, jobs(text), "\ufffd")
