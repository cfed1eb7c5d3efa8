"""Which partitions a run is for: those it was started with, or those its schedule hands it."""

from collections.abc import Iterable, Sequence
from datetime import date

import dagster as dg

from arctic_orchestration import ArcticResource
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.flights.feeds import FIRST_DAY, LAST_DAY

#: The metadata entry by which a run that filled ``flights`` says which days it touched.
DAYS = "days"


def requested_partitions(context: dg.AssetExecutionContext, arctic: ArcticResource) -> list[str]:
    """The partition keys this run is for; empty when nobody named any.

    A run of a partition, or of a range of them, has its keys from Dagster; one that a schedule
    started has those of its events.
    """
    if context.has_partition_key or context.has_partition_key_range:
        return list(context.partition_keys)
    return arctic.partitions


def days_filled_by(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> list[date]:
    """The days that these runs brought into ``flights``, as their materializations say."""
    days: set[date] = set()
    for run_id in run_ids:
        for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
            materialization = entry.asset_materialization
            if materialization is None or materialization.asset_key != dg.AssetKey("flights"):
                continue
            listed = materialization.metadata.get(DAYS)
            if isinstance(listed, dg.JsonMetadataValue) and isinstance(listed.data, list):
                days.update(date.fromisoformat(str(day)) for day in listed.data)
    return sorted(days)


def days_of(keys: Sequence[str]) -> list[date]:
    """The days of partition keys, each ``2013-01-01`` or ``2013-01-01|EWR``, without repeats.

    Errors:
        InvalidInput: a key is neither.
    """
    return sorted({_day(key) for key in keys})


def _day(key: str) -> date:
    try:
        day = date.fromisoformat(key.partition("|")[0])
    except ValueError:
        day = None
    if day is None or not FIRST_DAY <= day <= LAST_DAY:
        raise InvalidInput("partition", key, "a day of 2013, as in 2013-01-01")
    return day
