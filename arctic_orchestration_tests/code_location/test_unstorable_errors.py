"""Errors of a user's code whose text no database can store: one job's never stops the others.

As of a file whose name is not UTF-8, or of one with NUL, which Postgres does not store.
"""

import logging
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Arctic, Freshness, Schedule, fresh_parents
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.tasks_place import Tasks, tasks

__all__ = ["tasks"]

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
TEXTS = pytest.mark.parametrize("text", ["caf\udce9.csv", "a\0b"], ids=["surrogate", "nul"])


@pytest.fixture(autouse=True)
def _unlogged() -> Iterator[None]:
    """pytest-xdist cannot send a log with such a text."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def jobs(text: str) -> tuple[dg.JobDefinition, dg.JobDefinition]:
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
    odd, good = jobs(text)
    raw = {"partitions": {"asset": "raw/a"}}
    schedules = [
        Schedule(name="odd", trigger=raw, target={"job": "odd"}, partitions="each", enabled=True),
        Schedule(name="good", trigger=raw, target={"job": "good"}, enabled=True),
    ]
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[odd, good]),
        Arctic(schedules=schedules).definitions(),
    )
    place.tick(definitions)
    place.announce("2026-01-01")
    requests = place.tick(definitions).run_requests or ()
    assert [request.job_name for request in requests] == ["good"]
    reasons = {name: (state, reason) for name, state, reason in place.states()}
    assert reasons["good"][0] == "launching"
    state, reason = reasons["odd"]
    assert state == "failed"
    assert "\ufffd" in reason


@TEXTS
def test_the_tasks_of_a_location_go_on(tasks: Tasks, text: str) -> None:
    parts = [fresh_parents({})(one) for one in jobs(text)]
    tasks.declare(Freshness(tasks=parts).definitions())
    odd = tasks.submit("odd")
    tasks.submit("good")
    requests = tasks.tick().run_requests or ()
    assert [request.tags["arctic/task"] for request in requests] == ["good"]
    assert tasks.again(odd).state.value == "failed"
    assert "\ufffd" in tasks.again(odd).reason
