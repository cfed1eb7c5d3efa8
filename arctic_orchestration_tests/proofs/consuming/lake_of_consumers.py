"""The code location of the consumer's sensor whose daemon is killed."""

from datetime import timedelta

import dagster as dg

from arctic_orchestration import PartitionConsumer, consumer_sensor

consumer = PartitionConsumer(
    "raw/flights", name="proof", attempts=1_000_000, retry_after=timedelta(0)
)


@dg.op
def nothing() -> None:
    """Never executed: the launcher only says that a run began and how it ended."""


@dg.job
def each() -> None:
    """A run of one partition."""
    nothing()


defs = dg.Definitions(
    jobs=[each],
    sensors=[
        consumer_sensor(consumer, target="each", name="each_one", at_once=6, interval_seconds=1)
    ],
)
