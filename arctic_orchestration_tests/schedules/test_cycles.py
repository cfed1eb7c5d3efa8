"""Schedules that set themselves, or each other, off: refused where nothing spaces them out."""

from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration import Arctic
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import cycles as cycle_search
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.cycles import cycles, problems
from arctic_orchestration.schedules.definition_warnings import cautions
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on

ASSETS = {"assets": ["raw/a", "b"]}
OTHER = on.partitions("other")


def made(
    trigger: Any, *constraints: Any, target: Any = "rollup", name: str = "s", **fields: Any
) -> Schedule:
    return Schedule(name=name, target=target, trigger=trigger, constraints=constraints, **fields)


def warnings_of(schedule: Schedule) -> list[str]:
    return [*cautions([schedule]), *map(str, cycles([schedule]))]


ENDLESS = [
    ("rollup", on.run(job="rollup")),
    ("rollup", on.run(job="rollup", status="started")),
    ("rollup", on.run(job="rollup", status=["failure", "success"])),
    ("rollup", OTHER | on.run(job="rollup")),
    ("rollup", on.all_of(OTHER, on.run(job="rollup"), wait="1h")),
    (ASSETS, on.run(assets=["b", "c"])),
    (ASSETS, on.partitions("raw/a")),
    (ASSETS, on.partitions("raw/a") & on.partitions("b")),
    (ASSETS, on.data("b", "1GB")),
    (ASSETS, on.quiet("b", "5m")),
    (ASSETS, on.check("b", "no_nulls")),
]


@pytest.mark.parametrize(("target", "trigger"), ENDLESS, ids=str)
def test_a_schedule_that_sets_itself_off_is_refused(target: Any, trigger: Any) -> None:
    """Each run that succeeds is the next one's event; how many at once makes no difference."""
    for constraints in ([], [only.concurrency(1)], [only.delay("0s")]):
        with pytest.raises(InvalidDefinition, match="again and again") as refused:
            made(trigger, *constraints, target=target)
        assert refused.value.field == "Schedule(s).trigger"


@pytest.mark.parametrize(("target", "trigger"), ENDLESS, ids=str)
@pytest.mark.parametrize(
    "constraint",
    [
        only.minimum_interval("5m"),
        only.delay("10m"),
        only.rate(1, per="1h"),
        only.window("22:00", "06:00"),
    ],
    ids=lambda constraint: constraint.kind,
)
def test_one_whose_runs_are_spaced_out_is_warned_of(
    target: Any, trigger: Any, constraint: Any
) -> None:
    """Work through the night without a pause is something that people want."""
    (warning,) = warnings_of(made(trigger, constraint, target=target, timeout="1d"))
    assert warning.startswith("Schedule(s).trigger: the schedule's own runs set it off")


@pytest.mark.parametrize(
    ("target", "trigger"),
    [
        ("rollup", on.run(job="other")),
        ("rollup", on.run(job="rollup", count=2)),
        ("rollup", on.run(job="rollup", location="elsewhere")),
        ("rollup", OTHER & on.run(job="rollup")),
        ("rollup", on.elapsed("1h", since=on.run(job="rollup"))),
        (ASSETS, on.partitions("raw/b")),
        (ASSETS, on.partitions("raw/a", count=3)),
        (ASSETS, on.partitions("raw/a", where="2026-*")),
        # It ends with a version that is the same.
        (ASSETS, on.partitions("raw/a", changed=True)),
        (ASSETS, OTHER & on.partitions("raw/a")),
    ],
    ids=str,
)
def test_what_needs_other_events_too_is_no_cycle(target: Any, trigger: Any) -> None:
    """It comes to rest when they do."""
    assert warnings_of(made(trigger, target=target, timeout="1d")) == []


@pytest.mark.parametrize(
    "trigger",
    [
        on.partitions("raw/a", mapping={"time_window": {"start_offset": -1, "end_offset": -1}}),
        on.partitions("raw/a", late="ignore"),
    ],
    ids=str,
)
def test_what_moves_on_to_another_partition_is_no_cycle(trigger: Any) -> None:
    """A day that needs the day before comes to an end today; one that ran stays as it is."""
    assert warnings_of(made(trigger, target=ASSETS, partitions="each")) == []


def test_a_retry_without_a_limit_is_warned_of() -> None:
    """A run that fails for good is started again for ever."""
    (warning,) = warnings_of(made(on.run(job="rollup", status="failure")))
    assert "without a limit on attempts" in warning


def test_a_selection_of_assets_is_looked_up_first() -> None:
    """What it stands for is known when Dagster puts the definitions together."""

    @dg.asset
    def own() -> None: ...

    schedule = Schedule(
        name="s", target=dg.AssetSelection.assets("own"), trigger=on.partitions("own")
    )
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=[own]), Arctic(schedules=[schedule]).definitions()
    )
    with pytest.raises(dg.DagsterError) as refused:
        definitions.get_repository_def().get_all_jobs()
    assert "again and again" in str(refused.value.__cause__)


def assets(*names: str) -> dict[str, Any]:
    return {"assets": list(names)}


PAIRS = [
    (("a", on.run("b")), ("b", on.run("a"))),
    (("a", on.run("b", status="started")), ("b", on.run("a") | OTHER)),
    ((assets("x"), on.partitions("y")), (assets("y"), on.partitions("x"))),
    ((assets("x"), on.quiet("y", "5m")), (assets("y"), on.data("x", "1GB", max_wait="1h"))),
    ((assets("x"), on.run(assets=["y", "z"])), (assets("y"), on.partitions("x"))),
    (("a", on.partitions("y")), (assets("y"), on.run("a"))),
    ((assets("x"), on.check("y")), (assets("y"), on.partitions("x"))),
    (("a", on.run("b", location="here")), ("b", on.run("a"))),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_two_schedules_that_set_each_other_off_are_an_endless_cycle(pair: Any) -> None:
    """By runs, of jobs or assets, and by what the target of the other one makes."""
    first, second = (
        made(trigger, only.concurrency(1), target=target, name=name)
        for name, (target, trigger) in zip("fs", pair, strict=True)
    )
    (problem,) = problems([first, second], "here")
    assert problem.field == "Schedule(f).trigger"
    assert problem.value == first.trigger.to_form()
    assert problem.expected == (
        "a trigger that does not close the cycle f → s → f, or a constraint that spaces the runs "
        "out (minimum_interval, rate, delay, window): they run again and again without an end"
    )


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_one_constraint_spaces_out_a_whole_cycle(pair: Any) -> None:
    """The slowest of them sets the pace."""
    (target, trigger), (other, answer) = pair
    first = made(trigger, target=target, name="f")
    second = made(answer, only.minimum_interval("5m"), target=other, name="s", timeout="1d")
    assert list(problems([first, second], "here")) == []
    (cycle,) = cycles([first, second], "here")
    assert str(cycle) == (
        "Schedule(f).trigger: runs of these schedules set each other off, f → s → f. It never "
        "stops; only its constraints keep time between two runs"
    )


def test_a_job_sets_off_what_waits_for_its_assets() -> None:
    """Which ones it makes is known of a code location, and not of its name."""
    own = made(on.partitions("raw/x"))
    assert list(problems([own])) == []
    (problem,) = problems([own], job_assets={"rollup": ["raw/w", "raw/x"], "other": ["raw/x"]})
    assert "its own runs do not satisfy" in problem.expected
    made_by_both = {"rollup": ["raw/y"], "other": ["raw/x"]}
    other = made(on.quiet("raw/y", "5m"), target="other", name="t")
    assert [cycle.names for cycle in cycles([own, other], "", made_by_both)] == [("s", "t")]


@pytest.mark.parametrize(
    "schedules",
    [
        # One after the other.
        [("a", on.run("z")), ("b", on.run("a")), ("c", on.run("b"))],
        # Runs of that name in another location.
        [("a", on.run("b", location="elsewhere")), ("b", on.run("a"))],
        # Each cycle of runs brings one of two.
        [("a", on.run("b", count=2)), ("b", on.run("a"))],
        [("a", on.run("b") & on.run("z")), ("b", on.run("a"))],
    ],
)
def test_a_chain_that_comes_to_its_end_is_no_cycle(schedules: list[Any]) -> None:
    """It needs events that none of its own runs writes."""
    defined = [made(trigger, target=job, name=job) for job, trigger in schedules]
    assert cycles(defined, "here") == []


def test_a_long_chain_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 schedules, one pass for each link took two minutes of a locked location."""
    judged: list[Any] = []
    judge = cycle_search._sustaining

    def note(trigger: Any, *args: Any) -> Any:
        judged.append(trigger)
        return judge(trigger, *args)

    chain = [
        made(on.partitions(f"a{link}"), target=assets(f"a{link + 1}"), name=f"s{link:02}")
        for link in range(30)
    ]
    monkeypatch.setattr(cycle_search, "_sustaining", note)
    assert cycles(chain) == []
    # Each schedule once, and each but the first once more when the one before it is ruled out:
    # among those that nothing spaces out, and among all.
    assert len(judged) == 2 * (30 + 29)


def test_two_runs_together_close_a_cycle() -> None:
    """Both are set off by the run that waits for both; what only follows is not named."""
    defined = [
        made(on.run("c"), target="a", name="a"),
        made(on.run("c"), target="b", name="b"),
        made(on.run("a") & on.run("b"), target="c", name="c"),
        made(on.run("b"), target="d", name="d"),
    ]
    assert [cycle.names for cycle in cycles(defined)] == [("a", "c"), ("b", "c")]
    assert [cycle.names for cycle in cycles(defined, through=["c"])] == [("c", "a"), ("b", "c")]
    assert cycles(defined[:1] + defined[2:]) == []


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14))
def test_each_schedule_in_a_cycle_is_named(edges: set[tuple[int, int]]) -> None:
    """And no other: those from which their own runs lead back to them."""
    rate = only.rate(1, per="1h")
    defined = [
        made(on.any_of(OTHER, *triggers), rate, target=f"j{number}", name=f"s{number}")
        for number in range(6)
        if (triggers := [on.run(f"j{cause}") for cause, effect in edges if effect == number])
    ]
    reached = {
        number: {effect for cause, effect in edges if cause == number} for number in range(6)
    }
    for _ in range(6):
        for number in range(6):
            reached[number] |= {far for near in reached[number] for far in reached[near]}
    expected = {f"s{number}" for number in range(6) if number in reached[number]}
    found = cycles(defined)
    assert {name for cycle in found for name in cycle.names} == expected
    for cycle in found:
        steps = zip(cycle.names, (*cycle.names[1:], cycle.names[0]), strict=True)
        assert all((int(cause[1]), int(effect[1])) in edges for cause, effect in steps)


def test_the_code_that_declares_a_cycle_is_refused() -> None:
    """One that is spaced out is warned of, at the line that makes the Arctic."""
    first, second = made(on.run("b"), target="a", name="f"), made(on.run("a"), target="b")
    with pytest.raises(InvalidDefinition, match="close the cycle f → s → f"):
        Arctic(schedules=[first, second])
    second = made(on.run("a"), only.delay("5m"), target="b")
    with pytest.warns(UserWarning, match="set each other off, f → s → f") as warned:
        Arctic(schedules=[first, second])
    assert warned[0].filename == __file__
