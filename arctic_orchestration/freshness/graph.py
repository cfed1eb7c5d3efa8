"""The graph of tasks and their parents: cycles, order, required freshness, and what must run.

All algorithms are loops over lists: a chain of ten thousand tasks works as well as a flat graph.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, NotFound
from arctic_orchestration.freshness.criteria import (
    TaskSpec,
    is_fresh,
    need_in_words,
    required_since,
    strictness,
)

#: The maximum number of names of a cycle in a message.
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A required freshness: a maximum age in hours, or a success of today in the zone."""

    hours: float | None
    zone: str

    def since(self, now: datetime) -> datetime:
        """Returns the earliest moment at which a success is fresh enough."""
        return required_since(self.hours, self.zone, now)

    def __str__(self) -> str:
        return need_in_words(self.hours, self.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A child that requires freshness of a parent."""

    child: str
    parent: str
    need: Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What has to run so that the requested tasks are fresh."""

    #: tasks to run, parents before children
    runs: tuple[str, ...] = ()
    #: the edges for which a task of ``runs`` waits; a task without an entry can run at once
    stale: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    #: the edges among them whose parent is skipped, or is no task here: nothing renews it here
    stuck: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    #: tasks that would run but are skipped
    skipped: tuple[str, ...] = ()


class TaskGraph:
    """The graph of tasks by their names, including parents that are no tasks, such as plain assets.

    A task that several locations declare is one task, with the requirements of all of them.
    """

    def __init__(self, specs: Iterable[TaskSpec]) -> None:
        needs: dict[tuple[float | None, str], Need] = {}
        own: dict[str, tuple[Need, ...]] = {}
        up: dict[str, tuple[Edge, ...]] = {}

        def need_of(hours: float | None, zone: str) -> Need:
            # Equal needs share one object: there are few of them and many edges.
            found = needs.get((hours, zone))
            return found or needs.setdefault((hours, zone), Need(hours=hours, zone=zone))

        for spec in specs:
            name, zone = spec.name, spec.timezone
            need = need_of(spec.freshness_hours, zone)
            edges = tuple(
                Edge(child=name, parent=parent.name, need=need_of(parent.hours, zone))
                for parent in spec.parents
            )
            if name not in own:
                own[name], up[name] = (need,), edges
                continue
            known = up[name]
            up[name] = (*known, *(edge for edge in edges if edge not in known))
            if need not in own[name]:
                own[name] = (*own[name], need)
        self._own = own
        self._up = up
        down: dict[str, list[Edge]] = {}
        for found in self._up.values():
            for edge in found:
                down.setdefault(edge.parent, []).append(edge)
        self._down = {name: tuple(found) for name, found in down.items()}
        self._order: tuple[str, ...] | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def __iter__(self) -> Iterator[str]:
        """Iterates over the tasks in the given order."""
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def parents(self, name: str) -> tuple[Edge, ...]:
        """Returns the requirements of a task; none for a parent that is no task."""
        return self._up.get(name, ())

    def children(self, name: str) -> tuple[Edge, ...]:
        """Returns the children of a task, or of a parent that is no task."""
        return self._down.get(name, ())

    def needs(self, name: str) -> tuple[Need, ...]:
        """Returns the required freshness of a task itself: one value unless locations differ."""
        return self._own.get(name, ())

    def strictest_need(self, name: str) -> timedelta:
        """Returns the strictest maximum age of a task, or of a parent that is no task.

        The minimum of its children's requirements and its own; a day stands for "made today".

        Errors:
            NotFound: the graph does not contain the name.
        """
        if name not in self._own and name not in self._down:
            raise NotFound(f"no task has the name {name!r}")
        needs = [*self.needs(name), *(edge.need for edge in self.children(name))]
        return min(strictness(need.hours) for need in needs)

    def ancestors(self, names: Iterable[str]) -> tuple[str, ...]:
        """Returns all ancestors of the given tasks, unordered.

        A given task is included only as an ancestor of a given task.
        """
        found: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            for edge in self.parents(waiting.pop()):
                if edge.parent in self._own and edge.parent not in found:
                    found[edge.parent] = None
                    waiting.append(edge.parent)
        return tuple(found)

    def cycle(self) -> tuple[str, ...] | None:
        """Returns the names along a cycle, each needing the next, the first also last, if any."""
        left = self._left_over()
        if not left:
            return None
        # Every remaining task has a remaining parent: following parents returns to a visited task.
        place: dict[str, int] = {}
        path: list[str] = []
        name = next(task for task in self._own if task in left)
        while name not in place:
            place[name] = len(path)
            path.append(name)
            name = next(edge.parent for edge in self._up[name] if edge.parent in left)
        around = path[place[name] :]
        # The first task given comes first, so that a cycle is always reported the same way.
        members = set(around)
        first = around.index(next(task for task in self._own if task in members))
        return (*around[first:], *around[:first], around[first])

    def order(self) -> tuple[str, ...]:
        """Returns all tasks, parents before children, otherwise in the given order.

        Errors:
            InvalidDefinition: the graph contains a cycle; names it.
        """
        cycle = self.cycle()
        if cycle is not None:
            raise InvalidDefinition([cycle_problem("tasks", cycle)])
        assert self._order is not None
        return self._order

    def resolve(
        self,
        successes: Mapping[str, datetime | None],
        now: datetime,
        *,
        wanted: Iterable[str] | None = None,
        skipped: Collection[str] = (),
        anyway: Collection[str] = (),
    ) -> Resolution:
        """Returns what has to run so that the requested tasks are fresh.

        A task that is fresh enough does not run, whatever its parents are. A stale task waits for
        the parents that are too old for it; a parent runs if it is too old for a waiting child.
        Each task runs once, however many children need it.

        Args:
            successes: the moment of the last success by name; also of parents that are no tasks.
            wanted: the requested tasks; none: all of them.
            skipped: tasks that do not run; their waiting children are stuck.
            anyway: tasks that run however fresh they are; running children wait for them.

        Errors:
            NotFound: a requested name is no task.
            InvalidDefinition: the graph contains a cycle; names it.
        """
        known: dict[int, datetime] = {}

        def since(need: Need) -> datetime:
            # Equal needs are one object here; looking up its address is faster than its hash.
            return known.get(id(need)) or known.setdefault(id(need), need.since(now))

        required: dict[str, datetime] = {}
        for name in self._own if wanted is None else wanted:
            if name not in self._own:
                raise NotFound(f"no task has the name {name!r}")
            required[name] = max(since(need) for need in self._own[name])
        runs: list[str] = []
        left_out: list[str] = []
        stale: dict[str, tuple[Edge, ...]] = {}
        stuck: dict[str, tuple[Edge, ...]] = {}
        out, always = frozenset(skipped), frozenset(anyway)
        # Children first: when a task is reached, all of its possible requesters were processed.
        for name in reversed(self.order()):
            if name not in required:
                continue
            if name not in always and is_fresh(successes.get(name), required[name]):
                continue
            if name in out:
                left_out.append(name)
                continue
            runs.append(name)
            old = tuple(
                edge
                for edge in self._up[name]
                if edge.parent in always
                or not is_fresh(successes.get(edge.parent), since(edge.need))
            )
            if not old:
                continue
            stale[name] = old
            lost = tuple(e for e in old if e.parent in out or e.parent not in self._own)
            if lost:
                stuck[name] = lost
            for edge in old:
                if edge.parent in self._own:
                    needed = since(edge.need)
                    required[edge.parent] = max(needed, required.get(edge.parent, needed))
        runs.reverse()
        left_out.reverse()
        return Resolution(runs=tuple(runs), stale=stale, stuck=stuck, skipped=tuple(left_out))

    def _left_over(self) -> frozenset[str]:
        """Returns the tasks without an order, because of a cycle; records the order of all others.

        Source: Kahn, Topological sorting of large networks, CACM 5 (1962).
        """
        if self._order is not None and len(self._order) == len(self._own):
            return frozenset()
        waits_for = {
            name: sum(edge.parent in self._own for edge in found)
            for name, found in self._up.items()
        }
        ready = deque(name for name, count in waits_for.items() if not count)
        done: list[str] = []
        while ready:
            name = ready.popleft()
            done.append(name)
            for edge in self.children(name):
                waits_for[edge.child] -= 1
                if not waits_for[edge.child]:
                    ready.append(edge.child)
        self._order = tuple(done)
        return frozenset(self._own).difference(done)


def cycle_problem(where: str, cycle: tuple[str, ...]) -> InvalidInput:
    """Returns the message about a cycle at ``where``; a long cycle is shown in part."""
    shown = list(cycle)
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN - 2], f"({len(shown) - _SHOWN + 1} more)", shown[-1]]
    return InvalidInput(where, " needs ".join(shown), "tasks that do not need themselves")
