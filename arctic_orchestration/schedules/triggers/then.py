"""Fires when a clock has ticked, and then something has happened."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from pydantic import field_validator

from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.triggers.base import NOTHING, Arrivals, Firing, Trigger
from arctic_orchestration.schedules.triggers.check import Check
from arctic_orchestration.schedules.triggers.combined import AllOf, AnyOf, Combined
from arctic_orchestration.schedules.triggers.cron import Cron
from arctic_orchestration.schedules.triggers.freshness import Freshness
from arctic_orchestration.schedules.triggers.partitions import Partitions
from arctic_orchestration.schedules.triggers.run import Run


class Then(Combined):
    """Fires when its second trigger has fired after the latest tick of its first, a ``cron``.

    What arrived before that tick does not count, and has to arrive again; the run receives it all
    the same. A job of an earlier tick that still waits goes on with the new tick. As
    ``AutomationCondition.on_cron`` of Dagster.

    The job's timeout begins with the tick. Each tick has a job of its own, also if the one before
    waits for its constraints.
    """

    kind: Literal["then"] = "then"

    @field_validator("of")
    @classmethod
    def _in_order(cls, value: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
        if len(value) != 2 or not isinstance(value[0], Cron):
            raise ValueError("two triggers, of which the first is a cron")
        if value[0].is_hashed:
            raise ValueError("a cron without H")
        problem = next(_uncountable(value[1]), None)
        if problem is not None:
            raise ValueError(
                f"as second trigger one of partitions, run, check and freshness with a count of 1, "
                f"or any_of or all_of these, but not {problem}"
            )
        return value

    @property
    def notes_firings(self) -> bool:
        return False

    @property
    def begins_with_tick(self) -> bool:
        return True

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        cron, second = self.of
        ticked_at = arrivals[0].ticked_at
        after = [_since(ticked_at, each) for each in arrivals[1:]]
        first, following = cron.evaluate(arrivals[:1], now), second.evaluate(after, now)
        children = (first, following)
        if ticked_at is None:
            return Firing(satisfied=False, reason=first.reason, children=children)
        assert isinstance(cron, Cron)
        due_at = cron.next_tick(ticked_at, "")
        latest = max([now, *(each.last_at for each in arrivals[1:] if each.last_at)])
        if due_at is not None and due_at <= latest and cron.ticks_due(due_at, latest, "").deliver:
            # Ticks are delivered after the events of a reading, of which some are newer. One that
            # has become too old meanwhile is not made up.
            reason = f"the tick of {format_moment(due_at)} comes first"
            return Firing(satisfied=False, reason=reason, recheck_at=latest, children=children)
        return Firing(
            satisfied=following.satisfied,
            reason=f"after the tick of {format_moment(ticked_at)}: {following.reason}",
            children=children,
            first_at=following.first_at,
            last_at=following.last_at,
        )


def _since(ticked_at: datetime | None, arrivals: Arrivals) -> Arrivals:
    """Returns the last of some arrivals if it came at a tick or later, else nothing."""
    if ticked_at is None or arrivals.last_at is None or arrivals.last_at < ticked_at:
        return NOTHING
    return replace(
        arrivals, events=1, partitions=1, first_at=arrivals.last_at, fired_at=arrivals.last_at
    )


def _uncountable(trigger: Trigger) -> Iterator[str]:
    """Yields what the last arrival at each leaf is not enough to evaluate."""
    if isinstance(trigger, (AnyOf, AllOf)):
        if isinstance(trigger, AllOf) and (trigger.within or trigger.wait):
            yield "all_of with within or wait"
        for child in trigger.of:
            yield from _uncountable(child)
    elif isinstance(trigger, Partitions):
        if trigger.count != 1 or trigger.complete:
            yield "partitions with count or complete"
    elif isinstance(trigger, (Run, Check)):
        if trigger.count != 1:
            yield f"{trigger.kind} with a count"
    elif not isinstance(trigger, Freshness):
        yield trigger.kind
