"""A code location whose tasks are submitted for the picture of their history."""

import dagster as dg

from arctic_orchestration import Freshness, fresh_parents


@fresh_parents({}, freshness_hours=24)
@dg.asset
def flights() -> None:
    """The parent."""


@fresh_parents({"flights": 24}, freshness_hours=12)
@dg.asset
def punctuality() -> None:
    """The task whose history is shown."""


defs = dg.Definitions.merge(
    dg.Definitions(executor=dg.in_process_executor),
    Freshness(tasks=[flights, punctuality], interval_seconds=1).definitions(),
)
