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
from arctic_orchestration.schedules.adoption.comparison import Comparison, compare, of_shadow
from arctic_orchestration.schedules.adoption.journal import Adoption, Step
from arctic_orchestration.schedules.adoption.place import Place
from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted
from arctic_orchestration.schedules.dagster.adoption.instigators import (
    ScheduleInstigator,
    SensorInstigator,
)
from arctic_orchestration.schedules.dagster.adoption.ticks import decided
from arctic_orchestration.schedules.dagster.adoption.workspace import LoadedRepository
from arctic_orchestration.schedules.imports.draft import Outcome
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.schedules.views.adoptions import steps
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations


@dataclass(frozen=True, kw_only=True)
class Item:
    """An object of Dagster, with its location in the state database."""

    drafted: Drafted
    instigator: ScheduleInstigator | SensorInstigator
    place: Place

    @property
    def name(self) -> str:
        return self.drafted.name

    def adoption(self) -> Adoption | None:
        """Returns the row of the journal, or None."""
        with self.place.state.read() as (tx, location):
            return journal.find(tx, location, self.name)

    def is_adopted(self) -> bool:
        """Whether the schedule has begun, and nothing has ended it."""
        adoption = self.adoption()
        return adoption is not None and adoption.step is Step.ADOPTED

    def is_suspended(self, schedule: str) -> bool:
        """Whether a schedule of the location exists and fires nothing."""
        store = self.place.state.store
        with self.place.state.read() as (tx, location):
            return any(
                one.suspended for one in store.in_location(tx, location.id) if one.name == schedule
            )


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
            self._refuse_what_left(name)
            known = sorted({one.name for repo in self.repositories for one in repo.drafts})
            raise NotFound(f"no schedule or sensor is called {name}; there are: {', '.join(known)}")
        if len(found) > 1:
            places = ", ".join(repository.owner for repository, _ in found)
            raise TransitionRefused(f"{name} is in {places}: choose one, with --location")
        return self._item(*found[0])

    def _item(self, repository: LoadedRepository, drafted: Drafted) -> Item:
        return Item(
            drafted=drafted,
            instigator=repository.instigator(self.instance, drafted),
            place=self._place(repository),
        )

    def _refuse_what_left(self, name: str) -> None:
        with self.database.read() as tx:
            known = steps(tx, self.cluster)
        for repository in self.repositories:
            step = known.get((repository.owner, name))
            if step is not None:
                raise TransitionRefused(
                    f"{name} is {step}, and no longer in the code of {repository.location}: put it "
                    "there again to hand it back, or suspend or delete its schedule"
                )

    def cut_over(self, name: str, *, approximate: bool = False, shadowed: bool = False) -> Item:
        """Begins a cut-over, or finds one that was begun; nothing is stopped yet.

        ``shadowed``: begins a shadow instead, which needs no further step.

        Errors:
            As of :meth:`check`, or TransitionRefused: a step of another kind was begun.
        """
        item = self.check(name, approximate=approximate, shadowed=shadowed)
        assert item.drafted.schedule is not None
        cut_over.prepare(
            item.place,
            item.instigator,
            item.drafted.schedule,
            shadowed=shadowed,
            hooked=item.drafted.hook is not None,
        )
        return item

    def check(self, name: str, *, approximate: bool, shadowed: bool) -> Item:
        """Returns an object that can be cut over or shadowed.

        Errors:
            NotFound: no repository has it, or its code location has no dispatcher that ticks.
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
        if drafted.outcome is Outcome.APPROXIMATE and not (approximate or shadowed):
            raise TransitionRefused(f"{name} differs: {reasons}. Accept that with --approximate")
        return item

    def in_shadow(self, name: str) -> Item:
        """Returns an object whose schedule is in shadow, or which is not adopted at all.

        Errors:
            TransitionRefused: it is cut over.
        """
        item = self.find(name)
        adoption = item.adoption()
        if adoption is not None and adoption.step is not Step.SHADOWED:
            raise TransitionRefused(
                f"{name} is not in shadow but {adoption.step}: hand it back with "
                f"arctic adopt --back {name}"
            )
        return item

    def shadows(self, names: Sequence[str]) -> list[tuple[Item, Adoption]]:
        """Returns the objects that are in shadow; without names, all of them.

        Errors:
            NotFound: a name is not in shadow.
        """
        with self.database.read() as tx:
            known = steps(tx, self.cluster)
        # Objects of several code locations may have one name.
        found = [
            (repo, one)
            for repo in self.repositories
            for one in repo.drafts
            if known.get((repo.owner, one.name)) == Step.SHADOWED
        ]
        for name in names:
            if name not in {one.name for _, one in found}:
                raise NotFound(f"{name} is not in shadow: see arctic adopt --shadow {name}")
        items = [self._item(*pair) for pair in found if not names or pair[1].name in names]
        return [(item, adoption) for item in items if (adoption := item.adoption()) is not None]

    def compare(self, item: Item, adoption: Adoption) -> Comparison:
        """Returns how the decisions of a schedule in shadow differ from Dagster's."""
        # Dagster's first: what it has decided about was there for ours to take.
        theirs = decided(item.instigator, adoption, self.clock())
        by_clock = item.instigator.by_clock
        ours, is_delivered = of_shadow(item.place, adoption, by_clock=by_clock)
        return compare(ours, theirs, is_delivered)

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
                self._unfence(item)
                return None
            waits = way_back.advance(item.place, item.instigator, adoption)
            if waits is not None:
                return waits

    def _unfence(self, item: Item) -> None:
        """Removes the fence of what has no journal: lost with its location or state database."""
        # A cut-over that begins meanwhile writes its journal first, and waits for this lock.
        with item.place.state.change() as (tx, location):
            if journal.find(tx, location, item.name) is None:
                item.instigator.unfence(self.clock())

    def _cancel(self, run_id: str) -> None:
        # The next event of the run gives the dispatcher another chance.
        with suppress(Exception):
            self.instance.run_coordinator.cancel_run(run_id)

    def _place(self, repository: LoadedRepository) -> Place:
        if repository.owner not in self._places:
            ours = sa.select(locations.c.owner, locations.c.name).where(
                locations.c.cluster == self.cluster, locations.c.owner.is_not(None)
            )
            with self.database.read() as tx:
                # Of several names that it has had, the last one that ticked.
                rows = tx.execute(ours.order_by(locations.c.ticked_at.nulls_first()))
                ticked = {row.owner: row.name for row in rows}
            if repository.owner not in ticked:
                raise NotFound(_not_ticked(repository.owner, self.cluster, sorted(ticked)))
            name = ticked[repository.owner]
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


def _not_ticked(owner: str, cluster: str, ticked: Sequence[str]) -> str:
    if not ticked:
        return (
            f"no dispatcher of {owner} has ticked: merge arctic.definitions() into its "
            "definitions, and start Dagster's daemon (see: arctic doctor)"
        )
    return (
        f"no dispatcher of {owner} has ticked in cluster {cluster}; those that have are of "
        f"{', '.join(ticked)}: if one of them is meant, give the code location its name, by "
        "-w and a workspace file"
    )
