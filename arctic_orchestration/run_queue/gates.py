"""Gates: the conditions a queued run must pass, each open for some more runs, with its reason.

A gate is the current state of one rule: a closed window has no room, a group has the room that its
limit leaves. With the gates the plan of a pass finds which runs can start, and why the others wait.
Gates are kept from pass to pass and update only what has changed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any

from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import Census
from arctic_orchestration.run_queue.counts import Counts
from arctic_orchestration.run_queue.limits import Limit, last_of_each, limits_of
from arctic_orchestration.run_queue.pauses import Pausable, Pause, Paused
from arctic_orchestration.run_queue.rules import Interval, Rate, Rules, TimeWindow
from arctic_orchestration.run_queue.windows import OpenWindows, WindowState

#: Of several closed gates, the first in this order is reported.
_PAUSED, _WINDOW, _INTERVAL, _RATE, _GROUP, _PROGRAM, _TAG = range(7)


@dataclass(frozen=True, kw_only=True)
class GateState:
    """The inputs of gates."""

    census: Census
    counts: Counts
    windows: OpenWindows
    now: datetime


class Gate(ABC):
    """One gate.

    Attributes:
        id: identifies what holds a run; an equal id means an equal reason.
        room: how many more runs may pass, at the last update.
        taken: how many runs passed since.
        order: of several closed gates, the one with the smallest is reported.
    """

    __slots__ = ("id", "order", "room", "taken")

    def __init__(self, id: str, order: int) -> None:
        self.id = id
        self.order = order
        self.room: float = 0
        self.taken = 0

    @property
    def is_open(self) -> bool:
        """Whether one more run may pass."""
        return self.taken < self.room

    @property
    def text(self) -> str:
        """The current state of the gate, for people."""
        return self.text_with(self.taken)

    @property
    def state(self) -> object:
        """The result of the last update; equal while it holds the same runs for the same reason."""
        return self.id, self.room

    @abstractmethod
    def look(self, seen: GateState) -> None:
        """Computes how much room there is."""

    @abstractmethod
    def text_with(self, taken: int) -> str:
        """Returns the text of the gate for people, after ``taken`` runs have passed."""


class PausedGate(Gate):
    """A queue or a group that a person paused."""

    __slots__ = ("_pause",)

    def __init__(self, pause: Pause) -> None:
        super().__init__(f"paused:{pause.kind}:{pause.name}:{pause.at}", _PAUSED)
        self._pause = pause

    def look(self, seen: GateState) -> None:
        self.room = 0

    def text_with(self, taken: int) -> str:
        return self._pause.text


class WindowGate(Gate):
    """A window."""

    __slots__ = ("_name", "_rule", "_state")

    def __init__(self, name: str, rule: TimeWindow) -> None:
        super().__init__(f"window:{name}", _WINDOW)
        self._name = name
        self._rule = rule
        self._state: WindowState | None = None

    def look(self, seen: GateState) -> None:
        state = seen.windows.state(self._name, self._rule, seen.now)
        self.room = math.inf if state.is_open else 0
        if state is not self._state:
            self._state = state
            self.id = f"window:{self._name}:{state.until}:{state.is_held}"

    def text_with(self, taken: int) -> str:
        assert self._state is not None
        until, what = format_moment(self._state.until), f"window {self._name}"
        if self._state.is_open:
            return f"{what} is open until {until} ({self._rule.text})"
        if self._state.is_held:
            return f"{what} stays closed until the state database answers ({self._rule.text})"
        return f"{what} opens at {until} ({self._rule.text})"


class IntervalGate(Gate):
    """The pause between the runs of one program."""

    __slots__ = ("_ended_at", "_name", "_program", "_rule")

    def __init__(self, name: str, program: str, rule: Interval) -> None:
        # Independent of the phase: a run that waits behind many gets one report for all phases.
        super().__init__(f"interval:{name}:{program}", _INTERVAL)
        self._name = name
        self._program = program
        self._rule = rule
        #: of the last run, during the interval; None: one is active, or the interval is over
        self._ended_at: datetime | None = None

    @property
    def state(self) -> object:
        return self.room, self._ended_at

    def look(self, seen: GateState) -> None:
        place = (self._name, self._program)
        running = seen.counts.in_interval[place] > 0
        ended_at = seen.census.ledger.ends.get(place)
        rests = ended_at is not None and ended_at + self._rule.duration > seen.now
        self._ended_at = ended_at if rests and not running else None
        self.room = 0 if running or rests else 1

    def text_with(self, taken: int) -> str:
        text = f"interval {self._name} ({self._rule.text}) of {self._program}"
        if self._ended_at is not None:
            opens_at = format_moment(self._ended_at + self._rule.duration)
            text += f": the last run ended at {format_moment(self._ended_at)}, the next may start "
            return f"{text}at {opens_at}"
        if taken or not self.room:
            return f"{text}: a run is in progress"
        return f"{text}: one may start"


class RateGate(Gate):
    """A rate."""

    __slots__ = ("_name", "_rule", "_starts")

    def __init__(self, name: str, rule: Rate) -> None:
        super().__init__(f"rate:{name}", _RATE)
        self._name = name
        self._rule = rule
        self._starts: Sequence[datetime] = ()

    @property
    def state(self) -> object:
        return self._starts

    def look(self, seen: GateState) -> None:
        since = seen.now - self._rule.per
        known = seen.census.ledger.starts.get(self._name, ())
        self._starts = [at for at in known if at > since]
        self.room = max(self._rule.limit - len(self._starts), 0)

    def text_with(self, taken: int) -> str:
        limit, per = self._rule.limit, self._rule.per
        text = f"rate {self._name}: {len(self._starts) + taken} of {limit} starts"
        text += f" within {format_duration(per)}"
        if not self.room:
            free_at = self._starts[len(self._starts) - limit] + per
            text += f", the next may start at {format_moment(free_at)}"
        return text


class CountingGate(Gate):
    """A limit on active runs: of a group, of a program in it, of a tag."""

    __slots__ = ("_in_use", "_limit", "_what", "_where")

    def __init__(self, id: str, order: int, what: str, limit: int, where: tuple[str, Any]) -> None:
        """``where`` is a counter of :class:`Counts` and its key."""
        super().__init__(id, order)
        self._what = what
        self._limit = limit
        self._where = where
        self._in_use = 0

    def look(self, seen: GateState) -> None:
        counter, place = self._where
        self._in_use = getattr(seen.counts, counter)[place]
        self.room = self._limit - self._in_use

    def text_with(self, taken: int) -> str:
        return f"{self._what}: {self._in_use + taken} of {self._limit} runs are in progress"


@dataclass(kw_only=True)
class Gates:
    """The gates of one pass, and of the following ones."""

    rules: Rules
    census: Census
    paused: Paused
    windows: OpenWindows
    now: datetime
    #: Dagster's own ``tag_concurrency_limits``, as configured
    stock: Sequence[Limit] = ()
    _made: dict[str, Gate] = field(default_factory=dict)
    _of: dict[Sequence[tuple[str, str]], tuple[Gate, ...]] = field(default_factory=dict)
    #: changes when an update of any gate has a new result
    version: int = 0

    def __post_init__(self) -> None:
        self._stock = last_of_each(self.stock)
        self._look()

    def update(self, census: Census, paused: Paused, now: datetime) -> None:
        """Updates all gates to another census and time."""
        same_pauses = paused == self.paused
        if not same_pauses:
            # The gates of pauses appear and disappear.
            self._of.clear()
            self._made = {id: gate for id, gate in self._made.items() if gate.order != _PAUSED}
        self.census, self.paused, self.now = census, paused, now
        version, states = self.version, [gate.state for gate in self._made.values()]
        self.version += 1
        self._look()
        if same_pauses and states == [gate.state for gate in self._made.values()]:
            self.version = version

    def _look(self) -> None:
        self._counts = Counts(self.census)
        self._seen = GateState(
            census=self.census, counts=self._counts, windows=self.windows, now=self.now
        )
        for gate in self._made.values():
            gate.taken = 0
            gate.look(self._seen)

    def of(self, pairs: Sequence[tuple[str, str]]) -> tuple[Gate, ...]:
        """Returns the gates of a run with these tags, with gates closed by a person first."""
        pairs = tuple(pairs)
        known = self._of.get(pairs)
        if known is None:
            found = [gate for pair in pairs for gate in self._at(*pair)]
            known = self._of[pairs] = tuple(sorted(found, key=_order))
        return known

    def limits(self) -> list[dict[str, Any]]:
        """Returns the limits for Dagster's daemon: its own, as configured, and those of rules."""
        rules = limits_of(
            self.rules, self.census, self._counts, self.paused, self.windows, self.now
        )
        return [*map(dict, self._stock.values()), *rules]

    def _at(self, key: str, value: str) -> list[Gate]:
        gates = self._of_stock(key, value) if self._stock else []
        if key == tagging.QUEUE:
            return gates + self._of_pause(Pausable.QUEUE, value)
        if not key.startswith(tagging.PREFIX):
            return gates
        kind, _, name = key.removeprefix(tagging.PREFIX).partition(".")
        rules = self.rules
        if kind == "group" and name in rules.groups:
            gates += self._of_pause(Pausable.GROUP, name)
            limit = rules.groups[name].limit
            if limit is not None:
                id, what = f"group:{name}", f"group {name}"
                gates.append(self._counting(id, _GROUP, what, limit, ("in_group", name)))
        elif kind == "program" and name in rules.groups:
            each = rules.groups[name].limit_per_program
            if each is not None:
                id, what = f"program:{name}:{value}", f"group {name}, program {value}"
                where = ("in_program", (name, value))
                gates.append(self._counting(id, _PROGRAM, what, each, where))
        elif kind == "window" and name in rules.windows:
            gates.append(self._kept(key, lambda: WindowGate(name, rules.windows[name])))
        elif kind == "interval" and name in rules.intervals:
            place = f"{key}={value}"
            gates.append(
                self._kept(place, lambda: IntervalGate(name, value, rules.intervals[name]))
            )
        elif kind == "rate" and name in rules.rates:
            gates.append(self._kept(key, lambda: RateGate(name, rules.rates[name])))
        return gates

    def _of_pause(self, kind: Pausable, name: str) -> list[Gate]:
        pause = self.paused.get((kind, name))
        if pause is None:
            return []
        return [self._kept(f"paused:{kind}:{name}", lambda: PausedGate(pause))]

    def _of_stock(self, key: str, value: str) -> list[Gate]:
        """Returns the gates of Dagster's own limits that apply to this tag."""
        gates: list[Gate] = []
        for place in ((key, None), (key, value), (key, True)):
            limit = self._stock.get(place)
            if limit is None:
                continue
            if place[1] is None:
                id, what, where = f"tag:{key}", f"tag {key}", ("in_key", key)
            else:
                id, what = f"tag:{key}={value}:{place[1] is True}", f"tag {key}={value}"
                where = ("in_tag", (key, value))  # type: ignore[assignment]
            gates.append(self._counting(id, _TAG, what, limit["limit"], where))
        return gates

    def _counting(self, id: str, order: int, what: str, limit: int, where: tuple[str, Any]) -> Gate:
        return self._kept(id, lambda: CountingGate(id, order, what, limit, where))

    def _kept(self, place: str, make: Callable[[], Gate]) -> Gate:
        """Returns an existing gate, or a new one; runs with different tags share it."""
        gate = self._made.get(place)
        if gate is None:
            gate = self._made[place] = make()
            gate.look(self._seen)
        return gate


_order = attrgetter("order")
