"""Explains why a queued run waits: every gate, its share, the slots, its age.

The explanation goes through the queue as a pass of Dagster's daemon would now. A run sees each gate
after the runs that are ahead of it and pass it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.aging import overtaken_until, priority
from arctic_orchestration.run_queue.census import QueuedRun
from arctic_orchestration.run_queue.gates import Gate, Gates
from arctic_orchestration.run_queue.plan import HELD_BY_DAGSTER, Plan, Wait, plan
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import parse_level

#: Dagster's value of ``max_concurrent_runs`` for no limit.
_NO_LIMIT = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GateView:
    """A gate as it applies to one run."""

    id: str
    is_open: bool
    text: str

    @property
    def kind(self) -> str:
        """``paused``, ``window``, ``interval``, ``rate``, ``group``, ``program`` or ``tag``."""
        return self.id.partition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareView:
    """The slots that the run's queue leaves it."""

    queue: str
    share: float
    in_progress: int
    #: runs of the queue that are ahead of it and can start
    ahead: int
    #: slots that the queue may use; None: they are not divided now
    may_use: int | None
    #: whether there is a slot to divide
    slots_left: bool

    @property
    def is_open(self) -> bool:
        """Whether the queue has a slot for the run."""
        return self.may_use is None or self.in_progress + self.ahead < self.may_use

    @property
    def text(self) -> str:
        """For people."""
        text = f"share {self.share:g} of queue {self.queue}: "
        if self.may_use is None:
            has = f"it has {self.in_progress} in use, and the next free one is divided by shares"
            return text + ("there are slots for all queues" if self.slots_left else has)
        text += f"{self.in_progress} of the {self.may_use} slots that it may use are in use"
        return text + _taken_before(self.ahead)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotsView:
    """The slots that ``max_concurrent_runs`` leaves a run."""

    in_use: int
    #: runs that are ahead of it and can start
    ahead: int
    #: None: there is no limit
    limit: int | None

    @property
    def is_open(self) -> bool:
        """Whether there is a slot for the run."""
        return self.limit is None or self.in_use + self.ahead < self.limit

    @property
    def text(self) -> str:
        """For people."""
        if self.limit is None:
            return f"slots: {self.in_use} are in use, and there is no limit"
        return f"slots: {self.in_use} of {self.limit} are in use{_taken_before(self.ahead)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Age:
    """The number by which a run is sorted, and how long others can still overtake it."""

    #: the number itself; higher is earlier
    number: int
    #: None: it has no level that ages
    level: int | None
    seconds_per_level: int
    #: the highest level in use
    highest_level: int
    #: None: nothing ages, or it was not queued under these rules
    overtaken_until: datetime | None

    def text(self, now: datetime) -> str:
        """For people, as one sentence."""
        until = self.overtaken_until
        if self.level is None or until is None:
            return "the highest number goes first, of equal ones the oldest run; it does not age"
        gains = f"{format_duration(timedelta(seconds=self.seconds_per_level))} of waiting count as "
        gains += "one level; "
        if self.level >= self.highest_level:
            return f"{gains}no higher level is in use, so nothing that is queued later is before it"
        at, highest = format_moment(until), f"level {self.highest_level}, the highest in use"
        if until <= now:
            return f"{gains}nothing queued since {at} is before it, not even of {highest}"
        return f"{gains}a run of {highest}, is before it if it is queued until {at}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunExplanation:
    """The reasons why one run waits, and its place in the queue."""

    run: QueuedRun
    #: None: it can start with the next pass
    wait: Wait | None
    #: from 1
    place: int
    #: how many runs wait
    waiting: int
    #: open and closed ones, in the order of evaluation
    gates: tuple[GateView, ...]
    #: evaluated after the gates; None: it is in no queue
    share: ShareView | None
    #: evaluated last
    slots: SlotsView
    age: Age


class Outlook:
    """The queue as the next pass of Dagster's daemon would see it now."""

    def __init__(
        self, gates: Gates, *, max_concurrent_runs: int, passed_over: Collection[str] = ()
    ) -> None:
        """Goes through the queue once; arguments as in :func:`~run_queue.plan.plan`."""
        self.gates = gates
        self.limit = None if max_concurrent_runs == _NO_LIMIT else max_concurrent_runs
        queued = gates.census.queued
        #: in the order in which they can start
        self.order = sorted(queued, key=lambda run: run.priority, reverse=True)
        queued_ids = {run.run_id for run in queued}
        self.plan: Plan = plan(
            gates,
            max_concurrent_runs=max_concurrent_runs,
            passed_over=queued_ids.intersection(passed_over),
        )

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place in the queue of each run, from 1."""
        return {run.run_id: place for place, run in enumerate(self.order, start=1)}

    def explain(self, run_id: str) -> RunExplanation:
        """Explains why a run waits.

        Errors:
            KeyError: the run is not queued.
        """
        place = self.places[run_id]
        run = self.order[place - 1]
        starts, waits = set(self.plan.starts), self.plan.waits
        before = self.order[: place - 1]
        ahead = [other for other in before if other.run_id in starts]
        # A run that Dagster holds for its own reasons takes no slot, but counts against its limits.
        held = {id for id, wait in waits.items() if wait.gate == HELD_BY_DAGSTER}
        passing = [other for other in before if other.run_id in starts | held]
        return RunExplanation(
            run=run,
            wait=waits.get(run_id),
            place=place,
            waiting=len(self.order),
            gates=self._seen(run, passing),
            share=self._share(run, ahead),
            slots=SlotsView(
                in_use=len(self.gates.census.active), ahead=len(ahead), limit=self.limit
            ),
            age=self._age(run),
        )

    def _seen(self, run: QueuedRun, passing: Collection[QueuedRun]) -> tuple[GateView, ...]:
        known = self.gates
        # All runs that can start have passed the gates of the plan, not only those ahead.
        gates = Gates(
            rules=known.rules,
            census=known.census,
            paused=known.paused,
            windows=known.windows,
            now=known.now,
            stock=known.stock,
        )
        for before in passing:
            for gate in gates.of(before.marks.pairs):
                gate.taken += 1
        return tuple(
            GateView(id=gate.id, is_open=gate.is_open, text=_text_of(gate))
            for gate in gates.of(run.marks.pairs)
        )

    def _share(self, run: QueuedRun, ahead: Collection[QueuedRun]) -> ShareView | None:
        name = run.tags.get(tagging.QUEUE)
        queue = self.gates.rules.queues.get(name or "")
        if name is None or queue is None:
            return None
        return ShareView(
            queue=name,
            share=queue.share,
            in_progress=sum(active.standing.queue == name for active in self.gates.census.active),
            ahead=sum(before.tags.get(tagging.QUEUE) == name for before in ahead),
            may_use=self.plan.shares.get(name),
            slots_left=self.limit is None or len(self.gates.census.active) < self.limit,
        )

    def _age(self, run: QueuedRun) -> Age:
        rules, census = self.gates.rules, self.gates.census
        present = [other.tags for other in census.queued] + [other.tags for other in census.active]
        levels = [level_of(tags, rules) for tags in present]
        highest = max(
            (
                *(level for level in levels if level is not None),
                *(queue.level for queue in rules.queues.values()),
            ),
            default=0,
        )
        level, queued_at = level_of(run.tags, rules), tagging.queued_at_of(run.tags)
        until = None
        if level is not None and queued_at is not None:
            until = overtaken_until(level, queued_at, highest, rules.seconds_per_level)
        return Age(
            number=run.priority,
            level=level,
            seconds_per_level=rules.seconds_per_level,
            highest_level=highest,
            overtaken_until=until,
        )


def level_of(tags: Mapping[str, str], rules: Rules) -> int | None:
    """Returns the level that a run was queued with; None: its number is no level that ages."""
    level, queued_at = parse_level(tags.get(tagging.LEVEL, "")), tagging.queued_at_of(tags)
    if not rules.ages or level is None or queued_at is None:
        return None
    number = str(priority(level, queued_at, rules.seconds_per_level))
    # The priority was set manually, or with another number of seconds per level.
    return level if tags.get(tagging.PRIORITY) == number else None


def _text_of(gate: Gate) -> str:
    text = gate.text
    # A text that changes with the runs ahead counts them as if they were active.
    return text + _taken_before(gate.taken) if text != gate.text_with(0) else text


def _taken_before(count: int) -> str:
    return f", counting {count} that can start before it" if count else ""
