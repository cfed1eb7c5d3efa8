"""What the run queue holds at one moment: runs that wait, that are in progress, that ended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import PRIORITY, Kind, Standing, program_of, standing_of


class RunView(Protocol):
    """What Dagster's run storage knows of a run."""

    @property
    def run_id(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def location(self) -> str | None: ...
    @property
    def assets(self) -> tuple[str, ...]: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def dagster_status(self) -> str: ...


def facts_of(run: RunView) -> RunFacts:
    """What rules look at."""
    return RunFacts(job=run.job, location=run.location, assets=run.assets, tags=run.tags)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedRun:
    """A run that waits."""

    run_id: str
    job: str
    #: the number by which Dagster's daemon sorts, the highest first
    priority: int
    tags: Mapping[str, str]
    #: those of its tags that a gate may look at, in one order for all runs
    marks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveRun:
    """A run in progress."""

    run_id: str
    program: str
    tags: Mapping[str, str]
    #: by its tags and by rules, also for a run that was never queued
    standing: Standing
    started_at: datetime | None

    def program_under(self, key: str) -> str:
        """Its program as the tag of a rule has it, if it has that tag."""
        return self.tags.get(key, self.program)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Starts and ends of the recent past, of runs that are still in progress, too."""

    #: by rate: when runs were started; those that are being started now are counted as now
    starts: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    #: by interval and program: when the last run ended in one of the interval's statuses
    ends: Mapping[tuple[str, str], datetime] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """All of it."""

    #: in the order in which Dagster reads them: that of their creation
    queued: Sequence[QueuedRun]
    active: Sequence[ActiveRun]
    ledger: Ledger = field(default_factory=Ledger)


def queued_run(run: RunView, heeded: frozenset[str]) -> QueuedRun:
    """A run that waits; ``heeded`` are keys of tags that gates look at besides ours."""
    return QueuedRun(
        run_id=run.run_id,
        job=run.job,
        priority=_priority(run.tags),
        tags=run.tags,
        marks=tuple(
            sorted(
                (key, value)
                for key, value in run.tags.items()
                if key in heeded or (key.startswith(tagging.PREFIX) and key not in _NO_GATES)
            )
        ),
    )


#: Tags of ours that nearly every run has with another value, and at which no gate looks.
_NO_GATES = frozenset(
    {
        tagging.LEVEL,
        tagging.QUEUED_AT,
        tagging.WAIT,
        "arctic/job",
        "arctic/schedule",
        "arctic/trigger",
    }
)


def active_run(run: RunView, rules: Rules) -> ActiveRun:
    """A run in progress."""
    facts = facts_of(run)
    return ActiveRun(
        run_id=run.run_id,
        program=program_of(facts),
        tags=run.tags,
        standing=standing_of(facts, rules),
        started_at=run.started_at,
    )


def look_back(rules: Rules) -> timedelta | None:
    """How far back starts and ends matter; none: not at all."""
    spans = [rate.per for rate in rules.rates.values()]
    spans += [interval.duration for interval in rules.intervals.values()]
    return max(spans, default=None)


def ledger_of(
    ended: Iterable[RunView], active: Iterable[ActiveRun], rules: Rules, now: datetime
) -> Ledger:
    """Starts and ends, from runs that ended in the time that matters and from those in progress.

    Of a run that is in both, because it ended just now, the end counts and the start once.
    """
    starts: dict[str, dict[str, datetime]] = {}
    ends: dict[tuple[str, str], datetime] = {}
    for run in active:
        for name in run.standing.rates:
            starts.setdefault(name, {})[run.run_id] = run.started_at or now
    for view in ended:
        for kind, name, value in _memberships(tuple(view.tags.items())):
            if kind is Kind.RATE and view.started_at is not None:
                starts.setdefault(name, {})[view.run_id] = view.started_at
            elif kind is Kind.INTERVAL and view.ended_at is not None:
                interval = rules.intervals.get(name)
                if interval is None or view.dagster_status.lower() not in interval.statuses:
                    continue
                place = (name, value)
                ends[place] = max(view.ended_at, ends.get(place, view.ended_at))
    return Ledger(
        starts={name: sorted(found.values()) for name, found in starts.items()}, ends=ends
    )


class Present(Protocol):
    """What waits and what is in progress, each in the order of creation."""

    @property
    def queued(self) -> Sequence[RunView]: ...
    @property
    def active(self) -> Sequence[RunView]: ...


class RunSource(Protocol):
    """What Dagster's run storage answers."""

    def present(self) -> Present: ...
    def ended_since(self, since: datetime, now: datetime) -> Sequence[RunView]: ...


def take_census(runs: RunSource, rules: Rules, heeded: frozenset[str], now: datetime) -> Census:
    """A census from nothing that was kept, for who looks once; ``heeded`` as in `queued_run`."""
    present = runs.present()
    active = [active_run(run, rules) for run in present.active]
    ledger = Ledger()
    back = look_back(rules)
    if back is not None:
        # After what is in progress: a run that ends in between is seen twice, not never.
        ledger = ledger_of(runs.ended_since(now - back, now), active, rules, now)
    queued = [queued_run(run, heeded) for run in present.queued]
    return Census(queued=queued, active=active, ledger=ledger)


@lru_cache(maxsize=65_536)
def _memberships(tags: tuple[tuple[str, str], ...]) -> tuple[tuple[Kind, str, str], ...]:
    """Rates and intervals of an ended run, by its tags: kind, name and the tag's value."""
    found = []
    for key, value in tags:
        for kind in (Kind.RATE, Kind.INTERVAL):
            if key.startswith(f"{tagging.PREFIX}{kind.value}."):
                found.append((kind, key.partition(".")[2], value))
    return tuple(found)


def _priority(tags: Mapping[str, str]) -> int:
    # As Dagster's daemon reads it.
    try:
        return int(tags.get(PRIORITY, "0"))
    except ValueError:
        return 0
