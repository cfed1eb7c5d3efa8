"""An asset of the day that ended, partitioned by the day on which files arrive.

The days of the flights end with 31 December 2013, which therefore stays the last one that ended.
Their files arrive today: each night there is a summary of what arrived.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from arctic_orchestration.flights.assets import raw_flights, raw_weather
from arctic_orchestration.flights.feeds import TIMEZONE

_PAGE = 1_000

nights = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone=TIMEZONE)


@dg.asset(partitions_def=nights, group_name="flights")
def nightly_summary(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """What arrived on a day: the files, rows and bytes of each feed, from Dagster's event log."""
    return dg.MaterializeResult(metadata=arrived(context.instance, context.partition_time_window))


def arrived(instance: dg.DagsterInstance, window: dg.TimeWindow) -> dict[str, Any]:
    """Returns how many files arrived in a window, and the files, rows and bytes of each feed."""
    found: dict[str, Any] = {}
    for source in (raw_flights, raw_weather):
        wanted = dg.AssetRecordsFilter(
            asset_key=source.key,
            after_timestamp=window.start.timestamp(),
            before_timestamp=window.end.timestamp(),
        )
        # A file that arrived more than once counts once.
        files = {one.partition: one for one in _materializations(instance, wanted)}
        found[source.key.to_user_string()] = {
            "files": len(files),
            "rows": sum(_number(one, "rows") for one in files.values()),
            "bytes": sum(_number(one, "bytes") for one in files.values()),
        }
    return {"files": sum(feed["files"] for feed in found.values()), **found}


def _materializations(
    instance: dg.DagsterInstance, wanted: dg.AssetRecordsFilter
) -> Iterator[dg.AssetMaterialization]:
    cursor, more = None, True
    while more:
        page = instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
        yield from (one.asset_materialization for one in page.records if one.asset_materialization)
        cursor, more = page.cursor, page.has_more


def _number(materialization: dg.AssetMaterialization, name: str) -> int:
    value = materialization.metadata.get(name)
    return value.value if isinstance(value, dg.IntMetadataValue) and value.value else 0
