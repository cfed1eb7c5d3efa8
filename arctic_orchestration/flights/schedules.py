"""The three schedules of the flights lake."""

import dagster as dg

from arctic_orchestration import Schedule, on, only

#: A run that is killed after its last step has nothing that Dagster would retry from its failure;
#: and every run here may be repeated as a whole.
_RETRIED_AS_A_WHOLE = {"dagster/retry_strategy": "ALL_STEPS"}


def flights_schedules() -> list[Schedule]:
    """Files of a day → ``flights`` → ``delays_by_route``; each night weather and the summary.

    The three origins of a day make a run. At night a run takes the files of each day that is not
    complete, which would wait for ever if a file never came. A file that comes later makes a run
    of its own.
    """
    return [
        Schedule(
            name="flights",
            description="The three files of a day, or what there is at three in the morning",
            target=dg.AssetSelection.assets("flights"),
            trigger=on.partitions("raw/flights", count="all", per="date")
            | on.cron("0 3 * * *", timezone="America/New_York"),
            constraints=[only.concurrency(1)],
            tags=_RETRIED_AS_A_WHOLE,
            enabled=True,
        ),
        Schedule(
            name="delays_by_route",
            description="The days that a run of flights has filled",
            target=dg.AssetSelection.assets("delays_by_route"),
            trigger=on.run(assets=["flights"], status="success"),
            # Two rollups of one day at once could leave the older of them.
            constraints=[only.concurrency(1)],
            tags=_RETRIED_AS_A_WHOLE,
            enabled=True,
        ),
        Schedule(
            name="delay_summary",
            description="Weather and the summary of all days, each night",
            target=dg.AssetSelection.assets("weather", "delay_summary"),
            trigger=on.cron("0 4 * * *", timezone="America/New_York"),
            constraints=[only.concurrency(1)],
            tags=_RETRIED_AS_A_WHOLE,
            enabled=True,
        ),
    ]
