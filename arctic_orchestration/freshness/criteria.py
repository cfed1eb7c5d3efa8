"""What a task is, and when a task or its parent is fresh enough: pure rules over moments.

A task is an asset or a job with a name that is unique in all clusters of the state database. It is
fresh while its last success is no older than required: by a child for each of its parents, by a
submission for the task itself.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from arctic_orchestration.quantities import Duration, PositiveDuration, format_duration
from arctic_orchestration.specification import Specification
from arctic_orchestration.zones import ZoneName, first_shown

#: Up to 100 years: a longer span cannot be subtracted from a present date.
Hours = Annotated[float, Field(gt=0, le=876_000, strict=True, allow_inf_nan=False)]

#: Names are stored in indexes and in the tags of runs.
LONGEST_NAME = 200
TaskName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]

#: The length that stands for "since the start of today" where a length is needed.
DAILY = timedelta(days=1)


class Parent(Specification):
    """One parent of a task, with the freshness that the task requires of it."""

    name: TaskName
    #: the maximum age in hours; none: succeeded since the start of today
    hours: Hours | None = None


class TaskSpec(Specification):
    """What a location declares about one task."""

    name: TaskName
    kind: Literal["asset", "job"] = "asset"
    #: the asset's key with slashes, or the job's name
    target: Annotated[str, Field(min_length=1)]
    #: the batch that declares it
    batch: TaskName | None = None
    #: the maximum age of its last success; none: succeeded since the start of today
    freshness_hours: Hours | None = None
    parents: tuple[Parent, ...] = ()
    #: the zone in which today starts, for the task and for its parents
    timezone: ZoneName = "UTC"
    #: the maximum number of tasks of the batch that run at the same time; none: unlimited
    concurrency: Annotated[int, Field(ge=1, strict=True)] | None = None
    #: how often a failed run is retried
    retries: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    #: the pause between a failed run and the next one
    retry_delay: Duration = timedelta(0)
    #: why its definition skips it; none: it is not skipped
    skip: str | None = None
    #: the interval at which stale parents elsewhere are rechecked
    recheck: PositiveDuration = timedelta(minutes=2)
    #: how long the task waits for stale parents before it fails
    patience: PositiveDuration = timedelta(minutes=30)
    #: tags of the runs that are requested
    tags: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("parents")
    @classmethod
    def _once_each(cls, value: tuple[Parent, ...]) -> tuple[Parent, ...]:
        names = Counter(parent.name for parent in value)
        twice = sorted(name for name, times in names.items() if times > 1)
        if twice:
            raise ValueError(f"each parent once, and {twice[0]} stands there twice")
        return value

    def to_form(self) -> dict[str, Any]:
        """Returns the values for :meth:`parse`: JSON types, without the defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


def required_since(hours: float | None, zone: str, now: datetime) -> datetime:
    """Returns the earliest moment at which a success is still fresh.

    Args:
        hours: the maximum age; 0 requires a success that ends now or later (a forced run), None one
            since the start of today.
        zone: the zone of the IANA database in which today starts; ignored if ``hours`` is given.
        now: the present moment, in UTC.
    """
    if hours is not None:
        return now - timedelta(hours=hours)
    at_home = ZoneInfo(zone)
    midnight = datetime.combine(now.astimezone(at_home).date(), time())
    # A day without a first hour starts when the clock resumes.
    return first_shown(midnight, at_home).astimezone(UTC)


def is_fresh(last_success_at: datetime | None, since: datetime) -> bool:
    """Returns whether a success is fresh: at the exact maximum age it is, a missing one is not."""
    return last_success_at is not None and last_success_at >= since


def next_start_of_day(zone: str, now: datetime) -> datetime:
    """Returns the next start of a day in the zone after ``now``, in UTC."""
    at_home = ZoneInfo(zone)
    tomorrow = now.astimezone(at_home).date() + timedelta(days=1)
    return first_shown(datetime.combine(tomorrow, time()), at_home).astimezone(UTC)


def fresh_until(last_success_at: datetime, hours: float | None, zone: str) -> datetime:
    """Returns the last moment, or the start of the next day, until which a success is fresh."""
    if hours is not None:
        return last_success_at + timedelta(hours=hours)
    return next_start_of_day(zone, last_success_at)


def strictness(hours: float | None) -> timedelta:
    """Returns the maximum age that a need allows; at most a day for a success of today."""
    return DAILY if hours is None else timedelta(hours=hours)


def need_in_words(hours: float | None, zone: str) -> str:
    """Formats a need: ``at most 24 hours old``, or ``made since the start of today (UTC)``."""
    if hours is None:
        return f"made since the start of today ({zone})"
    return f"at most {hours:g} {'hour' if hours == 1 else 'hours'} old"


def age_in_words(last_success_at: datetime | None, now: datetime) -> str:
    """Formats an age to the second: ``never made``, or ``made 1h30m ago``."""
    if last_success_at is None:
        return "never made"
    age = max(now - last_success_at, timedelta(0))
    second = timedelta(seconds=1)
    return f"made {format_duration(age - age % second)} ago"
