"""The contents of the run queue at one moment: queued, active and recently ended runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import PRIORITY, Standing, program_of, standing_of


class RunView(Protocol):
    """A run in Dagster's run storage."""

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
    """Returns the facts about a run that rules evaluate."""
    return RunFacts(job=run.job, location=run.location, assets=run.assets, tags=run.tags)


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """The tags of a run that gates evaluate; runs with the same tags share one object.

    So a thousand similar runs are evaluated together.
    """

    #: in one order for all runs
    pairs: tuple[tuple[str, str], ...]
    queue: str | None
    #: the tags of its rates, with their values
    turns: tuple[tuple[str, str], ...]


@lru_cache(maxsize=65_536)
def marks_of(pairs: tuple[tuple[str, str], ...]) -> Marks:
    """Returns the shared object for these tags."""
    prefix = tagging.Kind.RATE.key("")
    return Marks(
        pairs=pairs,
        queue=dict(pairs).get(tagging.QUEUE),
        turns=tuple(pair for pair in pairs if pair[0].startswith(prefix)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedRun:
    """A queued run."""

    run_id: str
    job: str
    program: str
    #: the number by which Dagster's daemon sorts, the highest first
    priority: int
    tags: Mapping[str, str]
    #: its tags that a gate may evaluate
    marks: "Marks"


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveRun:
    """A run in progress."""

    run_id: str
    program: str
    tags: Mapping[str, str]
    #: by its tags and by rules, even for a run that was never queued
    standing: Standing
    started_at: datetime | None

    def program_under(self, key: str) -> str:
        """Its program according to the tag of a rule, else according to itself."""
        return self.tags.get(key, self.program)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Recent starts and ends, including those of active runs."""

    #: by rate: start times of runs; runs that are being started count as started now
    starts: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    #: by interval and program: the last end in one of the interval's statuses
    ends: Mapping[tuple[str, str], datetime] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """The queued and active runs, and the recent starts and ends."""

    #: in Dagster's order: by creation
    queued: Sequence[QueuedRun]
    active: Sequence[ActiveRun]
    ledger: Ledger = field(default_factory=Ledger)


def queued_run(run: RunView, heeded: frozenset[str]) -> QueuedRun:
    """Returns a queued run; ``heeded`` are keys of tags that gates evaluate besides our own."""
    return QueuedRun(
        run_id=run.run_id,
        job=run.job,
        program=program_of(facts_of(run)),
        priority=_priority(run.tags),
        tags=run.tags,
        marks=marks_of(
            tuple(
                sorted(
                    (key, value)
                    for key, value in run.tags.items()
                    if key in heeded or key == tagging.QUEUE or key.startswith(_GATED)
                )
            )
        ),
    )


#: the beginnings of our tags that gates evaluate; many other ones differ for each run
_GATED = tuple(
    f"{tagging.PREFIX}{kind}." for kind in ("group", "program", "window", "rate", "interval")
)


def active_run(run: RunView, rules: Rules) -> ActiveRun:
    """Returns an active run."""
    facts = facts_of(run)
    return ActiveRun(
        run_id=run.run_id,
        program=program_of(facts),
        tags=run.tags,
        standing=standing_of(facts, rules),
        started_at=run.started_at,
    )


def _priority(tags: Mapping[str, str]) -> int:
    # Parsed as by Dagster's daemon.
    try:
        return int(tags.get(PRIORITY, "0"))
    except ValueError:
        return 0
