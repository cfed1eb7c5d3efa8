"""What one pass does: the limits for Dagster's daemon, the turns of rates, and why runs wait.

Dagster's daemon sorts the queue by priority and starts, from the front, what no limit blocks,
while there are slots. The plan goes through the queue in the same way before the daemon does,
with the same limits. So it knows which runs will start, how much each queue could use, and of
every other run the first gate that holds it.

Limits alone would not do for two things. A *rate* counts starts, not runs in progress, and a run
that ends between our count and the daemon's would make room that is none. Therefore its runs
carry a tag that says ``waiting``, which is always blocked, and the plan names those whose turn
it is. And *shares* depend on what each queue could use, which only going through the queue tells.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import QueuedRun
from arctic_orchestration.run_queue.gates import Gate, Gates, place_of
from arctic_orchestration.run_queue.shares import Claim, divide
from arctic_orchestration.run_queue.tags import Kind, Turn

#: How often slots are offered anew that a queue could not use after all.
_ROUNDS = 3
#: the gate of a :class:`Wait` for something that is Dagster's own
HELD_BY_DAGSTER = "dagster"
_RATE = f"{tagging.PREFIX}{Kind.RATE}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """Why a run waits."""

    #: the same for as long as the same thing holds it
    gate: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One pass.

    Attributes:
        limits: what Dagster's daemon is given as ``tag_concurrency_limits``.
        starts: the runs that can start, in their order.
        turns: tags of runs that change: those of rates, by run.
        waits: why each other run waits, those first that are first in the queue.
        shares: slots that each queue may use, where queues compete for them.
    """

    limits: Sequence[dict[str, Any]]
    starts: Sequence[str] = ()
    turns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    waits: Mapping[str, Wait] = field(default_factory=dict)
    shares: Mapping[str, int] = field(default_factory=dict)


def plan(gates: Gates, *, max_concurrent_runs: int, passed_over: Collection[str] = ()) -> Plan:
    """The plan of one pass; see the module's text.

    Args:
        gates: the gates of this pass, unused.
        max_concurrent_runs: Dagster's; -1 is no limit.
        passed_over: runs that plans let start and that Dagster did not: something of its own holds
            them, and slots must not wait for them. They may start at any time.
    """
    return _Planning(gates, max_concurrent_runs, frozenset(passed_over)).plan()


class _Planning:
    def __init__(self, gates: Gates, limit: int, passed_over: frozenset[str]) -> None:
        self._gates = gates
        census = gates.census
        # Stable, as Dagster's: first come, first served among equals.
        self._queue = sorted(census.queued, key=lambda run: run.priority, reverse=True)
        self._in_progress = len(census.active)
        self._limit = limit
        self._slots = math.inf if limit == -1 else max(limit - self._in_progress, 0)
        self._passed_over = passed_over
        self._gates_of: dict[tuple[tuple[str, str], ...], tuple[Gate, ...]] = {}
        self._in_use: Counter[str] = Counter()
        self._tagged: Counter[str] = Counter()
        for run in census.active:
            if run.standing.queue is not None:
                self._in_use[run.standing.queue] += 1
                self._tagged[run.standing.queue] += run.tags.get(tagging.QUEUE) is not None

    def plan(self) -> Plan:
        allowed = self._shares()
        starts, waits, _ = self._go_through(allowed)
        free = {run.run_id for run in starts}
        free |= {id for id, wait in waits.items() if wait is _HELD_BY_DAGSTER}
        limits = self._gates.limits()
        shares = {}
        if allowed is not None:
            over = Counter(
                run.tags.get(tagging.QUEUE)
                for run in self._queue
                if run.run_id in self._passed_over
            )
            for name, count in allowed.items():
                shares[name] = self._in_use[name] + count
                # Dagster counts runs that it then does not start.
                limit = self._tagged[name] + count + over[name]
                limits.append({"key": tagging.QUEUE, "value": name, "limit": limit})
        return Plan(
            limits=merged(limits),
            starts=[run.run_id for run in starts],
            turns=self._turns(free),
            waits=waits,
            shares=shares,
        )

    def _shares(self) -> dict[str, int] | None:
        """How many runs of each queue may start; none: there is enough for all."""
        queues = self._gates.rules.queues
        if not queues or math.isinf(self._slots):
            return None
        wanted = self._wanted()
        if sum(wanted.values()) <= self._slots:
            return None
        # Runs of no queue stand outside of all shares.
        slots = max(int(self._slots) - wanted.pop(None, 0), 0)
        claims = {
            name: Claim(
                share=queue.share,
                level=queue.level,
                in_use=self._in_use[name],
                wanted=wanted.get(name, 0),
            )
            for name, queue in queues.items()
        }
        allowed = divide(slots, claims)
        for _ in range(_ROUNDS):
            starts, _, short = self._go_through(allowed)
            used = Counter(run.tags.get(tagging.QUEUE) for run in starts)
            left = slots - sum(used[name] for name in allowed)
            if left <= 0 or not short:
                break
            # A queue that was given more than it can use now leaves it to those that can.
            claims = {
                name: Claim(
                    share=claim.share,
                    level=claim.level,
                    in_use=claim.in_use,
                    wanted=claim.wanted if name in short else used[name],
                )
                for name, claim in claims.items()
            }
            allowed = divide(slots, claims)
        return allowed

    def _wanted(self) -> dict[str | None, int]:
        """How many runs of each queue could start if it were alone, at most one for each slot."""
        wanted: Counter[str | None] = Counter()
        taken: dict[tuple[str | None, Gate], int] = {}
        for run in self._queue:
            queue = run.tags.get(tagging.QUEUE)
            if wanted[queue] >= self._slots:
                continue
            gates = self._gates_for(run)
            if any(taken.get((queue, gate), 0) >= gate.room for gate in gates):
                continue
            for gate in gates:
                taken[queue, gate] = taken.get((queue, gate), 0) + 1
            wanted[queue] += run.run_id not in self._passed_over
        return dict(wanted)

    def _go_through(
        self, allowed: Mapping[str, int] | None
    ) -> tuple[list[QueuedRun], dict[str, Wait], set[str]]:
        """The runs that start, why the others wait, and the queues whose share was too small."""
        starts: list[QueuedRun] = []
        waits: dict[str, Wait] = {}
        short: set[str] = set()
        left = dict(allowed or {})
        slots = self._slots
        turns: dict[str | None, Wait] = {}
        known: dict[Gate, Wait] = {}
        for gate in {gate for gates in self._gates_of.values() for gate in gates}:
            gate.taken = 0
        for run in self._queue:
            gates = self._gates_for(run)
            shut = next((gate for gate in gates if not gate.is_open), None)
            if shut is not None:
                if shut not in known:
                    known[shut] = Wait(gate=shut.id, reason=shut.text)
                waits[run.run_id] = known[shut]
                continue
            if run.run_id in self._passed_over:
                # Dagster counts it against its limits before it finds that it cannot start.
                for gate in gates:
                    gate.taken += 1
                waits[run.run_id] = _HELD_BY_DAGSTER
                continue
            queue = run.tags.get(tagging.QUEUE)
            full = queue in left and left[queue] <= 0
            if full or slots <= 0:
                if full and queue is not None and slots > 0:
                    short.add(queue)
                if queue not in turns:
                    turns[queue] = self._turn(queue, allowed)
                waits[run.run_id] = turns[queue]
                continue
            for gate in gates:
                gate.taken += 1
            if queue in left:
                left[queue] -= 1
            slots -= 1
            starts.append(run)
        return starts, waits, short

    def _gates_for(self, run: QueuedRun) -> tuple[Gate, ...]:
        gates = self._gates_of.get(run.marks)
        if gates is None:
            gates = self._gates_of[run.marks] = self._gates.of(run.marks)
        return gates

    def _turn(self, queue: str | None, allowed: Mapping[str, int] | None) -> Wait:
        if self._limit == 0:
            return Wait(gate="turn", reason="max_concurrent_runs is 0: no run starts")
        text = f"its turn: {self._in_progress} of {self._limit} slots are in use"
        if queue is not None and allowed is not None and queue in allowed:
            has = self._in_use[queue]
            text += f", {has} of the {has + allowed[queue]} that queue {queue} may use now"
        return Wait(gate="turn", reason=text)

    def _turns(self, free: Collection[str]) -> dict[str, dict[str, str]]:
        """Tags of rates that have to change, when these runs may start."""
        turns: dict[str, dict[str, str]] = {}
        for run in self._queue:
            turn = Turn.GRANTED if run.run_id in free else Turn.WAITING
            changed = {
                key: turn.value
                for key, value in run.marks
                if key.startswith(_RATE) and value != turn.value
            }
            if changed:
                turns[run.run_id] = changed
        return turns


_HELD_BY_DAGSTER = Wait(
    gate=HELD_BY_DAGSTER,
    reason="no rule holds it, but Dagster does not start it: a pool is full, or its code location "
    "does not answer (the daemon's log says which)",
)


def merged(limits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One limit for each key and value, the smallest; of several Dagster would take the last."""
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    for limit in limits:
        place = place_of(limit)
        known = found.get(place)
        if known is None:
            found[place] = dict(limit)
        else:
            known["limit"] = min(known["limit"], limit["limit"])
    return list(found.values())
