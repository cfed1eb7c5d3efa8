"""The hours of a queue, and its budget: how many of its tasks are merged at once, on average.

The budget is a token bucket, counted in seconds of merging. Each second adds ``budget`` seconds, up
to those of a quarter of an hour; each attempt takes what it lasted. A task is claimed while the
bucket is not empty, after taking from it what the live attempts will probably still last: until the
mean duration of recent ones. So in ``T`` seconds the attempts of a queue last at most
``budget * (T + 900)`` seconds, the mean once more, and that by which those that are live exceed it.
What was too much is taken from what follows.

Closed hours hold what might end in them, too: a task is not claimed when the queue closes before
twice the mean duration, at most half of the open hours, has passed. What is being merged is
finished and committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue.queue import ALWAYS
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.constraints.window import Window
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    attempt_is_live,
    compaction_attempts,
    compaction_budgets,
    compaction_queues,
    compaction_tasks,
)

#: of seconds without a merge, so many count
_SAVED_SECONDS = 900.0
#: the mean duration of an attempt as long as none has ended
_FIRST_MEAN = 60.0
#: more than anything lasts: later moments may be none at all
_LONGEST = timedelta(days=3650)
#: the weight of the latest attempt in the mean
_LATEST = 0.2
_EXPECTED = (
    "hours in which workers claim, with a time zone and perhaps days: 22:00-06:00 Europe/Berlin "
    f"mon,tue; or {ALWAYS}"
)


@dataclass(frozen=True, kw_only=True)
class Held:
    """Why no task of a queue is claimed now."""

    #: for people
    reason: str
    #: when that may be over
    until: datetime


def hours_window(hours: str) -> Window | None:
    """Returns the window of a text such as ``22:00-06:00 Europe/Berlin mon,tue``; none: always.

    Errors:
        InvalidInput: it is no such text; says why.
    """
    parts = hours.split() if isinstance(hours, str) else []
    if parts == [ALWAYS]:
        return None
    times = parts[0].split("-") if parts else []
    if not 1 <= len(parts) <= 3 or len(times) != 2:
        raise InvalidInput("hours", hours, _EXPECTED)
    form: dict[str, object] = {"start": times[0], "end": times[1]}
    if len(parts) > 1:
        form["timezone"] = parts[1]
    if len(parts) > 2:
        form["days"] = parts[2].split(",")
    try:
        return Window.parse(form)
    except InvalidDefinition as error:
        raise InvalidInput("hours", hours, f"{_EXPECTED} ({error.problems[0]})") from None


def held_queues(
    tx: sa.Connection, now: datetime, *, claims_from: Sequence[str] = ()
) -> Mapping[str, Held]:
    """Returns the queues from which nothing is claimed now because of their hours or budget.

    One statement if no queue has either of them, else two.

    Args:
        tx: the transaction.
        now: the moment.
        claims_from: the queues from which the caller claims. Their budgets are locked until the
            transaction ends: else all workers that ask at once would find the same room.
    """
    _lock_budgets(tx, claims_from)
    queue, budget = compaction_queues.c, compaction_budgets.c
    query = (
        sa.select(queue.name, queue.hours, queue.budget, budget.spent_seconds, budget.spent_at,
                  budget.mean_seconds)
        .outerjoin(compaction_budgets, budget.queue == queue.name)
        .where((queue.hours != ALWAYS) | (queue.budget > 0))
    )  # fmt: skip
    rows = tx.execute(query).all()
    if not rows:
        return {}
    live = _live_attempts(tx, [row.name for row in rows])
    held = {}
    for row in rows:
        mean = row.mean_seconds or _FIRST_MEAN
        try:
            reason = _closed(row.hours, timedelta(seconds=mean), now)
        except InvalidInput as error:
            # Another machine may know more time zones. The other queues go on.
            reason = Held(reason=str(error), until=now)
        if reason is None and row.budget:
            begun = live.get(row.name, ())
            spent = _spent(row.budget, row.spent_seconds, row.spent_at, begun, now)
            spent += sum(max(mean - (now - at).total_seconds(), 0.0) for at in begun)
            if spent >= 0:
                until = now + min(timedelta(seconds=spent / row.budget), _LONGEST)
                text = f"its budget of {row.budget:g} tasks at once is used up until about"
                reason = Held(reason=f"{text} {format_moment(until)}", until=until)
        if reason is not None:
            held[row.name] = reason
    return held


def spend(tx: sa.Connection, ended: Mapping[str, Sequence[timedelta]], now: datetime) -> None:
    """Takes what attempts lasted from the budgets of their queues.

    Call it at the end of a transaction: it locks the budgets, in the order of their names.

    Args:
        tx: the transaction.
        ended: how long attempts lasted, by the queue of their task.
        now: the moment.
    """
    queue, budget = compaction_queues.c, compaction_budgets.c
    limited = (queue.hours != ALWAYS) | (queue.budget > 0)
    query = sa.select(queue.name, queue.budget).where(limited, queue.name.in_(ended))
    for name, allowed in sorted((row.name, row.budget) for row in tx.execute(query)):
        row = _locked(tx, name)
        mean = row.mean_seconds
        for lasted in ended[name]:
            seconds = lasted.total_seconds()
            mean = seconds if mean is None else mean + _LATEST * (seconds - mean)
        live = _live_attempts(tx, [name]).get(name, [])
        begun = [*live, *(now - lasted for lasted in ended[name])]
        spent = _spent(allowed, row.spent_seconds, row.spent_at, begun, now)
        spent -= sum((now - at).total_seconds() for at in live)
        changed = {"spent_seconds": spent, "spent_at": now, "mean_seconds": mean}
        tx.execute(sa.update(compaction_budgets).where(budget.queue == name).values(changed))


def _lock_budgets(tx: sa.Connection, names: Sequence[str]) -> None:
    if names:
        queue = compaction_queues.c
        query = sa.select(queue.name).where(queue.budget > 0, queue.name.in_(names))
        for name in sorted(tx.execute(query).scalars()):
            _locked(tx, name)


def _locked(tx: sa.Connection, queue: str) -> Any:
    """Locks the budget of a queue, and returns its row."""
    new = dialect.insert(tx, compaction_budgets).values(queue=queue)
    tx.execute(new.on_conflict_do_nothing())
    query = sa.select(compaction_budgets).where(compaction_budgets.c.queue == queue)
    return tx.execute(query.with_for_update()).one()


def _spent(
    budget: float,
    stored: float | None,
    at: datetime | None,
    begun: Iterable[datetime],
    now: datetime,
) -> float:
    """Returns the seconds by which a bucket is overdrawn at a moment; less than 0: it has some.

    The level is followed from one begin of an attempt to the next: a bucket that is full gains
    nothing, so what it would have gained in an idle time does not pay what begins after it.

    Args:
        budget: of the queue.
        stored: the level then, without attempts that had not ended; none: nothing is stored.
        at: when it was stored.
        begun: when attempts began that are live, or have ended at the moment.
        now: the moment.
    """
    least = -budget * _SAVED_SECONDS
    begins = sorted(min(begin, now) for begin in begun)
    if stored is None or at is None:
        return least + sum((now - begin).total_seconds() for begin in begins)
    moment = min(at, now)
    level = stored + sum((moment - begin).total_seconds() for begin in begins if begin < moment)
    active = sum(begin <= moment for begin in begins)
    for change in [*(begin for begin in begins if begin > moment), now]:
        level = max(level + (active - budget) * (change - moment).total_seconds(), least)
        moment, active = change, active + 1
    return level


def _closed(hours: str, mean: timedelta, now: datetime) -> Held | None:
    window = hours_window(hours)
    if window is None:
        return None
    openings = (opening for opening in window.openings(now) if opening.end > now)
    present, following = next(openings), next(openings)
    if present.begin > now:
        text = f"its hours begin at {format_moment(present.begin)}"
        return Held(reason=text, until=present.begin)
    lasts = min(2 * mean, (present.end - present.begin) / 2)
    if now + lasts <= present.end or following.begin <= present.end:
        return None
    text = f"its hours end at {format_moment(present.end)}, perhaps before a merge would"
    return Held(reason=text, until=following.begin)


def _live_attempts(tx: sa.Connection, names: Sequence[str]) -> Mapping[str, list[datetime]]:
    """Returns when the live attempts of queues began."""
    task, attempt = compaction_tasks.c, compaction_attempts.c
    query = (
        sa.select(task.queue, attempt.claimed_at)
        .join(compaction_attempts, attempt.task_id == task.id)
        .where(attempt_is_live, task.queue.in_(names))
    )
    found: dict[str, list[datetime]] = {}
    for name, at in tx.execute(query):
        found.setdefault(name, []).append(at)
    return found
