"""A code location with tasks of each kind, as a user would write it."""

import os

import dagster as dg

from arctic_orchestration import Freshness
from arctic_orchestration.freshness.dagster.fresh_parents import fresh_parents

#: set to let the asset `delays` fail
BROKEN = "TASKS_OF_TESTS_ARE_BROKEN"


@fresh_parents({}, freshness_hours=24)
@dg.asset
def flights() -> None:
    """The parent."""


@fresh_parents({"flights": 24, "raw/weather": None})
@dg.asset(key=["nyc", "delays"], retry_policy=dg.RetryPolicy(max_retries=1))
def delays(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """A child, with a parent that is no task."""
    if os.environ.get(BROKEN):
        raise ValueError("the flights are upside down")
    return dg.MaterializeResult(metadata={"rows": 3})


@dg.asset(key=["raw", "weather"])
def weather() -> None:
    """No task."""


@dg.op
def send() -> None:
    """Nothing is sent."""


@fresh_parents({"nyc/delays": 1})
@dg.job
def report() -> None:
    """A job that is a task."""
    send()


defs = dg.Definitions.merge(
    dg.Definitions(assets=[weather]), Freshness(tasks=[flights, delays, report]).definitions()
)
