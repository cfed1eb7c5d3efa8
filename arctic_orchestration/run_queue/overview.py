"""The current state of the run queue's rules: active runs, queued runs, closed gates."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from arctic_orchestration.documents import At, Document, source
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.explanation import Outlook
from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.pauses import Pausable, Pause
from arctic_orchestration.run_queue.tags import Kind


class PauseDocument(Document):
    """A pause; without a moment it is configured in dagster.yaml."""

    since: At | None = source("at")
    reason: str
    by: str = source("actor")


class RunQueueDocument(Document):
    """A queue of runs, now."""

    queue: str
    level: int
    share: float
    #: slots that it may use; null: there are enough for all queues
    may_use: int | None
    in_progress: int
    waiting: int
    paused: PauseDocument | None


class GroupDocument(Document):
    """A group of runs, now."""

    group: str
    limit: int | None
    limit_per_program: int | None
    in_progress: int
    waiting: int
    paused: PauseDocument | None


class RuleDocument(Document):
    """A window, a rate or an interval, now."""

    kind: Kind
    name: str
    rule: str
    #: whether a run may start; null for an interval, which has many gates
    open: bool | None
    state: str
    #: when time alone changes the state, as far as known
    until: At | None
    waiting: int


class RulesDocument(Document):
    """The current state of all rules."""

    #: queued runs in no queue, while there are queues
    in_no_queue: int
    queues: list[RunQueueDocument]
    groups: list[GroupDocument]
    rules: list[RuleDocument]


def pause_document(pause: Pause | None) -> PauseDocument | None:
    """Returns the document of a pause."""
    return None if pause is None else PauseDocument.from_record(pause)


def of_target(rules: RulesDocument, kind: Pausable, name: str) -> RunQueueDocument | GroupDocument:
    """Returns the queue or group of a name that is known."""
    if kind is Pausable.GROUP:
        return next(group for group in rules.groups if group.group == name)
    return next(queue for queue in rules.queues if queue.queue == name)


def overview(outlook: Outlook) -> RulesDocument:
    """Returns the current state of the rules."""
    gates = outlook.gates
    census, rules, paused = gates.census, gates.rules, gates.paused
    in_queue = Counter(run.standing.queue for run in census.active)
    in_group = Counter(name for run in census.active for name in run.standing.groups)
    # A run without the tag does not wait for the rule of that tag.
    waiting = Counter(key for run in census.queued for key in run.tags)
    waits_in = Counter(run.tags.get(tagging.QUEUE) for run in census.queued)
    return RulesDocument(
        queues=[
            RunQueueDocument(
                queue=name,
                level=queue.level,
                share=queue.share,
                in_progress=in_queue[name],
                waiting=waits_in[name],
                may_use=outlook.plan.shares.get(name),
                paused=pause_document(paused.get((Pausable.QUEUE, name))),
            )
            for name, queue in rules.queues.items()
        ],
        groups=[
            GroupDocument(
                group=name,
                limit=group.limit,
                limit_per_program=group.limit_per_program,
                in_progress=in_group[name],
                waiting=waiting[Kind.GROUP.key(name)],
                paused=pause_document(paused.get((Pausable.GROUP, name))),
            )
            for name, group in rules.groups.items()
        ],
        rules=[
            RuleDocument(
                kind=kind,
                name=name,
                rule=rule.text,
                waiting=waiting[kind.key(name)],
                **_STATES[kind](gates, name),
            )
            for kind in _STATES
            for name, rule in rules.named(kind.configured_as).items()
        ],
        in_no_queue=sum(n for name, n in waits_in.items() if name not in rules.queues)
        if rules.queues
        else 0,
    )


def _window(gates: Gates, name: str) -> dict[str, Any]:
    rule = gates.rules.windows[name]
    closes_at = rule.closes_at(gates.now)
    until = rule.opens_at(gates.now) if closes_at is None else closes_at
    state = f"{'closed' if closes_at is None else 'open'} until {format_moment(until)}"
    return {"open": closes_at is not None, "state": state, "until": until}


def _rate(gates: Gates, name: str) -> dict[str, Any]:
    rule = gates.rules.rates[name]
    since = gates.now - rule.per
    starts = sorted(at for at in gates.census.ledger.starts.get(name, ()) if at > since)
    full = len(starts) >= rule.limit
    until = starts[len(starts) - rule.limit] + rule.per if full else None
    state = f"{len(starts)} of {rule.limit} were started"
    if until is not None:
        state += f", the next may start at {format_moment(until)}"
    return {"open": not full, "state": state, "until": until}


def _interval(gates: Gates, name: str) -> dict[str, Any]:
    rule = gates.rules.intervals[name]
    key = Kind.INTERVAL.key(name)
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
    text = ", ".join(state) or "no program is in progress or has just ended"
    return {"open": None, "state": text, "until": max(rest.values(), default=None)}


#: by the kind of a rule: whether a run may start, the state in words, and when it changes
_STATES: Mapping[Kind, Callable[[Gates, str], dict[str, Any]]] = {
    Kind.WINDOW: _window,
    Kind.RATE: _rate,
    Kind.INTERVAL: _interval,
}


def _programs(count: int) -> str:
    return "1 program" if count == 1 else f"{count} programs"
