"""Plans one pass: limits for Dagster's daemon, the turns of rates, and why runs wait.

Dagster's daemon sorts the queue by priority and starts, from the front, what no limit blocks, while
there are slots. The plan goes through the queue in the same way before the daemon does, with the
same limits. So it knows which runs will start, how many slots each queue could use, and for every
other run the first gate that holds it.

Limits alone cannot express two things. A *rate* counts starts, not active runs, and a run that ends
between our count and the daemon's would free room that the rate does not have. Therefore its runs
carry a tag with the value ``waiting``, which is always blocked, and the plan names the runs whose
turn it is. *Shares* depend on the slots that each queue could use in a walk through the queue.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, cast

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import Census, Marks, QueuedRun
from arctic_orchestration.run_queue.gates import Gate, Gates
from arctic_orchestration.run_queue.limits import merged
from arctic_orchestration.run_queue.shares import Claim, divide
from arctic_orchestration.run_queue.tags import Turn

#: the number of runs that Dagster's daemon reads at once by default
_PAGE = 100
#: the gate of a :class:`Wait` for something in Dagster itself
HELD_BY_DAGSTER = "dagster"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """Why a run waits."""

    #: stays equal while the same thing holds it
    gate: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One pass.

    Attributes:
        limits: the ``tag_concurrency_limits`` for Dagster's daemon.
        starts: the runs that can start, in their order.
        turns: changed tags of rates, by run.
        waits: why each other run waits, in queue order.
        shares: slots that each queue may use, if queues compete for them.
        share_limits: the part of ``limits`` that enforces shares.
    """

    limits: Sequence[dict[str, Any]]
    starts: Sequence[str] = ()
    turns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    waits: Mapping[str, Wait] = field(default_factory=dict)
    shares: Mapping[str, int] = field(default_factory=dict)
    share_limits: Sequence[dict[str, Any]] = ()


class Planner:
    """Plans one pass after the other; without changes the previous plan stays valid."""

    def __init__(self, max_concurrent_runs: int) -> None:
        self._max_concurrent_runs = max_concurrent_runs
        self._last: tuple[Plan, Gates, int, Census, frozenset[str]] | None = None

    def plan(self, gates: Gates, passed_over: Collection[str] = ()) -> Plan:
        """As the function :func:`plan`; ``gates`` may be those of the previous pass."""
        passed_over = frozenset(passed_over)
        made = self._still_holds(gates, passed_over)
        if made is None:
            limit = self._max_concurrent_runs
            made = plan(gates, max_concurrent_runs=limit, passed_over=passed_over)
        self._last = (made, gates, gates.version, gates.census, passed_over)
        return made

    def _still_holds(self, gates: Gates, passed_over: frozenset[str]) -> Plan | None:
        if self._last is None:
            return None
        made, before, version, census, over = self._last
        same = (
            gates is before
            and gates.version == version
            and gates.census.queued is census.queued
            and gates.census.active is census.active
            and passed_over == over
        )
        if not same:
            return None
        # The limits may differ: one may belong to a rule without a queued run.
        return replace(made, limits=merged([*gates.limits(), *made.share_limits]))


def plan(gates: Gates, *, max_concurrent_runs: int, passed_over: Collection[str] = ()) -> Plan:
    """Plans one pass; see the module's docstring.

    Args:
        gates: the gates of this pass, unused.
        max_concurrent_runs: Dagster's; -1 is no limit.
        passed_over: runs that Dagster did not start although plans let them: Dagster holds
            them for its own reasons, and slots must not wait for them. They may start at any time.
    """
    return _Planning(gates, max_concurrent_runs, frozenset(passed_over)).plan()


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """The gates for all runs with the same marks."""

    gates: tuple[Gate, ...]
    #: the first gate that was closed before anything started
    shut: Wait | None


class _Planning:
    def __init__(self, gates: Gates, limit: int, passed_over: frozenset[str]) -> None:
        self._gates = gates
        census = gates.census
        # Stable, like Dagster's sort: first come, first served among equals.
        self._queue = sorted(census.queued, key=_PRIORITY, reverse=True)
        self._in_progress = len(census.active)
        self._limit = limit
        self._slots = math.inf if limit == -1 else max(limit - self._in_progress, 0)
        self._passed_over = passed_over
        #: those of them that no gate holds: they may start at any time
        self._tried: list[QueuedRun] = []
        self._waits: dict[Gate, Wait] = {}
        ways = {marks: self._way(marks) for marks in {run.marks for run in census.queued}}
        self._ways = ways
        #: runs that no gate closed from the start holds; all others wait, whatever starts
        self._open = [run for run in self._queue if ways[run.marks].shut is None]
        self._in_use: Counter[str] = Counter()
        self._tagged: Counter[str] = Counter()
        for run in census.active:
            if run.standing.queue is not None:
                self._in_use[run.standing.queue] += 1
                # Dagster counts by the tag, which may name a deleted queue.
                tagged = run.tags.get(tagging.QUEUE) == run.standing.queue
                self._tagged[run.standing.queue] += tagged

    def _way(self, marks: Marks) -> _Way:
        gates = self._gates.of(marks.pairs)
        for gate in gates:
            if gate.room <= 0:
                return _Way(gates, self._wait_at(gate))
        return _Way(gates, None)

    def _wait_at(self, gate: Gate) -> Wait:
        wait = self._waits.get(gate)
        if wait is None:
            wait = self._waits[gate] = Wait(gate=gate.id, reason=gate.text)
        return wait

    def plan(self) -> Plan:
        allowed = self._shares()
        starts, waits, _ = self._go_through(allowed)
        free = {run.run_id for run in (*starts, *self._tried)}
        share_limits: list[dict[str, Any]] = []
        shares = {}
        if allowed is not None:
            entitled = self._entitled()
            over = Counter(run.marks.queue for run in self._tried)
            for name, count in allowed.items():
                if self._slots:
                    shares[name] = self._in_use[name] + count
                # Dagster counts runs that it then does not start, again for each page it reads.
                limit = self._tagged[name] + count + min(over[name], _PAGE)
                if not count and not over[name]:
                    # A run that ends before the daemon counts must not leave its slot to a queue
                    # above its share while another queue waits for its own share.
                    mine = entitled[name] - self._in_use[name] + self._tagged[name]
                    limit = max(min(limit, mine), 0)
                share_limits.append({"key": tagging.QUEUE, "value": name, "limit": limit})
        ways = self._ways
        for run in self._queue:
            shut = ways[run.marks].shut
            if shut is not None:
                waits[run.run_id] = shut
        return Plan(
            limits=merged([*self._gates.limits(), *share_limits]),
            starts=[run.run_id for run in starts],
            turns=self._turns(free),
            waits={run.run_id: waits[run.run_id] for run in self._queue if run.run_id in waits},
            shares=shares,
            share_limits=share_limits,
        )

    def _shares(self) -> dict[str, int] | None:
        """Returns how many runs of each queue may start; None: there is enough for all."""
        queues = self._gates.rules.queues
        if not queues or math.isinf(self._slots):
            return None
        wanted = self._wanted(self._limit)
        if sum(wanted.values()) <= self._slots:
            return None
        if not self._slots:
            # The next pass divides slots that become free now.
            return dict.fromkeys(queues, 0)
        # Runs of no queue are outside all shares.
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
        # Repeats while a queue leaves slots; queues with a common group may leave them in turns.
        for _ in range(2 * len(queues)):
            starts, _, short = self._go_through(allowed)
            used = Counter(run.marks.queue for run in starts)
            left = slots - sum(used[name] for name in allowed)
            if left <= 0 or not short:
                break
            # A queue with more slots than it can use now leaves them to queues that can.
            claims = {
                name: replace(claim, wanted=claim.wanted if name in short else used[name])
                for name, claim in claims.items()
            }
            allowed = divide(slots, claims)
        return allowed

    def _entitled(self) -> dict[str, int]:
        """Returns how many of all slots each queue would have if none was in use yet."""
        wanted = self._wanted(self._limit)
        in_no_queue = self._in_progress - sum(self._in_use.values())
        claims = {
            name: Claim(
                share=queue.share,
                level=queue.level,
                in_use=0,
                wanted=self._in_use[name] + wanted.get(name, 0),
            )
            for name, queue in self._gates.rules.queues.items()
        }
        return divide(max(self._limit - in_no_queue, 0), claims)

    def _wanted(self, most: int) -> dict[str | None, int]:
        """Returns how many runs of each queue could start if it were alone, at most ``most``."""
        wanted: Counter[str | None] = Counter()
        taken: Counter[tuple[str | None, Gate]] = Counter()
        for run in self._open:
            queue = run.marks.queue
            if wanted[queue] >= most:
                continue
            gates = self._ways[run.marks].gates
            if any(taken[queue, gate] >= gate.room for gate in gates):
                continue
            for gate in gates:
                taken[queue, gate] += 1
            wanted[queue] += run.run_id not in self._passed_over
        return dict(wanted)

    def _go_through(
        self, allowed: Mapping[str, int] | None
    ) -> tuple[list[QueuedRun], dict[str, Wait], set[str]]:
        """Returns the starts, why the other runs wait, and the queues with too small a share.

        Excludes runs that were held from the start.
        """
        starts: list[QueuedRun] = []
        waits: dict[str, Wait] = {}
        short: set[str] = set()
        left = cast(dict[str | None, int], dict(allowed or {}))
        slots = self._slots
        turns: dict[str | None, Wait] = {}
        self._waits = {}
        self._tried = []
        programs: set[str] = set()
        for way in self._ways.values():
            for gate in way.gates:
                gate.taken = 0
        for run in self._open:
            way = self._ways[run.marks]
            shut = next((gate for gate in way.gates if gate.taken >= gate.room), None)
            if shut is not None:
                waits[run.run_id] = self._wait_at(shut)
                continue
            if run.run_id in self._passed_over:
                waits[run.run_id] = _HELD_BY_DAGSTER
                # One run of each program may use up a rate. Dagster counts runs without a rate
                # against its limits before it finds that they cannot start.
                if not run.marks.turns or run.program not in programs:
                    programs.add(run.program)
                    self._tried.append(run)
                    for gate in way.gates:
                        gate.taken += 1
                continue
            queue = run.marks.queue
            full = left.get(queue, 1) <= 0
            if full or slots <= 0:
                if full and queue is not None and slots > 0:
                    short.add(queue)
                if queue not in turns:
                    turns[queue] = self._turn(queue, allowed)
                waits[run.run_id] = turns[queue]
                continue
            for gate in way.gates:
                gate.taken += 1
            if queue in left:
                left[queue] -= 1
            slots -= 1
            starts.append(run)
        return starts, waits, short

    def _turn(self, queue: str | None, allowed: Mapping[str, int] | None) -> Wait:
        if self._limit == 0:
            return Wait(gate="turn", reason="max_concurrent_runs is 0: no run starts")
        text = f"its turn: {self._in_progress} of {self._limit} slots are in use"
        if self._slots:
            text += ", the others go to runs before it"
            if queue is not None and allowed is not None and queue in allowed:
                may = self._in_use[queue] + allowed[queue]
                text += f" (queue {queue} may use {may})"
        return Wait(gate="turn", reason=text)

    def _turns(self, free: Collection[str]) -> dict[str, dict[str, str]]:
        """Returns the changed tags of rates if these runs may start."""
        turns: dict[str, dict[str, str]] = {}
        for run in self._queue:
            if not run.marks.turns:
                continue
            turn = Turn.GRANTED if run.run_id in free else Turn.WAITING
            changed = {key: turn.value for key, value in run.marks.turns if value != turn.value}
            if changed:
                turns[run.run_id] = changed
        return turns


_PRIORITY = attrgetter("priority")
_HELD_BY_DAGSTER = Wait(
    gate=HELD_BY_DAGSTER,
    reason="no rule holds it, but Dagster does not start it: a pool is full, or its code location "
    "does not answer (the daemon's log names it)",
)
