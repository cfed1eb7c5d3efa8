"""A code location whose runs are seen waiting in the pictures of the run queue."""

import time

import dagster as dg


@dg.op
def work() -> None:
    """Takes as long as the pictures take."""
    time.sleep(600)


def _job(name: str, **tags: str) -> dg.JobDefinition:
    @dg.job(name=name, tags=tags)
    def made() -> None:
        work()

    return made


defs = dg.Definitions(
    jobs=[_job("load_orders"), _job("load_refunds"), _job("bill", team="finance")]
)
