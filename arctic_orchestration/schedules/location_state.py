"""One location in the state database, for commands and the service."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules import event_intake
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.database import Database


class State:
    """One location in the state database."""

    def __init__(self, database: Database, cluster: str, name: str | None) -> None:
        self._database = database
        self.cluster = cluster
        self._name = name
        self.store = ScheduleStore()

    @contextmanager
    def read(self) -> Iterator[tuple[sa.Connection, Location]]:
        """Begins a transaction that only reads."""
        with self._database.read() as tx:
            yield tx, location_by_name(tx, self.cluster, self._name, utc_now())

    def read_on(self, log: Any, now: datetime) -> list[str]:
        """Reads an event log to its end for the location, as its dispatcher would.

        Returns runs to terminate: their jobs were canceled before the run was seen.
        """
        with self.read() as (_, place):
            name = place.name
        return event_intake.read_on(self._database, self.cluster, name, log, log, self.store, now)

    @contextmanager
    def change(self) -> Iterator[tuple[sa.Connection, Location]]:
        """Begins a transaction that writes, with the location locked against its dispatcher."""
        with self._database.begin() as tx:
            named = location_by_name(tx, self.cluster, self._name, utc_now())
            yield tx, locations.locked(tx, self.cluster, named.name)
