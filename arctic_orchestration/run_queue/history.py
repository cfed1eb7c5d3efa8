"""Recent starts and ends, by rate and by interval.

They are kept from pass to pass, and deleted when no rule needs them any more: a pass costs only the
new ones, however long the spans of the rules are.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import (
    ActiveRun,
    Census,
    Ledger,
    RunView,
    active_run,
    queued_run,
)
from arctic_orchestration.run_queue.rules import Rules

#: the clocks of hosts differ by less
_AHEAD = timedelta(minutes=1)

_RATE, _INTERVAL = tagging.Kind.RATE.key(""), tagging.Kind.INTERVAL.key("")


class History:
    """The ended runs' part of the ledger."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._starts: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
        self._ends: dict[tuple[str, str], datetime] = {}

    def add(self, ended: Iterable[RunView]) -> None:
        """Adds ended runs; a run that was added before counts once."""
        for run in ended:
            for key, value in run.tags.items():
                if key.startswith(_RATE):
                    name = key.removeprefix(_RATE)
                    if name in self._rules.rates and run.started_at is not None:
                        self._starts[name][run.run_id] = run.started_at
                elif key.startswith(_INTERVAL):
                    self._end(key.removeprefix(_INTERVAL), value, run)

    def _end(self, name: str, program: str, run: RunView) -> None:
        interval = self._rules.intervals.get(name)
        if interval is None or run.ended_at is None:
            return
        if run.dagster_status.lower() in interval.statuses:
            place = (name, program)
            self._ends[place] = max(run.ended_at, self._ends.get(place, run.ended_at))

    def ledger(self, active: Iterable[ActiveRun], now: datetime) -> Ledger:
        """Returns the starts and ends at a moment, including the starts of active runs.

        A run that is being started counts as started now, and so does one that started or ended
        while the clock was ahead: it does not hold others until that moment.
        """
        self._limit(now)
        self._forget(now)
        starts = {name: dict(known) for name, known in self._starts.items()}
        for run in active:
            for name in run.standing.rates:
                starts.setdefault(name, {})[run.run_id] = _limited(run.started_at or now, now)
        return Ledger(
            starts={name: sorted(found.values()) for name, found in starts.items()},
            ends=dict(self._ends),
        )

    def _limit(self, now: datetime) -> None:
        for known in self._starts.values():
            known.update({run_id: _limited(at, now) for run_id, at in known.items()})
        self._ends = {place: _limited(at, now) for place, at in self._ends.items()}

    def _forget(self, now: datetime) -> None:
        for name, known in self._starts.items():
            since = now - self._rules.rates[name].per
            for run_id in [run_id for run_id, at in known.items() if at <= since]:
                del known[run_id]
        self._ends = {
            (name, program): at
            for (name, program), at in self._ends.items()
            if at + self._rules.intervals[name].duration > now
        }


def _limited(at: datetime, now: datetime) -> datetime:
    return at if at <= now + _AHEAD else now


def lookback_of(rules: Rules) -> timedelta | None:
    """Returns how far back starts and ends matter; None: not at all."""
    spans = [rate.per for rate in rules.rates.values()]
    spans += [interval.duration for interval in rules.intervals.values()]
    return max(spans, default=None)


def ledger_of(
    ended: Iterable[RunView], active: Iterable[ActiveRun], rules: Rules, now: datetime
) -> Ledger:
    """Returns the ledger of relevant ended runs and active runs.

    For a run that is in both, because it ended just now, the end counts and the start counts once.
    Ends in the future are left out: a single look cannot know since when they count as now.
    """
    history = History(rules)
    history.add(run for run in ended if run.ended_at is None or run.ended_at <= now + _AHEAD)
    return history.ledger(active, now)


class Present(Protocol):
    """The queued and the active runs, each in the order of creation."""

    @property
    def queued(self) -> Sequence[RunView]: ...
    @property
    def active(self) -> Sequence[RunView]: ...


class RunSource(Protocol):
    """Reads Dagster's run storage."""

    def present(self) -> Present: ...
    def ended_since(self, since: datetime, now: datetime) -> Sequence[RunView]: ...


def take_census(runs: RunSource, rules: Rules, heeded: frozenset[str], now: datetime) -> Census:
    """Takes a census without earlier state, for a single look; ``heeded`` as in `queued_run`."""
    present = runs.present()
    active = [active_run(run, rules) for run in present.active]
    ledger = Ledger()
    back = lookback_of(rules)
    if back is not None:
        # Read after the active runs: a run that ends in between is seen twice instead of never.
        ledger = ledger_of(runs.ended_since(now - back, now), active, rules, now)
    queued = [queued_run(run, heeded) for run in present.queued]
    return Census(queued=queued, active=active, ledger=ledger)
