"""The current state of the run queue's rules: active runs, queued runs, closed gates."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arctic_orchestration.quantities import format_moment, iso
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.explanation import Outlook
from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.pauses import Pausable, Pause
from arctic_orchestration.run_queue.tags import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueNow:
    """The current state of one queue."""

    name: str
    level: int
    share: float
    in_progress: int
    waiting: int
    #: slots that it may use; None: there are enough for all queues
    may_use: int | None
    pause: Pause | None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "queue": self.name,
            "level": self.level,
            "share": self.share,
            "may_use": self.may_use,
            "in_progress": self.in_progress,
            "waiting": self.waiting,
            "paused": pause_json(self.pause),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupNow:
    """The current state of one group."""

    name: str
    limit: int | None
    limit_per_program: int | None
    in_progress: int
    waiting: int
    pause: Pause | None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "group": self.name,
            "limit": self.limit,
            "limit_per_program": self.limit_per_program,
            "in_progress": self.in_progress,
            "waiting": self.waiting,
            "paused": pause_json(self.pause),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleNow:
    """The current state of a window, a rate or an interval."""

    kind: Kind
    name: str
    #: the rule for people
    rule: str
    #: whether a run may start; None for an interval, which has many gates
    is_open: bool | None
    #: its state for people
    state: str
    #: when time alone changes the state, as far as known
    until: datetime | None
    waiting: int

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "rule": self.rule,
            "open": self.is_open,
            "state": self.state,
            "until": iso(self.until),
            "waiting": self.waiting,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """The current state of all rules."""

    queues: Sequence[QueueNow]
    groups: Sequence[GroupNow]
    rules: Sequence[RuleNow]
    #: queued runs in no queue, or in a deleted one, while queues exist
    in_no_queue: int

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form of the rules; its keys do not change."""
        return {
            "in_no_queue": self.in_no_queue,
            "queues": [queue.to_json() for queue in self.queues],
            "groups": [group.to_json() for group in self.groups],
            "rules": [rule.to_json() for rule in self.rules],
        }


def pause_json(pause: Pause | None) -> dict[str, Any] | None:
    """Returns the JSON form of a pause; its keys do not change."""
    if pause is None:
        return None
    return {"since": iso(pause.at), "reason": pause.reason, "by": pause.actor}


def overview(outlook: Outlook) -> Overview:
    """Returns the current state of the rules."""
    gates = outlook.gates
    census, rules, paused = gates.census, gates.rules, gates.paused
    in_queue = Counter(run.standing.queue for run in census.active)
    in_group = Counter(name for run in census.active for name in run.standing.groups)
    # A run without the tag does not wait for the rule of that tag.
    waiting = Counter(key for run in census.queued for key in run.tags)
    waits_in = Counter(run.tags.get(tagging.QUEUE) for run in census.queued)
    return Overview(
        queues=[
            QueueNow(
                name=name,
                level=queue.level,
                share=queue.share,
                in_progress=in_queue[name],
                waiting=waits_in[name],
                may_use=outlook.plan.shares.get(name),
                pause=paused.get((Pausable.QUEUE, name)),
            )
            for name, queue in rules.queues.items()
        ],
        groups=[
            GroupNow(
                name=name,
                limit=group.limit,
                limit_per_program=group.limit_per_program,
                in_progress=in_group[name],
                waiting=waiting[tagging.group_key(name)],
                pause=paused.get((Pausable.GROUP, name)),
            )
            for name, group in rules.groups.items()
        ],
        rules=[
            *(_window(gates, name, waiting[tagging.window_key(name)]) for name in rules.windows),
            *(_rate(gates, name, waiting[tagging.rate_key(name)]) for name in rules.rates),
            *(
                _interval(gates, name, waiting[tagging.interval_key(name)])
                for name in rules.intervals
            ),
        ],
        in_no_queue=sum(n for name, n in waits_in.items() if name not in rules.queues)
        if rules.queues
        else 0,
    )


def _window(gates: Gates, name: str, waiting: int) -> RuleNow:
    rule = gates.rules.windows[name]
    closes_at = rule.closes_at(gates.now)
    until = rule.opens_at(gates.now) if closes_at is None else closes_at
    return RuleNow(
        kind=Kind.WINDOW,
        name=name,
        rule=rule.text,
        is_open=closes_at is not None,
        state=f"{'closed' if closes_at is None else 'open'} until {format_moment(until)}",
        until=until,
        waiting=waiting,
    )


def _rate(gates: Gates, name: str, waiting: int) -> RuleNow:
    rule = gates.rules.rates[name]
    since = gates.now - rule.per
    starts = sorted(at for at in gates.census.ledger.starts.get(name, ()) if at > since)
    full = len(starts) >= rule.limit
    until = starts[len(starts) - rule.limit] + rule.per if full else None
    state = f"{len(starts)} of {rule.limit} were started"
    if until is not None:
        state += f", the next may start at {format_moment(until)}"
    return RuleNow(
        kind=Kind.RATE,
        name=name,
        rule=rule.text,
        is_open=not full,
        state=state,
        until=until,
        waiting=waiting,
    )


def _interval(gates: Gates, name: str, waiting: int) -> RuleNow:
    rule = gates.rules.intervals[name]
    key = tagging.interval_key(name)
    running = {
        run.program_under(key) for run in gates.census.active if name in run.standing.intervals
    }
    rest = {
        program: at + rule.duration
        for (interval, program), at in gates.census.ledger.ends.items()
        if interval == name and at + rule.duration > gates.now and program not in running
    }
    state = []
    if running:
        state.append(f"{_programs(len(running))} in progress")
    if rest:
        verb = "rests" if len(rest) == 1 else "rest, the last"
        last = format_moment(max(rest.values()))
        state.append(f"{_programs(len(rest))} {verb} until {last}")
    return RuleNow(
        kind=Kind.INTERVAL,
        name=name,
        rule=rule.text,
        is_open=None,
        state=", ".join(state) or "no program is in progress or has just ended",
        until=max(rest.values(), default=None),
        waiting=waiting,
    )


def _programs(count: int) -> str:
    return "1 program" if count == 1 else f"{count} programs"
