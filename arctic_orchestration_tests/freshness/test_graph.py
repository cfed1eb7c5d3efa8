"""The graph of tasks, against hand-made cases and a second way of counting."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition, NotFound
from arctic_orchestration.freshness.criteria import Parent, TaskSpec
from arctic_orchestration.freshness.graph import Edge, Need, TaskGraph, cycle_problem

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def task(name: str, hours: float | None = 24, /, **parents: float | None) -> TaskSpec:
    """A task with its own hours, and its parents with theirs."""
    needed = tuple(Parent(name=parent, hours=age) for parent, age in parents.items())
    return TaskSpec(name=name, target=name, freshness_hours=hours, parents=needed)


def ages(**hours: float) -> dict[str, datetime | None]:
    """Last successes, so many hours before noon."""
    return {name: NOON - hour * HOUR for name, hour in hours.items()}


#: a above b and c, both above d
DIAMOND = (task("d", b=24, c=24), task("b", a=24), task("c", a=12), task("a"))


def test_parents_come_before_children() -> None:
    """Else as they were given: b was named before c."""
    assert TaskGraph(DIAMOND).order() == ("a", "b", "c", "d")


def test_who_needs_whom() -> None:
    """Each edge is shown at both ends."""
    graph = TaskGraph(DIAMOND)
    day = Need(hours=24, zone="UTC")
    assert graph.parents("d") == (
        Edge(child="d", parent="b", need=day),
        Edge(child="d", parent="c", need=day),
    )
    assert [edge.child for edge in graph.children("a")] == ["b", "c"]
    assert graph.parents("a") == graph.children("d") == ()
    assert set(graph.ancestors(["b", "c"])) == {"a"}
    assert set(graph.ancestors(["d"])) == {"a", "b", "c"}
    assert "a" in graph
    assert len(graph) == 4
    assert list(graph) == ["d", "b", "c", "a"]


def test_the_strictest_need_is_that_of_the_children_and_its_own() -> None:
    """c needs a at most 12 hours old; nobody needs d but for itself; "of today" is a day."""
    graph = TaskGraph((*DIAMOND, task("e", None, plain=3)))
    assert graph.strictest_need("a") == 12 * HOUR
    assert graph.strictest_need("d") == 24 * HOUR
    assert graph.strictest_need("e") == 24 * HOUR
    assert graph.strictest_need("plain") == 3 * HOUR
    with pytest.raises(NotFound, match="'nobody'"):
        graph.strictest_need("nobody")


def test_its_own_need_may_be_the_strictest() -> None:
    """a must be half an hour old at most, whatever its children say."""
    assert TaskGraph((task("a", 0.5), task("b", a=24))).strictest_need("a") == HOUR / 2


def test_a_cycle_is_reported_as_a_way_around() -> None:
    """From the member that was given first; what only leads there is left out."""
    graph = TaskGraph((task("lead", c=1), task("a", b=1), task("b", c=1), task("c", a=1)))
    assert graph.cycle() == ("a", "b", "c", "a")
    with pytest.raises(InvalidDefinition) as refused:
        graph.order()
    assert refused.value.value == "a needs b needs c needs a"


def test_a_task_that_needs_itself_is_a_cycle() -> None:
    """The shortest there is."""
    assert TaskGraph((task("a", a=1),)).cycle() == ("a", "a")


def test_of_a_long_cycle_the_beginning_is_shown() -> None:
    """Nobody reads ten thousand names: 18, how many more, and the first one again."""
    size = 10_000
    ring = TaskGraph(task(f"t{i}", **{f"t{(i + 1) % size}": 1}) for i in range(size))
    cycle = ring.cycle()
    assert cycle is not None
    assert len(cycle) == size + 1
    shown = str(cycle_problem("tasks[0].dependencies", cycle).value)
    # 10,001 names: t0 to t17, then 9,982 more, then t0
    assert shown.endswith("t17 needs (9982 more) needs t0")


def test_a_chain_of_ten_thousand_is_no_deeper_than_one_of_two() -> None:
    """Nothing here calls itself."""
    size = 10_000
    chain = TaskGraph(
        task(f"t{i}", **({f"t{i + 1}": 1} if i + 1 < size else {})) for i in range(size)
    )
    assert chain.cycle() is None
    assert chain.order()[0] == f"t{size - 1}"
    assert len(chain.ancestors(["t0"])) == size - 1
    assert chain.resolve({}, NOON, wanted=["t0"]).runs == chain.order()


def test_a_fresh_task_does_not_run_whatever_its_parents_are() -> None:
    """Nobody asked for them."""
    resolved = TaskGraph(DIAMOND).resolve(ages(d=1), NOON, wanted=["d"])
    assert resolved.runs == ()
    assert resolved.stale == {}


def test_only_parents_that_are_too_old_for_it_run_first() -> None:
    """b is fresh for d; c is not, and a is 13 hours old, which is too old for c alone."""
    graph = TaskGraph(DIAMOND)
    resolved = graph.resolve(ages(a=13, b=20, c=30), NOON, wanted=["d"])
    assert resolved.runs == ("a", "c", "d")
    assert {name: [edge.parent for edge in edges] for name, edges in resolved.stale.items()} == {
        "d": ["c"],
        "c": ["a"],
    }


def test_a_parent_that_two_need_runs_once() -> None:
    """The diamond, when nothing was ever made."""
    assert TaskGraph(DIAMOND).resolve({}, NOON).runs == ("a", "b", "c", "d")


def test_exactly_as_old_as_the_edge_allows_is_fresh() -> None:
    """12 hours for c; a moment more is too old."""
    graph = TaskGraph(DIAMOND)
    assert graph.resolve(ages(a=12), NOON, wanted=["c"]).runs == ("c",)
    older = {"a": NOON - 12 * HOUR - timedelta(microseconds=1)}
    assert graph.resolve(older, NOON, wanted=["c"]).runs == ("a", "c")


def test_the_strictest_of_those_who_wait_counts() -> None:
    """Six hours are fresh for one child of a, and too old for another; so a runs."""
    graph = TaskGraph((task("a"), task("easy", a=24), task("strict", a=1)))
    resolved = graph.resolve(ages(a=6), NOON, wanted=["easy", "strict"])
    assert resolved.runs == ("a", "strict", "easy") or resolved.runs == ("a", "easy", "strict")
    assert list(resolved.stale) == ["strict"]
    assert graph.resolve(ages(a=6), NOON, wanted=["easy"]).runs == ("easy",)


def test_who_waits_for_a_skipped_or_unknown_parent_is_stuck() -> None:
    """Unless it is fresh by its last success."""
    graph = TaskGraph((task("a"), task("b", a=24, plain=24), task("c", b=24)))
    stuck = graph.resolve({}, NOON, wanted=["c"], skipped=["a"])
    assert stuck.runs == ("b", "c")
    assert [edge.parent for edge in stuck.stuck["b"]] == ["a", "plain"]
    assert list(stuck.stuck) == ["b"]
    assert graph.resolve(ages(a=2, plain=3), NOON, wanted=["c"], skipped=["a"]).stuck == {}
    assert graph.resolve({}, NOON, wanted=["a"], skipped=["a"]).skipped == ("a",)


def test_what_is_made_anyway_runs_however_fresh_it_is() -> None:
    """And first; one that is needed by nobody who runs does not."""
    graph = TaskGraph((*DIAMOND, task("e")))
    fresh = ages(a=1, b=1, c=1, d=1, e=1)
    assert graph.resolve(fresh, NOON, wanted=["d"]).runs == ()
    assert graph.resolve(fresh, NOON, wanted=["d"], anyway=["a", "e"]).runs == ()
    resolved = graph.resolve(fresh, NOON, wanted=["d"], anyway=["c", "d"])
    assert resolved.runs == ("c", "d")
    assert [edge.parent for edge in resolved.stale["d"]] == ["c"]


def test_a_task_that_two_locations_declare_has_the_needs_of_both() -> None:
    """The same words twice are one; others are added."""
    graph = TaskGraph((task("a", 24, p=24), task("a", 24, p=24), task("a", 12, p=2, q=1)))
    assert len(graph) == 1
    assert [need.hours for need in graph.needs("a")] == [24, 12]
    assert [(edge.parent, edge.need.hours) for edge in graph.parents("a")] == [
        ("p", 24),
        ("p", 2),
        ("q", 1),
    ]
    assert graph.resolve(ages(a=13, p=1, q=0), NOON).runs == ("a",)


def test_only_tasks_can_be_wanted() -> None:
    """A plain asset has nobody who would run it."""
    with pytest.raises(NotFound, match="'plain'"):
        TaskGraph((task("a", plain=1),)).resolve({}, NOON, wanted=["plain"])


# What follows is counted a second time, by graphlib and by trying until nothing changes.

_NAMES = [f"t{number}" for number in range(7)]
_HOURS = st.sampled_from([None, 1.0, 2.0, 4.0, 24.0])


@st.composite
def graphs(draw: st.DrawFn, *, acyclic: bool) -> list[TaskSpec]:
    """Up to seven tasks with any edges, or with edges that lead to earlier ones only."""
    count = draw(st.integers(1, len(_NAMES)))
    specs = []
    for number in range(count):
        possible = _NAMES[:number] if acyclic else _NAMES[:count]
        parents = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
        if draw(st.booleans()):
            parents.append("plain")
        needs = tuple(Parent(name=name, hours=draw(_HOURS)) for name in parents)
        specs.append(
            TaskSpec(
                name=_NAMES[number],
                target=_NAMES[number],
                freshness_hours=draw(_HOURS),
                parents=needs,
            )
        )
    return draw(st.permutations(specs))


def _arrows(specs: list[TaskSpec]) -> Mapping[str, list[str]]:
    names = {spec.name for spec in specs}
    return {s.name: [p.name for p in s.parents if p.name in names] for s in specs}


@given(specs=graphs(acyclic=False))
def test_cycles_are_found_where_graphlib_finds_them(specs: list[TaskSpec]) -> None:
    """And the way around is one: each name needs the next, no name comes twice."""
    try:
        list(TopologicalSorter(_arrows(specs)).static_order())
        there_is = False
    except CycleError:
        there_is = True
    cycle = TaskGraph(specs).cycle()
    assert (cycle is not None) == there_is
    if cycle is not None:
        arrows = _arrows(specs)
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(cycle[i + 1] in arrows[cycle[i]] for i in range(len(cycle) - 1))


@given(specs=graphs(acyclic=True))
def test_the_order_has_all_tasks_and_parents_first(specs: list[TaskSpec]) -> None:
    """Each name once, behind all it needs."""
    order = TaskGraph(specs).order()
    assert sorted(order) == sorted(spec.name for spec in specs)
    place = {name: number for number, name in enumerate(order)}
    for child, parents in _arrows(specs).items():
        assert all(place[parent] < place[child] for parent in parents)


_AGES = st.dictionaries(
    st.sampled_from([*_NAMES, "plain"]), st.sampled_from([0, 0.5, 1, 2, 3, 4, 13, 24, 25])
)


@given(
    specs=graphs(acyclic=True),
    old=_AGES,
    data=st.data(),
    skipped=st.sets(st.sampled_from(_NAMES), max_size=2),
    anyway=st.sets(st.sampled_from(_NAMES), max_size=2),
)
def test_what_must_run_is_what_trying_finds(
    specs: list[TaskSpec],
    old: dict[str, float],
    data: st.DataObject,
    skipped: set[str],
    anyway: set[str],
) -> None:
    """A second way: begin with the wanted that are stale, add stale parents until none is new."""
    by_name = {spec.name: spec for spec in specs}
    wanted = data.draw(st.sets(st.sampled_from(sorted(by_name))))
    made = {name: NOON - hours * HOUR for name, hours in old.items()}

    def is_stale(name: str, hours: float | None) -> bool:
        if name in anyway or name not in old:
            return True
        # at noon, what is of today is at most 12 hours old
        return old[name] > (12 if hours is None else hours)

    run = {
        name
        for name in wanted
        if name not in skipped and is_stale(name, by_name[name].freshness_hours)
    }
    while True:
        more = {
            parent.name
            for name in run
            for parent in by_name[name].parents
            if parent.name in by_name
            and parent.name not in skipped
            and is_stale(parent.name, parent.hours)
        }
        if more <= run:
            break
        run |= more

    resolved = TaskGraph(specs).resolve(made, NOON, wanted=wanted, skipped=skipped, anyway=anyway)
    assert set(resolved.runs) == run
    assert len(resolved.runs) == len(run)
    place = {name: number for number, name in enumerate(resolved.runs)}
    for name in run:
        stale = {p.name for p in by_name[name].parents if is_stale(p.name, p.hours)}
        assert {edge.parent for edge in resolved.stale.get(name, ())} == stale
        lost = {parent for parent in stale if parent in skipped or parent not in by_name}
        assert {edge.parent for edge in resolved.stuck.get(name, ())} == lost
        assert all(place[parent] < place[name] for parent in stale if parent in run)
