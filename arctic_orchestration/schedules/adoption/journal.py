"""The journal of adoptions: a row for each, with the last step that is done."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state.adoption_tables import adoptions


class Step(StrEnum):
    """The last step of an adoption that is done; see the package's docstring."""

    #: the schedule decides beside Dagster's instigator, above the boundary, and launches nothing
    SHADOWED = "shadowed"
    #: the schedule exists, suspended; Dagster's instigator is as it was
    PREPARED = "prepared"
    #: Dagster's is stopped, its last tick has ended, and the boundary is known
    STOPPED = "stopped"
    #: the schedule has begun above the boundary
    ADOPTED = "adopted"
    #: the schedule takes nothing above the boundary; Dagster's is not started yet
    ENDED = "ended"
    #: Dagster's runs again, and the schedule finishes what it has taken
    HANDED_OVER = "handed over"

    @property
    def is_on_the_way_back(self) -> bool:
        return self in (Step.ENDED, Step.HANDED_OVER)


class Status(StrEnum):
    """Whether Dagster evaluates an instigator."""

    #: a person started it
    RUNNING = "running"
    #: it runs by its own default
    RUNNING_BY_DEFAULT = "running by default"
    STOPPED = "stopped"

    @property
    def is_running(self) -> bool:
        return self is not Status.STOPPED


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """What separates two owners: the last tick of time, or the last event, of the one that ends.

    Both are None for what did not run, and for a sensor without a position: then the other begins
    at the present.
    """

    at: datetime | None = None
    event: int | None = None


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """A row of the journal."""

    name: str
    schedule: str
    step: Step
    #: the status of Dagster's instigator before
    was: Status
    #: whether the schedule was created for the adoption
    created: bool
    boundary: Boundary
    at: datetime


def find(tx: sa.Connection, location: Location, name: str) -> Adoption | None:
    """Returns the adoption of an instigator, or None."""
    this = (adoptions.c.location_id == location.id) & (adoptions.c.name == name)
    row = tx.execute(sa.select(adoptions).where(this)).mappings().one_or_none()
    return None if row is None else _from_row(row)


def of_schedule(tx: sa.Connection, location: Location, schedule: str) -> str | None:
    """Returns the instigator that a schedule was adopted from, or None."""
    this = (adoptions.c.location_id == location.id) & (adoptions.c.schedule == schedule)
    return tx.execute(sa.select(adoptions.c.name).where(this).limit(1)).scalar()


def refuse_while_adopted(tx: sa.Connection, location: Location) -> None:
    """Refuses a change after which Dagster would know the adopted objects of a location anew.

    Errors:
        TransitionRefused: Dagster's side of something is stopped, or may be.
    """
    runs_in_dagster = adoptions.c.step.in_([Step.SHADOWED.value, Step.HANDED_OVER.value])
    query = sa.select(adoptions.c.name).where(
        adoptions.c.location_id == location.id, ~runs_in_dagster
    )
    names = sorted(tx.execute(query).scalars())
    if names:
        raise TransitionRefused(
            f"{', '.join(names)} of {location.name} would run twice, or never again: Dagster knows "
            "what is stopped by the present name of the code location. Hand it back first: "
            f"arctic adopt --back {' '.join(names)}. If the code is gone: --force"
        )


def begin(tx: sa.Connection, location: Location, adoption: Adoption) -> None:
    """Writes the first step of an adoption."""
    tx.execute(
        sa.insert(adoptions).values(
            location_id=location.id,
            name=adoption.name,
            schedule=adoption.schedule,
            step=adoption.step.value,
            was=adoption.was.value,
            created=adoption.created,
            boundary_at=adoption.boundary.at,
            boundary_event=adoption.boundary.event,
            at=adoption.at,
        )
    )


def note(
    tx: sa.Connection,
    location: Location,
    name: str,
    step: Step,
    boundary: Boundary,
    at: datetime,
    *,
    was: Status | None = None,
) -> None:
    """Writes that a step is done, and the status of Dagster's instigator if it is known anew."""
    this = (adoptions.c.location_id == location.id) & (adoptions.c.name == name)
    tx.execute(
        sa.update(adoptions)
        .where(this)
        .values(step=step.value, boundary_at=boundary.at, boundary_event=boundary.event, at=at)
        .values({} if was is None else {"was": was.value})
    )


def close(tx: sa.Connection, location: Location, name: str) -> None:
    """Deletes the row of an adoption that was handed back."""
    this = (adoptions.c.location_id == location.id) & (adoptions.c.name == name)
    tx.execute(sa.delete(adoptions).where(this))


def _from_row(row: Any) -> Adoption:
    return Adoption(
        name=row["name"],
        schedule=row["schedule"],
        step=Step(row["step"]),
        was=Status(row["was"]),
        created=row["created"],
        boundary=Boundary(at=row["boundary_at"], event=row["boundary_event"]),
        at=row["at"],
    )
