"""Declarations of tasks that cannot be used are refused, before anything is made of them."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Freshness, fresh_parents
from arctic_orchestration.errors import ArcticError, InvalidDefinition, InvalidInput
from arctic_orchestration_tests.code_location.declared_tasks import (
    FUNCTIONS,
    by_hand,
    nothing,
    undeclared,
    written,
)


def problems_of(**given: Any) -> list[str]:
    with pytest.raises(ArcticError) as refused:
        Freshness(**given).definitions()
    error = refused.value
    assert isinstance(error, InvalidInput)
    if isinstance(error, InvalidDefinition):
        return [str(problem) for problem in error.problems]
    return [str(error)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"python": "no.module:f"}, "b.json: tasks[0].python: got 'no.module:f', expected a module "
         "that can be imported (ModuleNotFoundError"),
        ({"python": f"{FUNCTIONS}:absent"}, "expected a function that"),
        ({"python": f"{FUNCTIONS}:CONSTANT"}, "expected a function that"),
        ({"freshnessCriteriaInHours": 0}, "b.json: tasks[0].freshnessCriteriaInHours: got 0"),
        ({"dependencies": ["a"]}, "b.json: tasks[0].dependencies: got 'a needs a'"),
        ({"kind": "job", "name": "b"}, "batch: got 'b', expected a name that no other"),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_made_is_refused(
    tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    """With file, path, value and what was expected; nothing of it is made."""
    file = written(tmp_path, "b", {"name": "a", **fields})
    (problem,) = problems_of(batches=[file])
    assert expected in problem


def test_names_and_cycles_are_looked_at_across_files(tmp_path: Path) -> None:
    """Of two files of one location, of decorated assets, and of the file of another location."""
    one = written(tmp_path, "b", {"name": "b/x", "dependencies": ["c/x"]}, {"name": "by_hand"})
    two = written(tmp_path, "c", {"name": "c/x", "dependencies": ["b/x"]})
    again = written(tmp_path, "d", {"name": "b/x"})
    assert problems_of(batches=[one, two]) == [
        "tasks: got 'b/x needs c/x needs b/x', expected tasks that do not need themselves"
    ]
    assert problems_of(batches=[two], elsewhere=[one])[0].startswith("tasks: got 'c/x needs")
    assert problems_of(batches=[one, again], tasks=[by_hand]) == [
        "d.json: tasks[0].name: got 'b/x', expected another name: b.json: tasks[0].name has it",
        "tasks[0]: got 'by_hand', expected another name: b.json: tasks[1].name has it",
    ]


def test_a_table_belongs_to_one_task_of_all_files(tmp_path: Path) -> None:
    """The run of each would replace the rows of the other."""
    one = written(tmp_path, "b", {"name": "b/x", "table": "nyc.delays"})
    two = written(
        tmp_path, "c", {"name": "c/x", "table": "nyc.other"}, {"name": "c/y", "table": "nyc.delays"}
    )
    (problem,) = problems_of(batches=[one, two])
    assert problem.startswith("c.json: tasks[1].table: got 'nyc.delays'")
    assert problem.endswith("expected another table: b.json: tasks[0] writes it")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"batches": "b.json"}, "batches: got 'b.json', expected a list of paths"),
        ({"batches": [7]}, "batches: got [7], expected a list of paths"),
        (
            {"batches": ["absent.json"]},
            "batch: got 'absent.json', expected a file that can be read",
        ),
        (
            {"elsewhere": ["b.yaml"]},
            "batch: got 'b.yaml', expected a file whose name ends in .json",
        ),
        ({"interval_seconds": 0}, "interval_seconds: got 0, expected a whole number from 1 to 20"),
        ({"interval_seconds": 21}, "interval_seconds: got 21, expected a whole number from 1 to"),
        ({"tasks": ["by_hand"]}, "tasks[0]: got 'by_hand', expected an asset or a job under"),
    ],
)
def test_arguments_that_are_none_are_refused(given: dict[str, Any], expected: str) -> None:
    """By their names."""
    (problem,) = problems_of(**given)
    assert problem.startswith(expected)


def test_an_asset_without_the_decorator_is_no_task() -> None:
    """It is reported, and is not taken for one."""
    (problem,) = problems_of(tasks=[undeclared()])
    assert "expected an asset or a job under fresh_parents" in problem


def test_what_a_declaration_cannot_heed_is_refused() -> None:
    """A limit on a batch that it is not in, and a reason that is none."""
    for given in ({"concurrency": 1}, {"skip": " "}):
        ((field, value),) = given.items()
        with pytest.raises(InvalidDefinition) as refused:
            fresh_parents({}, **given)(undeclared())
        (problem,) = refused.value.problems
        assert (problem.field, problem.value) == (f"fresh_parents(plain).{field}", value)


def several() -> dg.AssetsDefinition:
    @dg.multi_asset(specs=[dg.AssetSpec("x"), dg.AssetSpec("y")])
    def both() -> tuple[None, None]:
        return None, None

    return both


def waiting() -> dg.AssetsDefinition:
    @dg.asset
    async def slow() -> None: ...

    return slow


def drawn() -> dg.AssetsDefinition:
    @dg.graph_asset
    def graph() -> Any:
        return nothing()

    return graph


def cut_into(partitions: dg.PartitionsDefinition[Any]) -> dg.AssetsDefinition:
    @dg.asset(partitions_def=partitions)
    def cut() -> None: ...

    return cut


LETTERS = dg.StaticPartitionsDefinition(["a", "b"])
BOTH_WAYS = dg.MultiPartitionsDefinition(
    {"day": dg.DailyPartitionsDefinition("2026-01-01"), "letter": LETTERS}
)
WINDOWS = "partitions that are windows of time, or none: a run is for the newest"


@pytest.mark.parametrize(
    ("parents", "options", "definition", "field", "expected"),
    [
        (["a"], {}, undeclared(), "fresh_parents", 'a mapping of parents to hours, such as {"fli'),
        ({"a": "24"}, {}, undeclared(), "fresh_parents(plain).parents[0].hours", "a number"),
        ({"a": 0}, {}, undeclared(), "fresh_parents(plain).parents[0].hours", "more than 0"),
        ({"": 1}, {}, undeclared(), "fresh_parents(plain).parents[0].name", "not empty"),
        ({}, {"retries": -1}, undeclared(), "fresh_parents(plain).retries", "at least 0"),
        ({}, {"timezone": "Mars"}, undeclared(), "fresh_parents(plain).timezone", "IANA"),
        ({}, {"name": ""}, undeclared(), "fresh_parents(plain).name", "not empty"),
        ({}, {}, several(), "fresh_parents", "an asset of one key, or a job"),
        ({}, {}, test_names_and_cycles_are_looked_at_across_files, "fresh_parents", "above @dg."),
        ({}, {}, waiting(), "task", "an asset whose function is not async"),
        ({}, {}, cut_into(LETTERS), "fresh_parents(cut).partitions_def", WINDOWS),
        ({}, {}, cut_into(BOTH_WAYS), "fresh_parents(cut).partitions_def", WINDOWS),
        ({}, {}, cut_into(dg.DynamicPartitionsDefinition(name="feeds")),
         "fresh_parents(cut).partitions_def", WINDOWS),
        ({}, {}, drawn(), "task", "an asset that one function makes"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_used_is_refused(
    parents: Any, options: dict[str, Any], definition: Any, field: str, expected: str
) -> None:
    """At import, with field, value and what was expected."""
    with pytest.raises(InvalidDefinition) as refused:
        fresh_parents(parents, **options)(definition)
    assert refused.value.field == field
    assert expected in refused.value.expected


def test_a_zone_of_the_surroundings_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variable's name."""
    file = written(tmp_path, "b", {"name": "b/x"})
    monkeypatch.setenv("ARCTIC_TIMEZONE", "Mars/Base")
    (problem,) = problems_of(batches=[file])
    assert problem.startswith("ARCTIC_TIMEZONE: got 'Mars/Base', expected a time zone")
