"""Gates: what a queued run has to pass, each open for so many more runs, with its reason.

A gate stands for one rule as it is now: a window that is closed has no room, a group has room
for what its limit leaves. The same gates say which limits Dagster's daemon is given, which runs
can start in this pass, and why the others wait.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import ActiveRun, Census
from arctic_orchestration.run_queue.pauses import Pausable, Paused
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import Turn
from arctic_orchestration.run_queue.windows import OpenWindows

#: Dagster's form of a limit: ``{"key": ..., "value": ..., "limit": ...}``
Limit = Mapping[str, Any]
_EACH_VALUE = {"applyLimitPerUniqueValue": True}


@dataclass(kw_only=True, slots=True, eq=False)
class Gate:
    """One gate in one pass.

    Attributes:
        id: names what holds a run; as long as it is the same, so is the reason.
        room: how many more runs may pass.
        says: the gate for people, once so many runs passed in this plan.
        taken: how many runs passed in this plan.
    """

    id: str
    room: float
    says: Callable[[int], str]
    taken: int = 0

    @property
    def is_open(self) -> bool:
        """Whether one more run may pass."""
        return self.taken < self.room

    @property
    def text(self) -> str:
        """The gate as it is now, for people."""
        return self.says(self.taken)


@dataclass(kw_only=True)
class Gates:
    """The gates of one pass."""

    rules: Rules
    census: Census
    paused: Paused
    windows: OpenWindows
    now: datetime
    #: Dagster's own ``tag_concurrency_limits``, as they are configured
    stock: Sequence[Limit] = ()
    _made: dict[tuple[str, str], tuple[Gate, ...]] = field(default_factory=dict)
    _shared: dict[str, Gate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        active = self.census.active
        self._in_group: Counter[str] = Counter()
        self._in_program: Counter[tuple[str, str]] = Counter()
        self._in_interval: Counter[tuple[str, str]] = Counter()
        #: runs that were never queued, and that Dagster therefore counts nowhere
        self._strays: dict[str, list[ActiveRun]] = defaultdict(list)
        for run in active:
            for name in run.standing.groups:
                self._in_group[name] += 1
                self._in_program[name, run.program_under(tagging.program_key(name))] += 1
                if tagging.group_key(name) not in run.tags:
                    self._strays[name].append(run)
            for name in run.standing.intervals:
                self._in_interval[name, run.program_under(tagging.interval_key(name))] += 1
        self._in_tag = Counter(item for run in active for item in run.tags.items())
        self._in_key = Counter(key for run in active for key in run.tags)
        # As in Dagster, the last of several for the same key and value counts.
        self._stock = {place_of(limit): limit for limit in self.stock}

    def of(self, marks: Sequence[tuple[str, str]]) -> tuple[Gate, ...]:
        """The gates of a run with these tags, those first that a person shuts."""
        found = [gate for mark in marks for gate in self._at(mark)]
        return tuple(sorted(found, key=lambda gate: _ORDER[gate.id.partition(":")[0]]))

    def limits(self) -> list[dict[str, Any]]:
        """The limits for Dagster's daemon.

        They hold for runs, too, that are queued after the census was taken.
        """
        found = [dict(limit) for limit in self._stock.values()]
        rules = self.rules
        for kind, name in self.paused:
            if kind is Pausable.QUEUE:
                found.append({"key": tagging.QUEUE, "value": name, "limit": 0})
            else:
                found.append({"key": tagging.group_key(name), "limit": 0})
        for name, group in rules.groups.items():
            strays = self._strays.get(name, [])
            if group.limit is not None:
                key = tagging.group_key(name)
                found.append({"key": key, "limit": max(group.limit - len(strays), 0)})
            each = group.limit_per_program
            if each is not None:
                key = tagging.program_key(name)
                found.append({"key": key, "value": _EACH_VALUE, "limit": each})
                for program, count in Counter(run.program for run in strays).items():
                    left = max(each - count, 0)
                    found.append({"key": key, "value": program, "limit": left})
        for name, rule in rules.windows.items():
            if not self.windows.is_open(name, rule, self.now):
                found.append({"key": tagging.window_key(name), "limit": 0})
        for name in rules.rates:
            found.append({"key": tagging.rate_key(name), "value": Turn.WAITING.value, "limit": 0})
        for name in rules.intervals:
            key = tagging.interval_key(name)
            found.append({"key": key, "value": _EACH_VALUE, "limit": 1})
            found.extend(
                {"key": key, "value": program, "limit": 0} for program in self._resting(name)
            )
        return found

    def _resting(self, interval: str) -> set[str]:
        """The programs of which no run may start: one is in progress, or ended too recently."""
        duration = self.rules.intervals[interval].duration
        ended = {
            program
            for (name, program), at in self.census.ledger.ends.items()
            if name == interval and at + duration > self.now
        }
        return ended | {program for name, program in self._in_interval if name == interval}

    def _at(self, mark: tuple[str, str]) -> tuple[Gate, ...]:
        if mark not in self._made:
            self._made[mark] = tuple(self._make(*mark))
        return self._made[mark]

    def _make(self, key: str, value: str) -> list[Gate]:
        gates = self._stock_gates(key, value)
        if key == tagging.QUEUE:
            return gates + self._paused_gate(Pausable.QUEUE, value)
        kind, _, name = key.removeprefix(tagging.PREFIX).partition(".")
        if not name or not key.startswith(tagging.PREFIX):
            return gates
        if kind == "group":
            gates += self._paused_gate(Pausable.GROUP, name)
            gates += self._once(f"group:{name}", lambda: self._group_gate(name))
        elif kind == "program":
            gates += self._program_gate(name, value)
        elif kind == "window":
            gates += self._once(f"window:{name}", lambda: self._window_gate(name))
        elif kind == "interval":
            gates += self._interval_gate(name, value)
        elif kind == "rate":
            gates += self._once(f"rate:{name}", lambda: self._rate_gate(name))
        return gates

    def _once(self, id: str, make: Callable[[], Gate | None]) -> list[Gate]:
        """A gate that runs with different values of its tag share."""
        if id not in self._shared:
            gate = make()
            if gate is None:
                return []
            self._shared[id] = gate
        return [self._shared[id]]

    def _paused_gate(self, kind: Pausable, name: str) -> list[Gate]:
        pause = self.paused.get((kind, name))
        if pause is None:
            return []
        return [Gate(id=f"paused:{kind}:{name}:{pause.at}", room=0, says=lambda _: pause.text)]

    def _group_gate(self, name: str) -> Gate | None:
        group = self.rules.groups.get(name)
        if group is None or group.limit is None:
            return None
        return self._counting(f"group:{name}", f"group {name}", group.limit, self._in_group[name])

    def _program_gate(self, name: str, program: str) -> list[Gate]:
        group = self.rules.groups.get(name)
        if group is None or group.limit_per_program is None:
            return []
        in_use = self._in_program[name, program]
        what = f"group {name}, program {program}"
        return [self._counting(f"program:{name}:{program}", what, group.limit_per_program, in_use)]

    def _window_gate(self, name: str) -> Gate | None:
        rule = self.rules.windows.get(name)
        if rule is None:
            return None
        if self.windows.is_open(name, rule, self.now):
            closes_at = rule.closes_at(self.now)
            until = f" until {format_moment(closes_at)}" if closes_at else ""
            open_text = f"window {name} is open{until} ({rule.text})"
            return Gate(id=f"window:{name}", room=math.inf, says=lambda _: open_text)
        opens_at = rule.opens_at(self.now)
        if rule.is_open(self.now):
            text = f"window {name} stays closed until the state database answers ({rule.text})"
        else:
            text = f"window {name} opens at {format_moment(opens_at)} ({rule.text})"
        return Gate(id=f"window:{name}:{text}", room=0, says=lambda _: text)

    def _interval_gate(self, name: str, program: str) -> list[Gate]:
        rule = self.rules.intervals.get(name)
        if rule is None:
            return []
        what = f"interval {name} ({rule.text}) of {program}"
        id = f"interval:{name}:{program}"
        ended_at = self.census.ledger.ends.get((name, program))
        if self._in_interval[name, program]:
            text = f"{what}: a run is in progress"
            return [Gate(id=f"{id}:running", room=0, says=lambda _: text)]
        if ended_at is not None and ended_at + rule.duration > self.now:
            opens_at = format_moment(ended_at + rule.duration)
            text = f"{what}: the last run ended at {format_moment(ended_at)}, the next may start "
            text += f"at {opens_at}"
            return [Gate(id=f"{id}:{opens_at}", room=0, says=lambda _: text)]

        def says(taken: int) -> str:
            return f"{what}: a run is in progress" if taken else f"{what}: one may start"

        return [Gate(id=f"{id}:running", room=1, says=says)]

    def _rate_gate(self, name: str) -> Gate | None:
        rule = self.rules.rates.get(name)
        if rule is None:
            return None
        since = self.now - rule.per
        starts = [at for at in self.census.ledger.starts.get(name, ()) if at > since]
        room = max(rule.limit - len(starts), 0)

        def says(taken: int) -> str:
            text = f"rate {name}: {len(starts) + taken} of {rule.limit} starts"
            text += f" within {format_duration(rule.per)}"
            if not room:
                free_at = starts[len(starts) - rule.limit] + rule.per
                text += f", the next may start at {format_moment(free_at)}"
            return text

        return Gate(id=f"rate:{name}", room=room, says=says)

    def _stock_gates(self, key: str, value: str) -> list[Gate]:
        """The gates of Dagster's own limits that look at this tag."""
        gates = []
        for place, in_use, shared in (
            ((key, None), self._in_key[key], True),
            ((key, value), self._in_tag[key, value], False),
            ((key, True), self._in_tag[key, value], False),
        ):
            limit = self._stock.get(place)
            if limit is None:
                continue
            id = f"tag:{key}" if shared else f"tag:{key}={value}:{place[1] is True}"
            what = f"tag {key}" if shared else f"tag {key}={value}"
            gate = self._shared.get(id) if shared else None
            if gate is None:
                gate = self._counting(id, what, limit["limit"], in_use)
            if shared:
                self._shared[id] = gate
            gates.append(gate)
        return gates

    @staticmethod
    def _counting(id: str, what: str, limit: int, in_use: int) -> Gate:
        def says(taken: int) -> str:
            return f"{what}: {in_use + taken} of {limit} runs are in progress"

        return Gate(id=id, room=limit - in_use, says=says)


#: Of several gates that are shut, the first of these is told.
_ORDER = {
    kind: place
    for place, kind in enumerate(
        ("paused", "window", "interval", "rate", "group", "program", "tag")
    )
}


def place_of(limit: Limit) -> tuple[str, Any]:
    """What a limit is for: its key, and one value, all values together (none) or each (true)."""
    value = limit.get("value")
    if isinstance(value, str):
        return (limit["key"], value)
    return (limit["key"], True if value and value.get("applyLimitPerUniqueValue") else None)


def shown_limits(
    rules: Rules, stock: Sequence[Limit], windows: OpenWindows, now: datetime
) -> list[dict[str, Any]]:
    """The limits for people who look at the queue criteria of Dagster's UI.

    From the configuration and the time alone. The UI shows a limit whose value is that of the
    run's tag, and so the rule in words.
    """
    found = [dict(limit) for limit in stock]
    for name, queue in rules.queues.items():
        if queue.paused:
            found.append({"key": tagging.QUEUE, "value": name, "limit": 0})
    for name, group in rules.groups.items():
        if group.limit is not None:
            key = tagging.group_key(name)
            found.append({"key": key, "value": group.text, "limit": group.limit})
        if group.limit_per_program is not None:
            key = tagging.program_key(name)
            found.append({"key": key, "value": _EACH_VALUE, "limit": group.limit_per_program})
    for name, window in rules.windows.items():
        if not windows.is_open(name, window, now):
            found.append({"key": tagging.window_key(name), "value": window.text, "limit": 0})
    for name in rules.intervals:
        found.append({"key": tagging.interval_key(name), "value": _EACH_VALUE, "limit": 1})
    for name in rules.rates:
        found.append({"key": tagging.rate_key(name), "value": Turn.WAITING.value, "limit": 0})
    return found
