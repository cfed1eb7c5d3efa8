"""Fires when a duration has passed since the last launch or an event."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, PlainSerializer, Tag, field_validator

from arctic_orchestration.event_log.event import Event, EventKey
from arctic_orchestration.quantities import PositiveDuration, format_duration, format_moment
from arctic_orchestration.schedules.triggers.base import (
    Arrivals,
    Firing,
    Leaf,
    PartitionSource,
    Ticks,
)
from arctic_orchestration.schedules.triggers.data import Data
from arctic_orchestration.schedules.triggers.partitions import Partitions
from arctic_orchestration.schedules.triggers.run import Run
from arctic_orchestration.specification import kinds_of, untag

_LAST_LAUNCH = "last_launch"
_EVENTS = kinds_of(Partitions | Data | Run)


def _since(value: object) -> object:
    if value == _LAST_LAUNCH or isinstance(value, Partitions | Data | Run):
        return value
    try:
        return untag(value, _EVENTS, "trigger")
    except ValueError:
        raise ValueError(f"last_launch, or a trigger: one of {', '.join(_EVENTS)}") from None


def _kind_of(value: Any) -> str:
    if isinstance(value, str):
        return _LAST_LAUNCH
    kind: str = value["kind"] if isinstance(value, dict) else value.kind
    return kind


#: The events in their written form; the JSON Schema is made from it.
_SinceForm = Literal["last_launch"] | Annotated[Partitions | Data | Run, Discriminator("kind")]

_Since = Annotated[
    Annotated[Literal["last_launch"], Tag(_LAST_LAUNCH)]
    | Annotated[Partitions, Tag("partitions")]
    | Annotated[Data, Tag("data")]
    | Annotated[Run, Tag("run")],
    Discriminator(_kind_of),
    BeforeValidator(_since, json_schema_input_type=_SinceForm),
    PlainSerializer(lambda since: since if isinstance(since, str) else since.to_form()),
]


class Elapsed(Leaf):
    """Fires when ``duration`` has passed since the last launch of the schedule, or an event.

    Before the first launch or event it counts from the moment the schedule was enabled. An event is
    a firing of another trigger; each arrival while that trigger is satisfied is another event and
    restarts the time. The job gets those events, too. After firing it fires again every
    ``duration`` without launch or event.
    """

    kind: Literal["elapsed"] = "elapsed"
    duration: PositiveDuration
    since: _Since = "last_launch"

    @field_validator("since")
    @classmethod
    def _at_events_only(cls, value: Any) -> Any:
        if isinstance(value, Data) and value.max_wait is not None:
            raise ValueError("data without max_wait: the time counts from an event")
        return value

    @property
    def restarts_at_launch(self) -> bool:
        return isinstance(self.since, str)

    def restarts_at(self, arrivals: Arrivals, now: datetime) -> bool:
        return not isinstance(self.since, str) and self._began(arrivals, now).satisfied

    def keys(self, location: str) -> tuple[EventKey, ...]:
        return () if isinstance(self.since, str) else self.since.keys(location)

    def takes(self, event: Event) -> bool:
        return isinstance(self.since, str) or self.since.takes(event)

    def asset_fields(self) -> Mapping[str, str]:
        return {} if isinstance(self.since, str) else self._placed(self.since.asset_fields())

    def job_name_fields(self) -> Mapping[str, str]:
        return {} if isinstance(self.since, str) else self._placed(self.since.job_name_fields())

    @property
    def source(self) -> PartitionSource:
        if isinstance(self.since, str):
            return super().source
        # The rest is about target partitions, which this trigger does not have. New definitions
        # with it are refused; stored ones go on as before.
        return replace(
            self.since.source, mapping=None, per=None, complete=False, ignores_late=False
        )

    def _placed(self, named: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the names in the other trigger, by their field in this one."""
        assert not isinstance(self.since, str)
        return {f"since.{self.since.kind}.{field}": name for field, name in named.items()}

    def next_tick(self, after: datetime, name: str) -> datetime | None:
        return after + self.duration

    def ticks_due(self, due_at: datetime, now: datetime, name: str) -> Ticks:
        return Ticks(deliver=(due_at,), next_at=now + self.duration)

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived, length = arrivals[0], format_duration(self.duration)
        since_launch = isinstance(self.since, str)
        if arrived.ticks:
            what = "the last launch" if since_launch else f"the last event of {self._event_text}"
            return Firing(
                satisfied=True,
                reason=f"{length} have passed since {what}",
                first_at=arrived.first_at
                if since_launch
                else arrived.fired_at or arrived.ticked_at,
                last_at=arrived.ticked_at,
            )
        if since_launch:
            return Firing(satisfied=False, reason=f"{length} have not passed since the last launch")
        began = self._began(arrived, now)
        if not began.satisfied or arrived.last_at is None:
            return Firing(satisfied=False, reason=f"fires {length} after: {began.reason}")
        due_at = format_moment(arrived.last_at + self.duration)
        return Firing(satisfied=False, reason=f"{began.reason}; fires {length} later, at {due_at}")

    def _began(self, arrivals: Arrivals, now: datetime) -> Firing:
        """Returns the result of the other trigger for its events, without moments of time."""
        assert not isinstance(self.since, str)
        if arrivals.ticks:
            arrivals = replace(arrivals, events=arrivals.events - arrivals.ticks, ticks=0)
        return self.since.evaluate((arrivals,), now)

    @property
    def _event_text(self) -> str:
        since = self.since
        if isinstance(since, Run):
            return f"job {since.job}" if since.job is not None else ", ".join(since.assets)
        assert not isinstance(since, str)
        return since.asset
