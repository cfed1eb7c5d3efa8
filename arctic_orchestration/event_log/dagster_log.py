"""The only reader of Dagster's storage: its event log as a feed, and its runs in bulk.

It uses parts that are no public API of Dagster: the tables ``event_logs``, ``runs`` and
``run_tags``, and the stored JSON of events and runs. No code outside this folder uses them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from dagster import AssetKey, DagsterInstance

from arctic_orchestration.dagster_internals import (
    event_log_storage_of,
    latest_materializations,
    run_storage_of,
    sqlite_event_log,
    sqlite_run_database,
)
from arctic_orchestration.errors import ConfigurationError, DatabaseUnavailable, InvalidInput
from arctic_orchestration.event_log import arrival_lookup, check_lookup
from arctic_orchestration.event_log.arrival_checks import ArrivalChecks
from arctic_orchestration.event_log.check_rows import evaluation, freshness_change
from arctic_orchestration.event_log.escaping import escaped, is_storable
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import Batch, FeedMode, Position
from arctic_orchestration.event_log.log_rows import (
    ARRIVALS,
    CHECK,
    FRESHNESS,
    OBSERVATION,
    RUN_STATUS_OF_TYPE,
    arrival,
    asset_name,
    run_moment,
)
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.run_failure import FAILURES, why_failed
from arctic_orchestration.event_log.runs import BulkSql, RunView, runs_by_id, runs_by_tag
from arctic_orchestration.event_log.sqlite_log import SqliteLog, SqliteSql
from arctic_orchestration.event_log.watermark import Row

_PARTITION_TAG = "dagster/partition"
_PLANNED = (
    "select distinct run_id, asset_key from event_logs "
    "where dagster_event_type = 'ASSET_MATERIALIZATION_PLANNED' and run_id {in}"
)


class _Log(Protocol):
    """Rows of ``event_logs`` in the order in which they become visible."""

    kind: str
    sql: Any

    @property
    def mode(self) -> FeedMode: ...
    @property
    def mode_reason(self) -> str: ...
    @property
    def lag(self) -> timedelta | None: ...
    def read(self, state: Any, limit: int) -> tuple[list[Row], dict[str, Any], bool]: ...
    def end(self) -> dict[str, Any]: ...
    def before(self, event_id: int) -> dict[str, Any]: ...
    def first_since(self, moment: datetime) -> int | None: ...
    def other_zone(self) -> str | None: ...
    def delivered(self, state: Any) -> tuple[int, IdRanges]: ...


class DagsterLog:
    """The feed of a Dagster instance, and look-ups of its runs."""

    def __init__(
        self,
        instance: DagsterInstance,
        *,
        location: str | None = None,
        known_as: str | None = None,
        observed_by_runs: bool = True,
        arrivals_of: Collection[str] | None = None,
    ) -> None:
        """Finds the storage; opens no database.

        Args:
            location: the code location of runs whose record names none, such as runs of
                ``dagster job execute``.
            known_as: Dagster's name of that location, if it is another one: RUN events of its
                runs get ``location`` instead. Other locations keep their names.
            observed_by_runs: whether an observation by a run is an arrival, like a
                materialization or an observation from outside.
            arrivals_of: only arrivals of these assets, as ``raw/flights``, become events, which
                saves most of the cost. None: all events.

        Errors:
            ConfigurationError: the storage is neither SQLite nor Postgres.
        """
        self._event_storage = event_log_storage_of(instance)
        self._log = _log_of(self._event_storage)
        self._run_storage = run_storage_of(instance)
        self._runs = run_sql_of(instance)
        self._location = location
        self._known_as = known_as
        self._observed_by_runs = observed_by_runs
        self._arrivals_of = None if arrivals_of is None else frozenset(arrivals_of)
        #: whether Dagster may retry failed runs itself
        self.retries_enabled = instance.run_retries_enabled

    @cached_property
    def storage_id(self) -> str:
        """The id of this Dagster storage, the same in all processes and for as long as it lives.

        Read on first use; Dagster gives an id to a storage without one.

        Errors:
            DatabaseUnavailable: the storage did not answer.
        """
        known = self._stored_ids()
        if not known:
            self._run_storage.get_run_storage_id()
            # Read again: of two processes that write one at the same time, both use the first.
            known = self._stored_ids()
        return str(known[0][0])

    @property
    def mode(self) -> FeedMode:
        """Whether every committed event is delivered once."""
        return self._log.mode

    @property
    def mode_reason(self) -> str:
        """The reason of the mode, as a sentence for people."""
        return self._log.mode_reason

    def read(self, position: Position | None, limit: int) -> Batch:
        """At most ``limit`` events that no reading up to ``position`` delivered; see ``Feed``.

        Cost: 0.3 to 2 ms without new events; 25 to 40 microseconds an arrival, a third of that for
        one that is not wanted; run status events cost two more statements a batch.
        """
        if limit < 1:
            raise InvalidInput("limit", limit, "at least 1")
        rows, state, more = self._log.read(self._state_of(position), limit)
        events = self._events([row for row in rows if self._is_wanted(row)])
        return Batch(
            events=events,
            position=Position({"storage": self._log.kind, **state}),
            more=more,
            mode=self._log.mode,
            lag=self._log.lag,
        )

    def end(self) -> Position:
        """Returns the position "from now on"; see ``Feed``."""
        return Position({"storage": self._log.kind, **self._log.end()})

    def before(self, event_id: int) -> Position:
        """Returns the position whose next reading begins with the event with this id."""
        return Position({"storage": self._log.kind, **self._log.before(event_id)})

    def delivered(self, position: Position) -> tuple[int, IdRanges]:
        """Returns which events the readings up to a position have delivered, by their ids.

        These are all up to an id, below which none can appear any more, and ranges above it.
        """
        return self._log.delivered(self._state_of(position))

    def final_up_to(self, position: Position) -> int:
        """Returns the id up to which no event can appear any more that was not delivered.

        SQLite has one writer at a time: what was not delivered comes with a larger id.
        """
        if self._log.kind == SqliteLog.kind:
            return 2**63 - 1
        return self.delivered(position)[0]

    def first_since(self, moment: datetime) -> int | None:
        """Returns the id of the first event that is not older than a moment, or None."""
        return self._log.first_since(moment)

    def other_zone(self) -> str | None:
        """Returns the time zone of Dagster's database if it has one that is not UTC."""
        return self._log.other_zone()

    def run_statuses(self, run_ids: Iterable[str]) -> Mapping[str, RunView]:
        """Returns the runs with these ids; deleted runs are left out. One statement."""
        return runs_by_id(self._runs, run_ids)

    def runs_by_tag(self, key: str, values: Iterable[str]) -> Mapping[str, tuple[RunView, ...]]:
        """Returns the runs whose tag ``key`` has one of the values, by value, oldest first."""
        return runs_by_tag(self._runs, key, values)

    def why_failed(self, run_id: str) -> str | None:
        """Returns why a run failed, in Dagster's own words, or None."""
        return why_failed(self._event_storage.get_logs_for_run(run_id, of_type=set(FAILURES)))

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        """Returns when each of some assets, given as ``raw/flights``, was last materialized.

        The last materialization of any partition counts. Observations, and materializations from
        before the asset was wiped, do not. Assets without one are left out. Two statements for
        any number of assets; one for each asset if Dagster cannot read one of its records.

        Errors:
            DatabaseUnavailable: the storage did not answer.
        """
        if not assets:
            return {}
        keys = {AssetKey.from_user_string(asset): asset for asset in assets}
        try:
            latest = latest_materializations(self._event_storage, list(keys))
            return {
                keys[key]: datetime.fromtimestamp(entry.timestamp, UTC)
                for key, entry in latest.items()
            }
        except Exception as error:
            # Besides the driver's errors, dagster-postgres raises errors of its own; and one record
            # that Dagster cannot read must not hide the others.
            try:
                return self._latest_rows(keys)
            except DatabaseUnavailable:
                raise DatabaseUnavailable(f"Dagster's event log: {error}") from error

    def _latest_rows(self, keys: Mapping[AssetKey, str]) -> dict[str, datetime]:
        rows = {asset: arrival_lookup.latest_row(self._log.sql, asset) for asset in keys.values()}
        return {asset: arrival(row).at for asset, row in rows.items() if row is not None}

    def backfills_of(self, run_ids: Iterable[str]) -> Mapping[str, str]:
        """Returns the backfills of runs, if any; see ``ArrivalLookup``. One statement."""
        return arrival_lookup.backfills_of(self._runs, run_ids)

    def arrived(
        self, asset: str, partitions: Collection[str], position: Position | None
    ) -> set[str]:
        """Returns the partitions that have arrived up to a position; see ``ArrivalLookup``.

        At most four statements, with one index look-up for each partition.
        """
        delivered = self._log.delivered(self._state_of(position))
        return arrival_lookup.arrived(
            self._log.sql, asset, partitions, delivered, observed_by_runs=self._observed_by_runs
        )

    def checks_of(self, arrivals: Sequence[Event]) -> Mapping[int, ArrivalChecks]:
        """Returns the checks of arrivals; see ``ArrivalLookup``. Two statements, two an asset."""
        return check_lookup.checks_of(self._log.sql, arrivals)

    def changed(self, arrivals: Sequence[Event]) -> set[int]:
        """Returns arrivals with another data version; see ``ArrivalLookup``. Three statements."""
        return arrival_lookup.changed(
            self._log.sql, arrivals, observed_by_runs=self._observed_by_runs
        )

    def latest_checks(
        self, assets: Sequence[str], partition: str | None = None
    ) -> Mapping[str, Mapping[str, Event | None]]:
        """Returns the latest evaluation of each check of some assets, by asset and check.

        An asset without checks is left out; a check that was only planned has None. With a
        partition, evaluations of other partitions are ignored. One or two statements an asset.

        Errors:
            DatabaseUnavailable: the storage did not answer.
        """
        return check_lookup.latest_checks(self._log.sql, assets, partition)

    def close(self) -> None:
        """Closes the connections."""
        self._log.sql.close()
        if self._runs is not self._log.sql:
            self._runs.close()

    def _state_of(self, position: Position | None) -> Any:
        if position is None:
            return None
        storage = position.state.get("storage")
        if storage != self._log.kind:
            raise InvalidInput(
                "position",
                storage,
                f"a position of Dagster's storage in {self._log.kind}; after moving to another "
                f"storage, start again from the end or the beginning",
            )
        return position.state

    def _is_wanted(self, row: Row) -> bool:
        _, kind, _, asset, _, run_id, _ = row
        if kind == OBSERVATION and run_id and not self._observed_by_runs:
            return False
        if self._arrivals_of is None:
            return True
        return kind in ARRIVALS and bool(asset) and asset_name(asset) in self._arrivals_of

    def _events(self, rows: Sequence[Row]) -> list[Event]:
        named = {row[5] for row in rows if row[1] in RUN_STATUS_OF_TYPE and row[5]}
        run_ids = {run_id for run_id in named if is_storable(run_id)}
        runs: Mapping[str, RunView] = {}
        planned: dict[str, list[str]] = {}
        if run_ids:
            runs = runs_by_id(self._runs, run_ids)
            for run_id, asset in self._log.sql.rows_in(_PLANNED, sorted(run_ids)):
                if asset:
                    planned.setdefault(run_id, []).append(asset_name(asset))
        events = []
        for row in rows:
            if row[1] in ARRIVALS:
                events.append(arrival(row))
            elif row[1] == CHECK:
                events.append(evaluation(row))
            elif row[1] == FRESHNESS:
                events.append(freshness_change(row))
            else:
                events.append(self._run_event(row, runs, planned))
        return check_lookup.with_checked_partitions(self._log.sql, events)

    def _run_event(
        self, row: Row, runs: Mapping[str, RunView], planned: Mapping[str, list[str]]
    ) -> Event:
        run_id = row[5]
        at, job, problem = run_moment(row)
        run = runs.get(run_id)
        if run is None:
            gone = f"run_id: got {run_id!r}, expected a run that is still in Dagster's storage"
            problem = f"{problem}; {gone}" if problem else gone
        assets = planned.get(run_id)
        if assets is None:
            assets = list(run.assets) if run else []
        tags = {escaped(str(k)): escaped(str(v)) for k, v in run.tags.items()} if run else {}
        location = self._location_of(run)
        return Event(
            kind=EventKind.RUN,
            subject=escaped(run.job if run else job),
            at=at,
            storage_id=row[0],
            run_id=escaped(run_id) if run_id else None,
            status=RUN_STATUS_OF_TYPE[row[1]],
            partition=tags.get(_PARTITION_TAG),
            location=None if location is None else escaped(location),
            assets=tuple(sorted(map(escaped, assets))),
            tags=tags,
            started=run.started if run else False,
            problem=None if problem is None else escaped(problem),
        )

    def _stored_ids(self) -> list[Row]:
        with self._runs.session() as run:
            return list(run("select run_storage_id from instance_info"))

    def _location_of(self, run: RunView | None) -> str | None:
        named = run.location if run else None
        if named is None or named == self._known_as:
            return self._location or named
        return named


def _log_of(storage: Any) -> _Log:
    sqlite = sqlite_event_log(storage)
    if sqlite is not None:
        return SqliteLog(sqlite)
    if type(storage).__module__.startswith("dagster_postgres."):
        from arctic_orchestration.event_log.postgres_log import PostgresLog

        return PostgresLog(storage)
    raise ConfigurationError(
        f"event log storage: got {type(storage).__name__}, expected Dagster's SQLite or Postgres "
        f"storage; see `storage:` in dagster.yaml (an instance in memory cannot be followed)"
    )


def run_sql_of(instance: DagsterInstance) -> Any:
    """Runs statements on the run storage of an instance.

    Errors:
        ConfigurationError: the storage is neither SQLite nor Postgres.
    """
    storage = run_storage_of(instance)
    sqlite = sqlite_run_database(storage)
    if sqlite is not None:
        return SqliteSql(sqlite)
    if type(storage).__module__.startswith("dagster_postgres."):
        from arctic_orchestration.event_log.postgres_log import PostgresSql

        return PostgresSql(storage)
    raise ConfigurationError(
        f"run storage: got {type(storage).__name__}, expected Dagster's SQLite or Postgres "
        f"storage; see `storage:` in dagster.yaml"
    )


__all__ = ["BulkSql", "DagsterLog", "RunView"]
