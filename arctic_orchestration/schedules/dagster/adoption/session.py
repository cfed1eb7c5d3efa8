"""One adoption after another, for the command: finds both sides of each and does the steps."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime

import dagster as dg
import sqlalchemy as sa

from arctic_orchestration.errors import NotFound, TransitionRefused
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.schedules.adoption import cut_over, journal, way_back
from arctic_orchestration.schedules.adoption.instigator import Instigator
from arctic_orchestration.schedules.adoption.journal import Adoption, Step
from arctic_orchestration.schedules.adoption.place import Place
from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted
from arctic_orchestration.schedules.dagster.adoption.workspace import LoadedRepository
from arctic_orchestration.schedules.imports.draft import Outcome
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations


@dataclass(frozen=True, kw_only=True)
class Item:
    """An object of Dagster, with its location in the state database."""

    drafted: Drafted
    instigator: Instigator
    place: Place

    @property
    def name(self) -> str:
        return self.drafted.name

    def adoption(self) -> Adoption | None:
        """Returns the row of the journal, or None."""
        with self.place.state.read() as (tx, location):
            return journal.find(tx, location, self.name)


@dataclass(kw_only=True)
class Session:
    """Adoptions in one state database and one Dagster instance."""

    database: Database
    cluster: str
    instance: dg.DagsterInstance
    repositories: Sequence[LoadedRepository]
    clock: Callable[[], datetime]
    actor: Actor
    _places: dict[str, Place] = field(default_factory=dict)
    _opened: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Closes the event logs."""
        self._opened.close()

    def find(self, name: str) -> Item:
        """Returns the object with a name.

        Errors:
            NotFound: no repository has it, or its code location has no dispatcher that ticks.
            TransitionRefused: it cannot be adopted.
        """
        found = [
            (repository, drafted)
            for repository in self.repositories
            for drafted in repository.drafts
            if drafted.name == name
        ]
        if not found:
            known = sorted({one.name for repo in self.repositories for one in repo.drafts})
            raise NotFound(f"no schedule or sensor is called {name}; there are: {', '.join(known)}")
        if len(found) > 1:
            places = ", ".join(repository.owner for repository, _ in found)
            raise TransitionRefused(f"{name} is in {places}: choose one, with --location")
        ((repository, drafted),) = found
        return Item(
            drafted=drafted,
            instigator=repository.instigator(self.instance, drafted),
            place=self._place(repository),
        )

    def cut_over(self, name: str, *, approximate: bool = False) -> Item:
        """Begins a cut-over, or finds one that was begun; nothing is stopped yet.

        Errors:
            TransitionRefused: it is not exact, and ``approximate`` does not allow for that; or its
                function has to be declared in code first.
        """
        item = self.find(name)
        drafted = item.drafted
        schedule, reasons = drafted.schedule, "; ".join(drafted.draft.reasons)
        if schedule is None:
            raise TransitionRefused(f"{name} cannot be cut over: {reasons}")
        hooked = any(
            schedule.name in repository.hooked
            for repository in self.repositories
            if drafted in repository.drafts
        )
        if drafted.hook is not None and not hooked:
            raise TransitionRefused(
                f"{name}: its function decides about each run. Declare the schedule in code, "
                f"suspended, and deploy it first:\n{drafted.python}"
            )
        if drafted.outcome is Outcome.APPROXIMATE and not approximate:
            raise TransitionRefused(f"{name} differs: {reasons}. Accept that with --approximate")
        cut_over.prepare(item.place, item.instigator, schedule)
        return item

    def forward(self, item: Item) -> str | None:
        """Does what can be done of a cut-over; returns what it waits for, or None: it is done."""
        while True:
            adoption = item.adoption()
            if adoption is None or adoption.step not in (Step.PREPARED, Step.STOPPED):
                return None
            waits = cut_over.advance(item.place, item.instigator, adoption)
            if waits is not None:
                return waits

    def back(self, item: Item) -> str | None:
        """Does what can be done of a way back; returns what it waits for, or None: it is done."""
        while True:
            adoption = item.adoption()
            if adoption is None:
                return None
            waits = way_back.advance(item.place, item.instigator, adoption)
            if waits is not None:
                return waits

    def _cancel(self, run_id: str) -> None:
        # The next event of the run gives the dispatcher another chance.
        with suppress(Exception):
            self.instance.run_coordinator.cancel_run(run_id)

    def _place(self, repository: LoadedRepository) -> Place:
        if repository.owner not in self._places:
            mine = (locations.c.cluster == self.cluster) & (locations.c.owner == repository.owner)
            with self.database.read() as tx:
                name = tx.execute(sa.select(locations.c.name).where(mine)).scalar_one_or_none()
            if name is None:
                raise NotFound(
                    f"no dispatcher of {repository.owner} has ticked: merge arctic.definitions() "
                    "into its definitions, and start Dagster's daemon (see: arctic doctor)"
                )
            log = DagsterLog(self.instance, location=name, known_as=repository.location)
            self._opened.callback(log.close)
            self._places[repository.owner] = Place(
                state=State(self.database, self.cluster, name),
                log=log,
                clock=self.clock,
                cancel=self._cancel,
                actor=self.actor,
            )
        return self._places[repository.owner]
