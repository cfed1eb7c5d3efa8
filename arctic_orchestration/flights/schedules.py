"""The schedules of the flights lake, each with one rule about days."""

import dagster as dg

from arctic_orchestration import Schedule, on, only
from arctic_orchestration.flights.feeds import TIMEZONE
from arctic_orchestration.schedules.triggers import AnyTrigger

#: A run that is killed after its last step has no failed step for Dagster to retry from; and every
#: run here may be repeated as a whole.
_RETRIED_AS_A_WHOLE = {"dagster/retry_strategy": "ALL_STEPS"}
#: How long after the last file of a day, or after one side of a join, missing files are waited for.
#: For present days `partition_end` would determine the end; the days of 2013 ended long ago.
_PATIENCE = "6h"


def flights_schedules() -> list[Schedule]:
    """Files of a day → its ``flights`` → its ``delays_by_route``, joined with its ``weather``.

    Days that may start at once share a run. A file that comes later, or again, triggers another run
    of its day.
    """
    return [
        _of_days(
            "flights",
            "The three origins of a day, or what there is six hours after the last file",
            on.partitions("raw/flights", count="all") | on.quiet("raw/flights", _PATIENCE),
        ),
        _of_days(
            "weather",
            "The 24 hours of a day, or what there is six hours after the last file",
            on.partitions("raw/weather", count="all") | on.quiet("raw/weather", _PATIENCE),
        ),
        _of_days(
            "delays_by_route",
            "Each day of flights",
            on.partitions("flights"),
        ),
        _of_days(
            "delay_summary",
            "Routes and weather of the same day, or six hours after one of them without the other",
            on.all_of(on.partitions("delays_by_route"), on.partitions("weather"), wait=_PATIENCE),
        ),
        Schedule(
            name="nightly_summary",
            description="Each night the day that ended",
            target=dg.AssetSelection.assets("nightly_summary"),
            trigger=on.cron("0 4 * * *", timezone=TIMEZONE, partition="last_ended"),
            partitions="each",
            tags=_RETRIED_AS_A_WHOLE,
            enabled=True,
        ),
    ]


def _of_days(asset: str, description: str, trigger: AnyTrigger) -> Schedule:
    return Schedule(
        name=asset,
        description=description,
        target=dg.AssetSelection.assets(asset),
        trigger=trigger,
        partitions="range",
        # Of two runs of one day at once, the older could be the one whose rows stay.
        constraints=[only.concurrency(1)],
        tags=_RETRIED_AS_A_WHOLE,
        enabled=True,
    )
