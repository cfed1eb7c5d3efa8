"""Cycles among schedules that are stored, or are about to be."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_cycles import stored_cycles
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.explanation import explain_schedule
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at

CODE = Inventory(
    jobs=frozenset({"rollup", "load"}),
    assets={"raw/x": None, "daily": None},
    executable=frozenset({"raw/x", "daily"}),
)
MAKES = replace(CODE, job_assets={"rollup": ("raw/x",)})
PAUSE = [only.minimum_interval("5m")]


def schedule(name: str, target: Any, trigger: Any, *constraints: Any) -> Schedule:
    return Schedule(name=name, target=target, trigger=trigger, constraints=constraints)


ROLLUP = schedule("rollup", "rollup", on.partitions("raw/x"))
THERE = schedule("there", "load", on.run("rollup"))
BACK = schedule("back", "rollup", on.run("load"))


def apply(here: World, *wanted: Schedule, prune: bool = False) -> None:
    with here.database.begin() as tx:
        place = locked(tx, "default", "here")
        control.apply(tx, ScheduleStore(), place, wanted, at(5), prune=prune)


def remarks(here: World, *wanted: Schedule) -> list[str]:
    with here.database.read() as tx:
        return control.remarks(tx, ScheduleStore(), locked(tx, "default", "here"), wanted)


def new_code(here: World, inventory: Inventory, seconds: float) -> Sequence[str]:
    """A new code server has its first tick; returns its remarks."""
    here.engine = here.new_engine()
    here.engine.inventory = inventory
    return here.engine.tick(at(seconds)).remarks


def found(here: World) -> list[tuple[tuple[str, ...], bool]]:
    with here.database.read() as tx:
        cycles = stored_cycles(tx, ScheduleStore(), locked(tx, "default", "here"))
    return [(cycle.names, cycle.endless) for cycle in cycles]


def test_a_schedule_that_closes_a_cycle_is_refused(world: MakeWorld) -> None:
    """Whether the others are stored or of the same file; not when one of them is deleted."""
    here = world([])
    apply(here, THERE)
    for wanted in ([BACK], [THERE, BACK]):
        with pytest.raises(InvalidDefinition, match="close the cycle back → there → back"):
            apply(here, *wanted)
    spaced = schedule("back", "rollup", on.run("load"), *PAUSE)
    apply(here, spaced)
    with pytest.raises(InvalidDefinition, match="close the cycle back → there → back"):
        apply(here, BACK)
    apply(here, BACK, prune=True)
    assert found(here) == []


def test_what_a_job_makes_is_read_from_the_inventory(world: MakeWorld) -> None:
    """Before the first tick it is not known, and then it is reported once for each code server."""
    here = world([])
    apply(here, ROLLUP)
    assert new_code(here, CODE, 6) == ()
    (text,) = new_code(here, MAKES, 7)
    assert text == (
        "Schedule(rollup).trigger: the schedule's own runs set it off. It never stops; no "
        "constraint keeps time between two runs"
    )
    assert here.engine.tick(at(8)).remarks == ()
    assert found(here) == [(("rollup",), True)]
    # What is stored already is no obstacle to the others.
    apply(here, ROLLUP, THERE)
    with pytest.raises(InvalidDefinition, match="its own runs do not satisfy"):
        apply(here, schedule("other", "rollup", on.quiet("raw/x", "5m")))


def test_a_cycle_with_a_pause_is_a_warning(world: MakeWorld) -> None:
    """Where it is applied, and in the explanation of each of its schedules."""
    here = world([])
    spaced = schedule("back", "rollup", on.run("load"), *PAUSE)
    outside = schedule("outside", {"assets": ["daily"]}, on.run("load"))
    apply(here, THERE, outside)
    new_code(here, CODE, 6)
    assert remarks(here, outside) == []
    (text,) = remarks(here, spaced)
    assert text == (
        "Schedule(back).trigger: runs of these schedules set each other off, back → there → back. "
        "It never stops; only its constraints keep time between two runs"
    )
    apply(here, spaced)
    with here.database.read() as tx:
        place = locked(tx, "default", "here")
        explained = {
            name: explain_schedule(tx, ScheduleStore(), place, name, at(9)).cycles
            for name in ("back", "there", "outside")
        }
    assert explained["back"] == (text,)
    assert "there → back → there" in explained["there"][0]
    assert explained["outside"] == ()


def test_schedules_that_nothing_sets_off_are_not_parsed(world: MakeWorld) -> None:
    """A location of thousands costs one pass over the index and the forms."""
    chain = [
        schedule(f"s{number}", {"assets": [f"a{number + 1}"]}, on.partitions(f"a{number}"))
        for number in range(5)
    ]
    here = world([])
    apply(here, *chain)
    store = ScheduleStore()
    with here.database.read() as tx:
        assert stored_cycles(tx, store, locked(tx, "default", "here")) == []
    assert not store._known
