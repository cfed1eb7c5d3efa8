"""Invented run queues, and Dagster's daemon going through them, as a model.

The model is Dagster's own: its counter of tag limits, its order of priorities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dagster._utils.tags import TagConcurrencyLimitsCounter

from arctic_orchestration.run_queue.census import (
    Census,
    RunView,
    active_run,
    queued_run,
)
from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.history import ledger_of
from arctic_orchestration.run_queue.pauses import Pause, Paused, in_force
from arctic_orchestration.run_queue.plan import Plan
from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import standing_of, tags_for
from arctic_orchestration.run_queue.windows import OpenWindows

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass(kw_only=True)
class Run:
    """A run, as Dagster's storage would show it."""

    run_id: str
    job: str = "load"
    location: str | None = "lake"
    assets: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    dagster_status: str = "QUEUED"


def submitted(rules: Rules, run_id: str, at: datetime = NOON, **given: Any) -> Run:
    """A run with the tags that it is submitted with."""
    run = Run(run_id=run_id, **given)
    facts = RunFacts(job=run.job, location=run.location, assets=run.assets, tags=run.tags)
    run.tags = {**run.tags, **tags_for(facts, standing_of(facts, rules), rules, at)}
    return run


def gates(
    rules: Rules,
    queued: Sequence[Run],
    active: Sequence[Run] = (),
    *,
    ended: Sequence[Run] = (),
    manual: Sequence[Pause] = (),
    stock: Sequence[Mapping[str, Any]] = (),
    now: datetime = NOON,
) -> Gates:
    """The gates of a pass over these runs."""
    views: Sequence[RunView] = active
    seen = [active_run(view, rules) for view in views]
    heeded = frozenset(limit["key"] for limit in stock)
    census = Census(
        queued=[queued_run(view, heeded) for view in queued],
        active=seen,
        ledger=ledger_of(ended, seen, rules, now),
    )
    paused: Paused = in_force(rules, manual)
    return Gates(
        rules=rules, census=census, paused=paused, windows=OpenWindows(), now=now, stock=stock
    )


def daemon(
    plan: Plan, queued: Sequence[Run], active: Sequence[Run], max_concurrent_runs: int
) -> list[str]:
    """What Dagster's daemon would start under a plan, whose turns are written first."""
    for run in queued:
        run.tags = {**run.tags, **plan.turns.get(run.run_id, {})}
    counter = TagConcurrencyLimitsCounter(list(plan.limits), list(active))  # type: ignore[arg-type]
    started: list[str] = []
    for run in sorted(
        queued, key=lambda run: int(run.tags.get("dagster/priority", "0")), reverse=True
    ):
        if counter.is_blocked(run):  # type: ignore[arg-type]
            continue
        counter.update_counters_with_launched_item(run)  # type: ignore[arg-type]
        started.append(run.run_id)
    if max_concurrent_runs == -1:
        return started
    return started[: max(max_concurrent_runs - len(active), 0)]
