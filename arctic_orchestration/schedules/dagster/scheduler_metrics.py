"""The asset ``arctic/scheduler``: the history of the scheduler's numbers, which Dagster plots.

The numbers are summed over all code locations of the cluster, so that there is one history
whichever location reports it; a table lists them by location. The dispatcher reports them without a
run; a person can observe the asset at any time.
"""

import warnings
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime

import dagster as dg

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.views.numbers import NONE, Numbers, numbers
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

SCHEDULER = dg.AssetKey(["arctic", "scheduler"])

_Metadata = dict[str, int | float | dg.MarkdownMetadataValue]


def scheduler_asset() -> dg.SourceAsset:
    """Returns the observable asset; opens no database before it is observed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.observable_source_asset(
            key=SCHEDULER,
            group_name="arctic",
            description="How the scheduler of this cluster is doing: jobs that wait and run, "
            "and what ended and arrived in the last hour.",
        )
        def scheduler() -> dg.ObserveResult:
            settings = Settings.from_environment()
            with closing(Database.open(settings.database_url)) as database:
                found = read_metadata(database, settings.cluster, utc_now())
            return dg.ObserveResult(metadata=found)

    return scheduler


def observation(database: Database, cluster: str, now: datetime) -> dg.AssetObservation:
    """Returns the numbers at ``now``, as an observation that needs no run.

    Errors:
        DatabaseUnavailable: the state database did not answer.
    """
    return dg.AssetObservation(asset_key=SCHEDULER, metadata=read_metadata(database, cluster, now))


def reported_at(instance: dg.DagsterInstance) -> datetime | None:
    """Returns when the numbers were last observed, in any way."""
    records = instance.fetch_observations(SCHEDULER, limit=1).records
    return datetime.fromtimestamp(records[0].timestamp, UTC) if records else None


def read_metadata(database: Database, cluster: str, now: datetime) -> _Metadata:
    """Returns the numbers of a cluster by their names in the UI, and a table of its locations."""
    with database.read() as tx:
        found = numbers(tx, cluster, now)
    total = NONE
    for one in found.values():
        total = total.plus(one)
    metadata: _Metadata = {**_named(total)}
    metadata["by code location"] = dg.MetadataValue.md(_table(found))
    return metadata


def _named(found: Numbers) -> dict[str, int | float]:
    return {
        "jobs waiting for their trigger": found.living[JobState.WAITING_TRIGGER],
        "jobs held by constraints": found.living[JobState.WAITING_CONSTRAINTS],
        "jobs launching": found.living[JobState.LAUNCHING],
        "jobs launched": found.living[JobState.LAUNCHED],
        "oldest wait for constraints (s)": found.oldest_wait.total_seconds(),
        "events taken": found.events,
        "events taken in the last hour": found.recent_events,
        "jobs succeeded in the last hour": found.ended[JobState.SUCCEEDED],
        "jobs failed in the last hour": found.ended[JobState.FAILED],
        "jobs canceled in the last hour": found.ended[JobState.CANCELED],
        "jobs discarded in the last hour": found.ended[JobState.DISCARDED],
    }


def _table(found: Mapping[str, Numbers]) -> str:
    """Returns a row for each number, a column for each location."""
    columns = {name: _named(one) for name, one in found.items()}
    lines = [
        "| | " + " | ".join(name.replace("|", "\\|") for name in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for number in _named(NONE):
        values = " | ".join(f"{column[number]:,.0f}" for column in columns.values())
        lines.append(f"| {number} | {values} |")
    return "\n".join(lines)
