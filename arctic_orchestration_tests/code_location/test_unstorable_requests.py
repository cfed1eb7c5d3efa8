"""Requests that Dagster could not take or store: one never stops the others of its tick."""

from datetime import datetime
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

DAWN = datetime(2026, 1, 1, 6)
#: what the functions of a job's partitions return, and the reason of the refusal
ODD = pytest.mark.parametrize(
    ("config", "tags", "reason"),
    [
        ({"ops": {"read": {"config": {"since": DAWN}}}}, {}, "datetime.datetime"),
        ({}, {"file": "a\0b"}, r"tag file: got 'a\x00b', expected text that a database can hold"),
        ({}, {"file": "caf\udce9"}, r"tag file: got 'caf\udce9', expected text"),
    ],
    ids=["value", "nul", "surrogate"],
)


def jobs(config: Any, tags: dict[str, str]) -> Jobs:
    """A job with this configuration and these tags for each day, and one without."""

    @dg.op(config_schema={"since": dg.Field(dg.Any, is_required=False)})
    def read() -> None: ...

    of_days = dg.PartitionedConfig(DAYS, lambda _: config, tags_for_partition_key_fn=lambda _: tags)

    @dg.job(config=of_days)
    def odd() -> None:
        read()

    @dg.job
    def good() -> None:
        read()

    return odd, good


@ODD
def test_the_schedules_of_a_location_go_on(
    place: Place, config: Any, tags: dict[str, str], reason: str
) -> None:
    """The whole answer of a tick is one text for the daemon, which stores its runs one by one."""
    check_schedules(place, jobs(config, tags), reason)


@ODD
def test_the_tasks_of_a_location_go_on(
    tasks: Tasks, config: Any, tags: dict[str, str], reason: str
) -> None:
    check_tasks(tasks, jobs(config, tags), reason)
