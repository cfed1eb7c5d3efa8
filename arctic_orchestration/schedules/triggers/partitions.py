"""Fires when enough different partitions of an asset have arrived."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.quantities import format_duration, format_moment, parse_duration
from arctic_orchestration.schedules.triggers.base import (
    ArrivalLeaf,
    Arrivals,
    Firing,
    PartitionSource,
)

_LATE = "'rerun', 'ignore', or 'collect:' and a duration, as collect:1h"


_CountForm = Annotated[
    Any, WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "pattern": "^all$"})
]
_LateForm = Literal["rerun", "ignore"] | Annotated[str, Field(pattern="^collect:")] | dict[str, str]


def _count(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError("at least 1")
        return value
    if value == "all":
        return value
    is_word = isinstance(value, str) and not value.isdigit()
    raise ValueError("a whole number, or 'all'" if is_word else "a whole number")


def _late(value: object) -> object:
    """Also accepts ``{collect: 1h}``, as ``collect:1h``."""
    if value in ("rerun", "ignore"):
        return value
    if isinstance(value, Mapping) and set(value) == {"collect"}:
        value = f"collect:{value['collect']}"
    if isinstance(value, str) and value.startswith("collect:"):
        try:
            duration = parse_duration(value.removeprefix("collect:").strip())
        except ValueError:
            raise ValueError(_LATE) from None
        if duration:
            return f"collect:{format_duration(duration)}"
    raise ValueError(_LATE)


def _checks(value: object) -> object:
    """Returns the names of checks: one, several, or ``passed`` for all."""
    if value in ("passed", "all"):
        return ("*",)
    return (value,) if isinstance(value, str) else value


def _checks_form(value: tuple[str, ...]) -> str | list[str]:
    return "passed" if value == ("*",) else list(value)


def _has(metadata: Mapping[str, Any], label: str, wanted: str | float) -> bool:
    """Returns whether metadata has a value: a text by a glob, anything else if it is equal."""
    value = metadata.get(label)
    if isinstance(wanted, str):
        return isinstance(value, str) and fnmatchcase(value, wanted)
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


class Partitions(ArrivalLeaf):
    """Fires when ``count`` different partitions of ``asset`` have arrived since the last job.

    A partition that arrives again before the job counts once. Every arrival of an asset without
    partitions counts.

    In a schedule with ``partitions: each`` or ``range`` all of this applies to one partition of the
    target: to the upstream partitions that map to it. ``count: all`` then requires that all of
    them have arrived since the last job; ``complete`` requires that all of them have ever arrived
    and something is new. Once a target partition has run, later arrivals are *late*: with
    ``count: all`` they fire at once, unless ``late`` says otherwise.
    """

    kind: Literal["partitions"] = "partitions"
    count: Annotated[
        int | Literal["all"], BeforeValidator(_count, json_schema_input_type=_CountForm)
    ] = 1
    #: a glob on the partition key; ``*`` matches anything, ``[…]`` a set
    where: str | None = None
    complete: bool = Field(default=False, strict=True)
    #: whether a partition that arrives again counts once
    distinct: bool = Field(default=True, strict=True)
    #: groups the keys by one of their dimensions, for a target without partitions
    per: str | None = Field(default=None, min_length=1)
    #: to partitions of the target; None: the mapping of the dependency, else Dagster's default
    mapping: str | Mapping[str, Any] | None = None
    #: asset checks that must have passed before an arrival counts
    checks: Annotated[tuple[str, ...], BeforeValidator(_checks), PlainSerializer(_checks_form)] = ()
    #: whether only arrivals with another data version count
    changed: bool = Field(default=False, strict=True)
    late: Annotated[str, BeforeValidator(_late, json_schema_input_type=_LateForm)] = "rerun"
    #: only arrivals whose metadata has these values; a text is a glob
    metadata: Mapping[str, str | int | float | bool] = Field(default={})
    #: whether arrivals that a backfill made count
    backfill: Literal["follow", "ignore"] = "follow"

    @model_validator(mode="after")
    def _together(self) -> Self:
        if not self.distinct and (self.count == "all" or self.complete):
            raise ValueError("distinct: true where all partitions are waited for")
        if self.complete and self.metadata:
            raise ValueError("no metadata with complete: that of earlier arrivals is not looked up")
        return self

    def takes(self, event: Event) -> bool:
        return (
            super().takes(event)
            and bool(self.wanted_of([event.partition or ""]))
            and all(_has(event.metadata, label, value) for label, value in self.metadata.items())
        )

    def wanted_of(self, partitions: Sequence[str]) -> Sequence[str]:
        where = self.where
        return partitions if where is None else [p for p in partitions if fnmatchcase(p, where)]

    @property
    def needs_all(self) -> bool:
        return self.count == "all" or self.complete

    @cached_property
    def source(self) -> PartitionSource:
        return PartitionSource(
            mapping=self.mapping,
            per=self.per,
            complete=self.complete,
            ignores_late=self.late == "ignore",
            ignores_backfills=self.backfill == "ignore",
            only_changed=self.changed,
            checks=self.checks,
        )

    @property
    def collects(self) -> timedelta | None:
        """How long late arrivals are collected, or None."""
        collect = self.late.startswith("collect:")
        return parse_duration(self.late.removeprefix("collect:")) if collect else None

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        given = arrivals[0]
        arrived = given.partitions if self.distinct else given.events
        enough, reason = self._enough(given, arrived)
        if given.late and arrived:
            if not self.complete and (self.count == "all" or self.collects is not None):
                enough, reason = True, f"{reason}, late"
            if enough and self.collects is not None and given.first_at is not None:
                ends_at = given.first_at + self.collects
                if now < ends_at:
                    reason += f"; late arrivals are collected until {format_moment(ends_at)}"
                    return Firing(satisfied=False, reason=reason, recheck_at=ends_at)
        if not enough:
            return Firing(satisfied=False, reason=reason)
        first_at = given.first_at if self.count == 1 else given.fired_at or given.last_at
        return Firing(satisfied=True, reason=reason, first_at=first_at, last_at=given.last_at)

    def _enough(self, given: Arrivals, arrived: int) -> tuple[bool, str]:
        """Returns whether the arrivals satisfy the count, and the reason."""
        what = f"partitions of {self.asset}" if self.distinct else f"arrivals of {self.asset}"
        what += f" like {self.where}" if self.where else ""
        if self.metadata:
            what += f" with {', '.join(f'{label}={v}' for label, v in self.metadata.items())}"
        if not self.needs_all:
            return arrived >= self.count, f"{arrived} of {self.count} {what} have arrived"  # type: ignore[operator]
        if given.required is None:
            return False, f"{arrived} {what} have arrived; which belong together is not known"
        have = given.required - given.lacking
        reason = f"{have} of {given.required} {what} have arrived"
        if given.missing:
            more = given.lacking - len(given.missing)
            reason += f", missing {', '.join(given.missing)}" + (
                f" and {more} more" if more else ""
            )
        enough = given.lacking == 0 and arrived >= (1 if self.count == "all" else self.count)
        if self.complete and not given.lacking and not enough:
            reason += ", nothing new"
        return enough, reason
