"""The assets that have the history of tasks: nothing computes them, each has its own name."""

from pathlib import Path
from typing import Any

import dagster as dg

from arctic_orchestration import Freshness
from arctic_orchestration.freshness.dagster.fresh_parents import fresh_parents
from arctic_orchestration.freshness.dagster.submission_history import history_key
from arctic_orchestration_tests.code_location.declared_tasks import whole, written
from arctic_orchestration_tests.code_location.tasks_place import ON_SQLITE, Tasks, observed, tasks

__all__ = ["tasks"]

FLIGHTS, DELAYS = dg.AssetKey("flights"), dg.AssetKey(["nyc", "delays"])


def test_each_task_has_an_asset_that_nothing_computes(tmp_path: Path) -> None:
    """In a group of its own, with links from the task and to it, and no edge of the graph."""
    file = written(tmp_path, "b", {"name": "b/part"}, {"name": "tell", "kind": "job"})

    @fresh_parents({})
    @dg.asset
    def top() -> None: ...

    below = dg.define_asset_job("below", selection="top*")
    definitions = dg.Definitions.merge(
        whole(batches=[file], tasks=[top]), dg.Definitions(jobs=[below])
    )
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    for name, own in (("b/part", "asset"), ("top", "asset"), ("tell", "job")):
        node = graph.get(history_key(name))
        assert (node.is_executable, node.group_name) == (False, "arctic_tasks")
        assert (node.parent_keys, node.child_keys) == (set(), set())
        assert f"the task {name} ended" in str(node.description)
        target = dg.AssetKey.from_user_string(name) if own == "asset" else name
        assert getattr(node.metadata[own], "value", node.metadata[own]) == target
    linked = (
        graph.get(dg.AssetKey(["b", "part"])).metadata,
        graph.get(dg.AssetKey("top")).metadata,
        repository.get_job("tell").metadata,
    )
    assert [metadata["arctic/task_history"].value for metadata in linked] == [
        history_key("b/part"), history_key("top"), history_key("tell"),
    ]  # fmt: skip
    # What is below a task in the graph can still be made by a job.
    layer = repository.get_job("below").asset_layer
    assert layer.executable_asset_keys == {dg.AssetKey("top")}


def test_without_tasks_there_are_no_such_assets() -> None:
    """The sensor alone."""
    graph = Freshness().definitions().get_repository_def().asset_graph
    assert not graph.get_all_asset_keys()


@ON_SQLITE
def test_names_that_a_key_does_not_take_have_a_history_of_their_own(tasks: Tasks) -> None:
    """Whatever is in them; no two names share one."""
    names = ["load (new)", "a//b", "a/~~/b", "..", ".", "x/../y", 'q"uote', "é/ü", "~20~", " ", "/"]
    made: list[Any] = []
    for number, name in enumerate(names):

        @fresh_parents({}, name=name, skip="for the test")
        @dg.asset(name=f"asset_{number}")
        def anything() -> None: ...

        made.append(anything)
    assert len({history_key(name) for name in names}) == len(names)
    assert history_key("load (new)") == dg.AssetKey(["arctic", "tasks", "load~20~~28~new~29~"])
    assert history_key("a//b") == dg.AssetKey(["arctic", "tasks", "a", "~~", "b"])
    assert history_key("..") == dg.AssetKey(["arctic", "tasks", "~~~2e~~2e~"])
    assert history_key("punctuality/carriers-2.é").path[2:] == ["punctuality", "carriers-2.é"]
    tasks.declare(Freshness(tasks=made).definitions())
    graph = tasks.repository.asset_graph
    submitted = {name: tasks.submit(name) for name in names}
    for _ in range(2):
        tasks.tick()
    for number, name in enumerate(names):
        assert graph.get(history_key(name)).metadata["task"] == name
        (one,) = observed(tasks, name)
        assert (one["submission"], one["ended as"]) == (submitted[name].id, "skipped")
        assert one["task"] == dg.AssetKey(f"asset_{number}")
