"""What it costs to load tasks: each definition is made once, whatever the speed of the machine."""

from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Freshness, fresh_parents
from arctic_orchestration_tests.code_location.declared_tasks import written


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many ops and assets were defined since."""
    counts: Counter[str] = Counter()

    def count(kind: type[Any]) -> None:
        init = kind.__init__

        def counting(self: Any, *args: Any, **kwargs: Any) -> None:
            counts[kind.__name__] += 1
            init(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counting)

    count(dg.OpDefinition)
    count(dg.AssetsDefinition)
    return counts


def test_each_task_of_a_batch_is_defined_once(tmp_path: Path, made: Counter[str]) -> None:
    """Nothing is made and then replaced: one asset for each of 20 tasks, one op for equal ones."""
    tasks = [
        {"name": f"b/t{number}", "dependencies": [f"b/t{number - 1}"] if number else []}
        for number in range(20)
    ]
    Freshness(batches=[written(tmp_path, "b", *tasks)]).definitions()
    # One task has no parent.
    assert made == {"OpDefinition": 2, "AssetsDefinition": 20}


def test_tasks_that_share_an_op_keep_what_is_their_own(tmp_path: Path) -> None:
    """Names, descriptions, tags and functions."""
    tasks: list[dict[str, Any]] = [
        {"name": "b/first", "description": "The first.", "python": "os:getcwd"},
        {"name": "b/second", "python": "os:getpid", "tags": {"size": "small"}},
        {"name": "b/third", "description": "The third.", "tags": {"size": "small"}},
    ]
    assets = Freshness(batches=[written(tmp_path, "b", *tasks)]).definitions().assets or ()
    ops = [one.op for one in assets if isinstance(one, dg.AssetsDefinition)]
    assert [op.name for op in ops] == ["b__first", "b__second", "b__third"]
    assert [op.description for op in ops] == ["The first.", None, "The third."]
    assert [dict(op.tags) for op in ops] == [{}, {"size": "small"}, {"size": "small"}]
    assert len({op.compute_fn for op in ops}) == 3


def test_a_decorated_task_is_defined_twice_besides_its_own_definition(made: Counter[str]) -> None:
    """By ``fresh_parents``, with its declaration and its guard, and by the location."""

    def asset(number: int) -> dg.AssetsDefinition:
        @fresh_parents({})
        @dg.asset(name=f"t{number}")
        def plain() -> None: ...

        return plain

    tasks = [asset(number) for number in range(20)]
    assert made == {"OpDefinition": 20, "AssetsDefinition": 40}
    Freshness(tasks=tasks).definitions()
    assert made == {"OpDefinition": 20, "AssetsDefinition": 60}


def test_parents_whose_names_are_alike_to_python_are_different_inputs(tmp_path: Path) -> None:
    """``raw/a`` and ``raw_a`` are two assets, and ``load (new)`` is one too."""
    parents = ["raw/a", "raw_a", "load (new)"]
    file = written(tmp_path, "b", {"name": "b/child", "dependencies": parents})
    assets = Freshness(batches=[file]).definitions().assets or ()
    (child,) = [
        one
        for one in assets
        if isinstance(one, dg.AssetsDefinition) and one.key.to_user_string() == "b/child"
    ]
    keys = {key.to_user_string() for key in child.keys_by_input_name.values()}
    assert keys == set(parents)


def _is(one: Any, key: str) -> bool:
    return isinstance(one, dg.AssetsDefinition) and one.key.to_user_string() == key
