"""What a task is, and when it or one of its parents is fresh enough: pure rules over moments.

A task is an asset or a job that has a name of its own in all clusters which share the state
database. It is fresh as long as its last success is not older than somebody needs it to be: a
child says so for each of its parents, a submission for the task itself.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from arctic_orchestration.quantities import Duration, PositiveDuration, format_duration
from arctic_orchestration.specification import Specification
from arctic_orchestration.zones import ZoneName, first_shown

#: Up to 100 years: a longer span cannot be taken from a moment of today.
Hours = Annotated[float, Field(gt=0, le=876_000, strict=True, allow_inf_nan=False)]

#: A name has its place in indexes and in the tags of runs.
LONGEST_NAME = 200
TaskName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]

#: What "since the start of today" comes to where a length is asked for.
DAILY = timedelta(days=1)


class Parent(Specification):
    """One parent of a task, and how fresh the task needs it."""

    name: TaskName
    #: at most so many hours old; none: made since the start of today
    hours: Hours | None = None


class TaskSpec(Specification):
    """What a location declares about one task."""

    name: TaskName
    kind: Literal["asset", "job"] = "asset"
    #: the asset's key with slashes, or the job's name
    target: Annotated[str, Field(min_length=1)]
    #: the batch that it was declared in
    batch: TaskName | None = None
    #: fresh while its last success is at most so old; none: while it is of today
    freshness_hours: Hours | None = None
    parents: tuple[Parent, ...] = ()
    #: the zone in which today starts, for the task and for its parents
    timezone: ZoneName = "UTC"
    #: at most so many tasks of the batch run at the same time; none: as many as there are
    concurrency: Annotated[int, Field(ge=1, strict=True)] | None = None
    #: so many times it is run again after a failed run
    retries: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    #: the pause between a failed run and the next one
    retry_delay: Duration = timedelta(0)
    #: why its definition says that it is not to run; none: it runs
    skip: str | None = None
    #: so often stale parents that others make are looked at again
    recheck: PositiveDuration = timedelta(minutes=2)
    #: after so long stale parents make the task fail
    patience: PositiveDuration = timedelta(minutes=30)
    #: tags of the runs that are asked for
    tags: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("parents")
    @classmethod
    def _once_each(cls, value: tuple[Parent, ...]) -> tuple[Parent, ...]:
        names = [parent.name for parent in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each parent once, and {twice[0]} stands there twice")
        return value

    def to_form(self) -> dict[str, Any]:
        """What :meth:`parse` reads back: JSON's own kinds of values, without the defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


def required_since(hours: float | None, zone: str, now: datetime) -> datetime:
    """The moment since which a success is fresh: what was made then or later is, older is not.

    Args:
        hours: how old it may be; 0 asks for one that ends now or later (a forced run), None for
            one since the start of today.
        zone: the zone of the IANA database in which today starts; says nothing with ``hours``.
        now: the moment at which it is asked, in UTC.
    """
    if hours is not None:
        return now - timedelta(hours=hours)
    at_home = ZoneInfo(zone)
    midnight = datetime.combine(now.astimezone(at_home).date(), time())
    # A day whose first hour does not exist starts when the clock goes on.
    return first_shown(midnight, at_home).astimezone(UTC)


def is_fresh(last_success_at: datetime | None, since: datetime) -> bool:
    """Whether a success is fresh: exactly as old as allowed is, one that never was is not."""
    return last_success_at is not None and last_success_at >= since


def next_start_of_day(zone: str, now: datetime) -> datetime:
    """The moment after ``now`` at which another day starts in the zone, in UTC."""
    at_home = ZoneInfo(zone)
    tomorrow = now.astimezone(at_home).date() + timedelta(days=1)
    return first_shown(datetime.combine(tomorrow, time()), at_home).astimezone(UTC)


def fresh_until(last_success_at: datetime, hours: float | None, zone: str) -> datetime:
    """The last moment (with hours), or the first of another day, until which a success is fresh."""
    if hours is not None:
        return last_success_at + timedelta(hours=hours)
    return next_start_of_day(zone, last_success_at)


def strictness(hours: float | None) -> timedelta:
    """How old a success may be at most, by a need; one of today never is older than a day."""
    return DAILY if hours is None else timedelta(hours=hours)


def need_in_words(hours: float | None, zone: str) -> str:
    """``at most 24 hours old``, or ``made since the start of today (UTC)``."""
    if hours is None:
        return f"made since the start of today ({zone})"
    return f"at most {hours:g} {'hour' if hours == 1 else 'hours'} old"


def age_in_words(last_success_at: datetime | None, now: datetime) -> str:
    """``never made``, or ``made 1h30m ago``, to the second."""
    if last_success_at is None:
        return "never made"
    age = max(now - last_success_at, timedelta(0))
    second = timedelta(seconds=1)
    return f"made {format_duration(age - age % second)} ago"
