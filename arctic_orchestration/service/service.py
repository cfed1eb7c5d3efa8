"""What routes share: the state database, and the transactions of a caller."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import sqlalchemy as sa
from fastapi import BackgroundTasks, Depends, Request
from prometheus_client import CollectorRegistry

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import DatabaseUnavailable, MissingExtra, NotFound
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.dagster import catch_up
from arctic_orchestration.schedules.dagster.catch_up import Change
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.metrics import Metrics
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.service import tokens
from arctic_orchestration.service.access import AccessRules, Caller, caller_of
from arctic_orchestration.service.claim_waiters import ClaimWaiters
from arctic_orchestration.service.scopes import Scope
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs
from arctic_orchestration.state.tables import locations as locations_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Service:
    """The state database of one cluster, for the routes of one application."""

    settings: Settings
    database: Database
    rules: AccessRules
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    metrics: Metrics = field(init=False)
    waiters: ClaimWaiters = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", Metrics(self.registry))
        object.__setattr__(self, "waiters", ClaimWaiters(self.database))

    @cached_property
    def catalog(self) -> "Catalog":
        """The lake's catalog; opened once, when a worker needs a table.

        Errors:
            CatalogUnavailable: it did not answer, after several tries.
            ConfigurationError: it cannot be opened, or the state database is bound to another one.
        """
        try:
            from arctic_orchestration.compaction import catalog_binding
            from arctic_orchestration.lake.tables import open_catalog
        except ModuleNotFoundError as error:
            raise MissingExtra.of(error) or error
        catalog = open_catalog(self.settings)
        catalog_binding.require_same(self.database, catalog)
        return catalog

    def identify(
        self, request: Request, background: BackgroundTasks
    ) -> tuple[Actor, tuple[Scope, ...]]:
        """Returns who a request comes from, with all scopes; notes the use of its token later.

        Errors:
            RequestRefused: 401; its credentials are unknown, or missing.
        """
        now = utc_now()
        with self.database.read() as tx:
            actor, scopes, token = caller_of(self.rules, tx, request, self.settings.cluster)
        if token is not None and not tokens.is_use_noted(token, now):
            # After the answer: a busy writer must not hold up a request that only reads.
            background.add_task(self._note_use, token, now)
        return actor, scopes

    def _note_use(self, token: tokens.Token, now: datetime) -> None:
        with suppress(DatabaseUnavailable), self.database.begin() as tx:
            tokens.note_use(tx, token, now)

    @contextmanager
    def reading(
        self,
        caller: Caller,
        location: str | None = None,
        *,
        schedules: Sequence[str] | None = None,
    ) -> Iterator[tuple[sa.Connection, Location, ScheduleStore]]:
        """Begins a transaction that reads an object of a location, if the caller may.

        Args:
            caller: the caller, with the scope of the route.
            location: its name; None: the only one, or the only one that ticks.
            schedules: names of schedules, each of which the caller must be admitted to; None: the
                location itself.

        Errors:
            NotFound: no such location.
            RequestRefused: 403; the caller may not.
        """
        with self.database.read() as tx:
            place = self.place(tx, caller, location, schedules=schedules)
            yield tx, place, ScheduleStore()

    @contextmanager
    def changing(
        self,
        caller: Caller,
        location: str | None = None,
        *,
        ticks: bool = False,
        schedules: Sequence[str] | None = None,
    ) -> Iterator[Change]:
        """Begins a transaction that changes schedules, after reading Dagster's log to its end.

        Args and errors: as for :meth:`reading`; ``ticks`` as for :func:`~.catch_up.changing`.
        """
        with self.database.read() as tx:
            name = self.place(tx, caller, location, schedules=schedules).name
        state = State(self.database, self.settings.cluster, name)
        with catch_up.changing(state, utc_now(), note=_log.info, ticks=ticks) as change:
            yield change

    @contextmanager
    def locked(self, location: Location) -> Iterator[tuple[sa.Connection, Location]]:
        """Begins a transaction with a location locked, for changes of jobs."""
        with self.database.begin() as tx:
            yield tx, locations.locked(tx, location.cluster, location.name)

    def places(self, tx: sa.Connection, caller: Caller, location: str | None) -> list[Location]:
        """Returns the locations of which a caller may read something, by name.

        Errors:
            NotFound: ``location`` is given, and there is none of the name.
            RequestRefused: 403; the caller may read nothing of it.
        """
        if location is not None:
            if not _may_read_some(caller, location):
                caller.check(location=location)
            return [location_by_name(tx, self.settings.cluster, location)]
        query = sa.select(locations_table).where(locations_table.c.cluster == self.settings.cluster)
        found = [locations.from_row(row) for row in tx.execute(query).mappings()]
        # As pages compare names: databases sort texts by their own collations.
        found.sort(key=lambda place: place.name)
        return [place for place in found if _may_read_some(caller, place.name)]

    def place_of_job(self, tx: sa.Connection, job_id: str) -> Location:
        """Returns the location of a job.

        Errors:
            NotFound: the cluster has no such job.
        """
        query = sa.select(locations_table).join(jobs, jobs.c.location_id == locations_table.c.id)
        this = (jobs.c.id == job_id) & (locations_table.c.cluster == self.settings.cluster)
        row = tx.execute(query.where(this)).mappings().one_or_none()
        if row is None:
            raise NotFound(f"cluster {self.settings.cluster} has no job {job_id}")
        return locations.from_row(row)

    def place(
        self,
        tx: sa.Connection,
        caller: Caller,
        location: str | None,
        *,
        schedules: Sequence[str] | None = None,
    ) -> Location:
        """Returns a location, if the caller may do it to the object there.

        Args and errors: as for :meth:`reading`.
        """
        if location is not None:
            # Before it is known whether the location exists.
            self._check(caller, location, schedules)
        place = location_by_name(tx, self.settings.cluster, location, utc_now())
        self._check(caller, place.name, schedules)
        return place

    def _check(self, caller: Caller, location: str, schedules: Sequence[str] | None) -> None:
        if schedules is None or not _may_read_some(caller, location):
            caller.check(location=location)
        for name in schedules or ():
            caller.check(location=location, schedule=name)


def _may_read_some(caller: Caller, location: str) -> bool:
    """Returns whether a caller may see some object of a location."""
    return any(scope.reaches(caller.room, caller.verb, location) for scope in caller.scopes)


async def _service(request: Request) -> Service:
    # Not a thread's: it waits for nothing.
    service: Service = request.app.state.service
    return service


ServiceOfApp = Annotated[Service, Depends(_service)]
