"""The storage metrics of each lake table, as the history of an asset that Dagster plots.

The table ``nyc.flights`` has the asset ``arctic/compaction/nyc/flights``. The sensor reports to it
without a run: after each commit of compaction, and when the table or its tasks have changed, but at
most every few minutes. These assets are separate from the assets that fill the tables: an
observation of those would count as an arrival, and fire schedules.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.errors import UnsupportedTable
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.compaction_tables import (
    compaction_records,
    compaction_tasks,
    is_live,
)
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

#: Labels that identify the state of the table in an observation.
SNAPSHOT, RECORD, TASKS = "snapshot", "last commit of compaction", "tasks"
REFUSED = "not compacted"
OBSERVED = "would be merged"

Metadata = dict[str, int | float | str | dg.TimestampMetadataValue]


def key_of(table: str) -> dg.AssetKey:
    """Returns the asset with the history of a table's metrics."""
    return dg.AssetKey(["arctic", "compaction", *table.split(".")])


def table_asset(table: str, settings: Settings | None) -> dg.SourceAsset:
    """Returns the observable asset of a table; opens catalog and database only when observed.

    Args:
        table: its name in the catalog.
        settings: none: read from the environment when it is observed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.observable_source_asset(
            key=key_of(table),
            group_name="arctic",
            description=f"How the table {table} lies on the disk: files, small files, bytes, "
            "read amplification, and what compaction did last.",
        )
        def numbers() -> dg.ObserveResult:
            from arctic_orchestration.lake.tables import open_catalog

            chosen = settings or Settings.from_environment()
            with closing(Database.open(chosen.database_url)) as database:
                found = read_metadata(database, open_catalog(chosen), table)
            return dg.ObserveResult(metadata=found)

    return numbers


def read_metadata(database: Database, catalog: "Catalog", table: str) -> Metadata:
    """Returns the present metrics of a table, by their names in the UI; reads its manifests.

    Errors:
        LakeError: the catalog or a manifest cannot be read.
        NotFound: the catalog does not have the table.
        DatabaseUnavailable: the state database did not answer.
    """
    from arctic_orchestration.lake.manifests import table_numbers
    from arctic_orchestration.lake.tables import load_table

    loaded = load_table(catalog, table)
    policy = Policy.or_default(loaded.properties, table)
    with database.read() as tx:
        live = _live_tasks(tx).get(table, 0)
        last = records.records(tx, table=table, limit=1)
        row = tables.find_table(tx, table)
    snapshot = loaded.current_snapshot()
    metadata: Metadata = {SNAPSHOT: str(snapshot.snapshot_id) if snapshot else "none", TASKS: live}
    try:
        found = table_numbers(loaded, target_bytes=policy.target_size, small_bytes=policy.done_size)
    except UnsupportedTable as error:
        return {**metadata, REFUSED: str(error)}
    metadata |= {
        "files": found.files,
        "small files": found.small_files,
        "bytes": found.bytes,
        "rows": found.rows,
        "delete files": found.delete_files,
        "partitions": found.partitions,
        "read amplification": round(found.read_amplification, 3),
    }
    if row is not None and row.refused is not None:
        metadata[REFUSED] = row.refused
    if row is not None and row.observed_reason is not None:
        metadata[OBSERVED] = row.observed_reason
    return metadata | (_of_record(last[0]) if last else {})


def _of_record(record: CompactionRecord) -> Metadata:
    return {
        RECORD: str(record.snapshot_id),
        "committed at": dg.MetadataValue.timestamp(record.at),
        "tasks committed": len(record.tasks),
        "files merged": record.files_in,
        "files written": record.files_out,
        "delete files removed": record.delete_files_removed,
        "bytes merged": record.bytes_in,
        "bytes written": record.bytes_out,
        "merging (s)": round(record.merge_seconds, 3),
        "waiting (s)": round(record.waited_seconds, 3),
    }


@dataclass(frozen=True, kw_only=True)
class _State:
    """The reported state of a table."""

    snapshot: str
    record: str
    tasks: int
    refused: bool


@dataclass(frozen=True, kw_only=True)
class _Reported:
    at: datetime
    state: _State | None


class ReportClock:
    """Determines the tables with metrics to report.

    Args:
        every: the minimum interval between two reports of a table without a commit.
    """

    #: the maximum at once: each requires reading a table's manifests
    MOST = 20
    #: the maximum of tables that are looked up at once in Dagster's storage
    MOST_LOOKUPS = 200

    def __init__(self, every: timedelta) -> None:
        self._every = every
        self._reported: dict[str, _Reported] = {}

    def due(
        self,
        database: Database,
        instance: dg.DagsterInstance,
        now: datetime,
        covers: Callable[[str], bool],
    ) -> Mapping[str, "_State"]:
        """Returns the due tables, longest unreported first, with the states that will be reported.

        Only tables whose name ``covers`` accepts.

        Cost: three statements; and one in Dagster's storage on the first use of a table, as another
        code server may have reported it. Where many are new, the next calls look up the others.

        Errors:
            DatabaseUnavailable: the state database did not answer.
        """
        with database.read() as tx:
            known = [
                table
                for table in tables.all_tables(tx)
                if table.gone_at is None and covers(table.name)
            ]
            live = _live_tasks(tx)
            last = _last_snapshots(tx)
        new = [table.name for table in known if table.name not in self._reported]
        for name in new[: self.MOST_LOOKUPS]:
            self._reported[name] = self._look_up(name, instance)
        found: list[tuple[datetime, str, _State]] = []
        for table in known:
            state = _state(table, last.get(table.name), live.get(table.name, 0))
            reported = self._reported.get(table.name)
            if reported is not None and _is_due(reported, state, self._every, now):
                found.append((reported.at, table.name, state))
        found.sort(key=lambda one: (one[0], one[1]))
        return {name: state for _, name, state in found[: self.MOST]}

    def note_reading(self, table: str, state: "_State", now: datetime) -> None:
        """Records that a table's metrics are being read: a failure counts as its turn, too."""
        self._reported[table] = _Reported(at=now, state=state)

    def note_report(self, table: str, observation: dg.AssetObservation, now: datetime) -> None:
        """Records what was reported, which may be a later state than the requested one."""
        self._reported[table] = _Reported(at=now, state=_reported_state(observation))

    @staticmethod
    def _look_up(table: str, instance: dg.DagsterInstance) -> _Reported:
        stored = instance.fetch_observations(key_of(table), limit=1).records
        if not stored:
            return _Reported(at=datetime.min.replace(tzinfo=UTC), state=None)
        found = stored[0].asset_observation
        state = _reported_state(found) if found is not None else None
        return _Reported(at=datetime.fromtimestamp(stored[0].timestamp, UTC), state=state)


def _reported_state(observation: dg.AssetObservation) -> _State:
    values: dict[str, Any] = {name: value.value for name, value in observation.metadata.items()}
    return _State(
        snapshot=str(values.get(SNAPSHOT)),
        record=str(values.get(RECORD, "")),
        tasks=tasks if isinstance(tasks := values.get(TASKS), int) else 0,
        refused=REFUSED in values,
    )


def _is_due(reported: _Reported, state: _State, every: timedelta, now: datetime) -> bool:
    before = reported.state
    if before is None or before.record != state.record:
        return True
    # A clock that was set back does not delay the next report.
    lately = timedelta(0) <= now - reported.at < every
    return not lately and before != state


def _state(table: CompactionTable, record: int | None, tasks: int) -> _State:
    looked = table.looked_snapshot_id if table.observed_at is None else table.observed_snapshot_id
    return _State(
        snapshot="none" if looked is None else str(looked),
        record="" if record is None else str(record),
        tasks=tasks,
        refused=table.refused is not None,
    )


def observations(
    database: Database, catalog: "Catalog", names: Sequence[str]
) -> tuple[dict[str, dg.AssetObservation], list[str]]:
    """Returns the metrics of tables as observations that need no run, and the errors."""
    made, troubles = {}, []
    for name in names:
        try:
            metadata = read_metadata(database, catalog, name)
        except Exception as error:
            troubles.append(f"the numbers of {name} could not be read: {error}")
            continue
        made[name] = dg.AssetObservation(asset_key=key_of(name), metadata=metadata)
    return made, troubles


def _live_tasks(tx: sa.Connection) -> dict[str, int]:
    task = compaction_tasks.c
    query = sa.select(task.table_name, sa.func.count()).where(is_live).group_by(task.table_name)
    return {row.table_name: row[1] for row in tx.execute(query)}


def _last_snapshots(tx: sa.Connection) -> dict[str, int]:
    """Returns the snapshot of each table's newest record."""
    col = compaction_records.c
    newest = sa.select(sa.func.max(col.id)).group_by(col.table_name)
    query = sa.select(col.table_name, col.snapshot_id).where(col.id.in_(newest))
    return {row.table_name: row[1] for row in tx.execute(query)}
