"""Writes arrivals from outside of Dagster into its event log, as materializations without a run."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import sqlalchemy as sa

from arctic_orchestration.dagster_internals import (
    event_log_storage_of,
    runless_entry,
    sqlite_event_log,
    store_runless_entries,
)
from arctic_orchestration.errors import ConfigurationError, DatabaseUnavailable
from arctic_orchestration.state.dialect import driver_errors

#: the tag of materializations with the id of their announcement
ANNOUNCEMENT_TAG = "arctic/announcement"
#: the maximum of an integer column
LARGEST = 2**63 - 1
#: how long an announcement waits for another one, or for the rows of its assets
_LOCK_SECONDS = 10
_ARRIVALS = (
    "select event from event_logs where id > :after and asset_key = :asset and partition = :key "
    "and dagster_event_type = 'ASSET_MATERIALIZATION'"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """A partition that has arrived.

    Attributes:
        asset: the asset's key, as ``raw/flights``.
        partition: the partition key.
        path: where its data is.
        metadata: ``bytes``, ``rows`` and others, as JSON values.
    """

    asset: str
    partition: str
    path: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def materialization(self, tags: Mapping[str, str] | None = None) -> dg.AssetMaterialization:
        """Returns the event that stands for it in Dagster's log."""
        path = {} if self.path is None else {"path": dg.MetadataValue.path(self.path)}
        return dg.AssetMaterialization(
            asset_key=dg.AssetKey(self.asset.split("/")),
            partition=self.partition,
            metadata={**path, **self.metadata},
            tags=tags,
        )


class Announcer:
    """Writes announcements into the event log of an instance.

    Errors:
        ConfigurationError: its storage is neither SQLite nor Postgres.
    """

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._storage = event_log_storage_of(instance)
        self._is_sqlite = sqlite_event_log(self._storage) is not None
        if not self._is_sqlite and not hasattr(self._storage, "postgres_url"):
            kind = type(self._storage).__name__
            raise ConfigurationError(
                f"event log storage: got {kind}, expected Dagster's SQLite or Postgres storage"
            )

    def last_event(self) -> int:
        """Returns the id of the newest event.

        Errors:
            DatabaseUnavailable: the storage does not answer.
        """
        try:
            return self._storage.get_maximum_record_id() or 0
        except sa.exc.SQLAlchemyError as error:
            raise DatabaseUnavailable(f"Dagster's event log: {error}") from error

    def announce(self, arrivals: Sequence[Arrival], id: str, after: int) -> None:
        """Writes arrivals, all or none; nothing if they are in the log already.

        One transaction of Dagster's own database looks for the announcement and writes it, under a
        lock. So it is written once, whatever ends the process and however many write it at once.

        Args:
            arrivals: at least one.
            id: of the announcement, at most 63 letters and digits; its events get it as a tag.
            after: an event before the announcement, to search less.

        Errors:
            DatabaseUnavailable: the storage does not answer; nothing was written.
        """
        tags = {ANNOUNCEMENT_TAG: id}
        entries = [runless_entry(arrival.materialization(tags)) for arrival in arrivals]
        asset = dg.AssetKey(arrivals[0].asset.split("/")).to_string()
        first = {"after": after, "asset": asset, "key": arrivals[0].partition}

        def is_new(connection: sa.Connection) -> bool:
            self._lock(connection, id)
            stored = connection.execute(sa.text(_ARRIVALS), first).scalars()
            return not any(_announcement_of(event) == id for event in stored)

        try:
            store_runless_entries(self._storage, entries, is_new)
        except sa.exc.SQLAlchemyError as error:
            raise DatabaseUnavailable(f"Dagster's event log: {error}") from error
        except driver_errors() as error:
            raise DatabaseUnavailable(f"Dagster's event log: {error}") from error

    def _lock(self, connection: sa.Connection, id: str) -> None:
        """Locks out other writers of the announcement until the end of the transaction."""
        if self._is_sqlite:
            connection.exec_driver_sql("begin immediate")
            return
        number = int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big", signed=True)
        # Not for ever: the process that has it may be stopped, and repeats would take all threads.
        connection.exec_driver_sql(f"set local lock_timeout = '{_LOCK_SECONDS}s'")
        connection.execute(sa.text("select pg_advisory_xact_lock(:number)"), {"number": number})


def _announcement_of(event: str) -> str | None:
    entry = dg.deserialize_value(event, dg.EventLogEntry)
    materialization = entry.asset_materialization
    return None if materialization is None else (materialization.tags or {}).get(ANNOUNCEMENT_TAG)
