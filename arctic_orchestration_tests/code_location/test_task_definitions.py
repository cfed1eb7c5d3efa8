"""``fresh_parents`` and ``task_definitions``: what users declare becomes assets, jobs, policies."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import fresh_parents, task_definitions
from arctic_orchestration.code_location.freshness.declaring import (
    declared_tasks,
    newest_partition,
    spec_of,
)
from arctic_orchestration.errors import ArcticError, InvalidDefinition, InvalidInput
from arctic_orchestration.freshness.criteria import Parent, TaskSpec

_FUNCTIONS = "arctic_orchestration_tests.code_location.functions_of_tests"
TOLD = f"{_FUNCTIONS}:told"


class NoSpark(dg.ConfigurableResource[Any]):
    """In the place of a session that nobody asks for."""


def written(directory: Path, name: str, *tasks: dict[str, Any], **fields: Any) -> Path:
    """A batch file whose tasks are functions, unless they say something else."""
    file = directory / f"{name}.json"
    made = [task if "sql" in task else {"python": TOLD, **task} for task in tasks]
    file.write_text(json.dumps({"name": name, "tasks": made, **fields}))
    return file


def whole(**given: Any) -> dg.Definitions:
    """Task definitions in a location that can be loaded."""
    around = dg.Definitions(resources={"pyspark": NoSpark()}, executor=dg.in_process_executor)
    return dg.Definitions.merge(task_definitions(**given), around)


def problems_of(**given: Any) -> list[str]:
    with pytest.raises(ArcticError) as refused:
        task_definitions(**given)
    error = refused.value
    assert isinstance(error, InvalidInput)
    if isinstance(error, InvalidDefinition):
        return [str(problem) for problem in error.problems]
    return [str(error)]


def window(definitions: dg.Definitions, asset: str) -> timedelta:
    """How old Dagster lets an asset become before it calls it stale."""
    key = dg.AssetKey.from_user_string(asset)
    policy: Any = definitions.get_repository_def().asset_graph.get(key).freshness_policy
    window: timedelta = policy.fail_window.to_timedelta()
    return window


def after(hours: float) -> dict[str, float]:
    return {"freshnessCriteriaInHours": hours}


@dg.op
def nothing() -> None: ...


@fresh_parents({"b/child": 3})
@dg.asset(group_name="others", metadata={"owner": "me"})
def by_hand(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """An asset with a docstring."""
    return dg.MaterializeResult(metadata={"rows": 3})


@fresh_parents({"by_hand": None}, name="mail", batch="b", retries=2, timezone="Asia/Tokyo")
@dg.job
def send() -> None:
    nothing()


def test_what_is_declared_is_found_on_the_loaded_location(tmp_path: Path) -> None:
    """Tasks of files, and assets and jobs under the decorator, each with its own words."""
    file = written(
        tmp_path,
        "b",
        {"name": "b/parent", **after(24)},
        {
            "name": "b/child",
            "dependencies": ["b/parent"],
            "dependenciesWithMeta": {"raw": after(6)},
        },
        {"name": "tell", "kind": "job", "dependencies": ["b/child"]},
        concurrency=2,
    )
    definitions = whole(batches=[file], tasks=[by_hand, send])
    shared: dict[str, Any] = {"batch": "b", "concurrency": 2}
    assert declared_tasks(definitions.get_repository_def()) == (
        TaskSpec(
            name="b/child",
            target="b/child",
            parents=(Parent(name="b/parent"), Parent(name="raw", hours=6)),
            **shared,
        ),
        TaskSpec(name="b/parent", target="b/parent", freshness_hours=24, **shared),
        TaskSpec(name="by_hand", target="by_hand", parents=(Parent(name="b/child", hours=3),)),
        TaskSpec(
            name="mail",
            kind="job",
            target="send",
            batch="b",
            retries=2,
            timezone="Asia/Tokyo",
            parents=(Parent(name="by_hand"),),
        ),
        TaskSpec(
            name="tell", kind="job", target="tell", parents=(Parent(name="b/child"),), **shared
        ),
    )
    repository = definitions.get_repository_def()
    assert {"b", "tell", "send"} < set(repository.job_names)
    assert [sensor.name for sensor in repository.sensor_defs] == ["arctic_tasks"]


def test_a_job_of_assets_can_be_a_task(tmp_path: Path) -> None:
    """As one of ops can; its metadata stays beside the declaration."""
    nightly = fresh_parents({"by_hand": 24})(
        dg.define_asset_job("nightly", selection="by_hand", metadata={"owner": "me"})
    )
    repository = whole(tasks=[by_hand, nightly]).get_repository_def()
    assert [(spec.name, spec.kind) for spec in declared_tasks(repository)] == [
        ("by_hand", "asset"),
        ("nightly", "job"),
    ]
    assert repository.get_job("nightly").metadata["owner"].value == "me"


def test_assets_of_a_batch_have_a_partition_for_each_day_of_its_zone(tmp_path: Path) -> None:
    """Today's too; parents are edges of Dagster's graph, also those that others make."""
    file = written(
        tmp_path,
        "b",
        {"name": "b/parent", "description": "It is *the* parent", "tags": {"size": "small"}},
        {"name": "b/child", "dependencies": ["b/parent", "elsewhere"]},
        timezone="America/New_York",
        partitionsStart="2026-02-01",
    )
    definitions = whole(batches=[file])
    graph = definitions.get_repository_def().asset_graph
    child = graph.get(dg.AssetKey(["b", "child"]))
    assert {key.to_user_string() for key in child.parent_keys} == {"b/parent", "elsewhere"}
    assert child.group_name == "b"
    parent = graph.get(dg.AssetKey(["b", "parent"]))
    assert parent.description == "It is *the* parent"
    days = child.partitions_def
    assert isinstance(days, dg.TimeWindowPartitionsDefinition)
    assert (days.timezone, days.get_first_partition_key()) == ("America/New_York", "2026-02-01")
    # five hours before New York's midnight, and at it
    assert newest_partition(days, moment("2026-03-03 00:00")) == "2026-03-02"
    assert newest_partition(days, moment("2026-03-03 05:00")) == "2026-03-03"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_the_newest_partition_is_the_one_of_now_or_the_last_before() -> None:
    """Of partitions that time does not order, none."""
    noon = moment("2026-03-02 12:00")
    day = "2026-01-01"
    assert newest_partition(dg.DailyPartitionsDefinition(day), noon) == "2026-03-01"
    ahead = dg.DailyPartitionsDefinition(day, end_offset=5)
    assert newest_partition(ahead, noon) == "2026-03-02"
    ended = dg.DailyPartitionsDefinition(day, end_date="2026-02-01")
    assert newest_partition(ended, noon) == "2026-01-31"
    assert newest_partition(dg.DailyPartitionsDefinition("2027-01-01"), noon) is None
    assert newest_partition(dg.StaticPartitionsDefinition(["a", "b"]), noon) is None
    assert newest_partition(None, noon) is None


def test_policies_show_the_strictest_need_of_a_task_and_its_children(tmp_path: Path) -> None:
    """Children in the same file, under the decorator, and in the batch of another location."""
    here = written(
        tmp_path,
        "b",
        {"name": "b/mine", **after(5)},
        {"name": "b/child", "dependenciesWithMeta": {"b/mine": after(24), "b/strict": after(2)}},
        {"name": "b/strict", **after(48)},
        {"name": "b/far", **after(48)},
        {"name": "b/soon", **after(0.001)},
    )
    there = written(tmp_path, "c", {"name": "c/x", "dependenciesWithMeta": {"b/far": after(7)}})
    alone = whole(batches=[here])
    hours = timedelta(hours=1)
    assert window(alone, "b/mine") == 5 * hours
    assert window(alone, "b/strict") == 2 * hours
    assert window(alone, "b/child") == 24 * hours
    assert window(alone, "b/far") == 48 * hours
    # Dagster takes nothing shorter.
    assert window(alone, "b/soon") == timedelta(minutes=1)
    together = whole(batches=[here], elsewhere=[there], tasks=[by_hand])
    assert window(together, "b/far") == 7 * hours
    assert window(together, "b/child") == 3 * hours
    assert "c/x" not in {
        key.to_user_string()
        for key in together.get_repository_def().asset_graph.get_all_asset_keys()
    }


def test_what_was_said_of_an_asset_stays_said() -> None:
    """Under the decorator it keeps group, metadata, description, and can be called as before."""
    (spec,) = by_hand.specs
    assert (spec.group_name, spec.metadata["owner"]) == ("others", "me")
    assert spec.description == "An asset with a docstring."
    declared = spec_of(by_hand)
    assert declared is not None and declared.name == "by_hand"
    (made,) = task_definitions(tasks=[by_hand]).assets or ()
    assert isinstance(made, dg.AssetsDefinition)
    result: Any = made(dg.build_asset_context())
    assert result.metadata == {"rows": 3}


@pytest.fixture
def instance(
    dagster_instance: Callable[[str], dg.DagsterInstance],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dg.DagsterInstance:
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{tmp_path / 'arctic.db'}")
    return dagster_instance("sqlite")


def made_by(
    definitions: dg.Definitions, instance: dg.DagsterInstance, asset: str, day: str
) -> dg.ExecuteInProcessResult:
    return definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey.from_user_string(asset)],
        partition_key=day,
        raise_on_error=False,
    )


def test_functions_are_called_with_what_their_run_is_for(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """What they return is metadata; a job has no partition."""
    file = written(
        tmp_path,
        "b",
        {"name": "b/one"},
        {"name": "silent", "kind": "job", "python": f"{_FUNCTIONS}:silent"},
    )
    definitions = whole(batches=[file])
    result = made_by(definitions, instance, "b/one", "2026-03-02")
    (event,) = result.asset_materializations_for_node("b__one")
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert (metadata["name"], metadata["partition"]) == ("b/one", "2026-03-02")
    assert metadata["arctic/token"] == 1
    assert definitions.resolve_job_def("silent").execute_in_process(instance=instance).success


def test_a_function_that_returns_what_no_task_can_be_fails_its_run(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """By name, with what it returned; one without rows for its table too. Nothing is published."""
    file = written(
        tmp_path,
        "b",
        {"name": "b/wrong", "python": f"{_FUNCTIONS}:wrong"},
        {"name": "b/rowless", "table": "b.rows"},
    )
    definitions = whole(batches=[file])
    for asset, expected in (
        (
            "b/wrong",
            "got [1, 2], expected nothing, or a mapping of metadata: the task has no table",
        ),
        ("b/rowless", "expected a DataFrame of the rows for b.rows"),
    ):
        result = made_by(definitions, instance, asset, "2026-03-02")
        assert not result.success
        (failure,) = result.get_step_failure_events()
        error = failure.step_failure_data.error
        assert error is not None and error.cause is not None
        assert expected in error.cause.message
        assert result.asset_materializations_for_node(asset.replace("/", "__")) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"python": "no.module:f"}, "b.json: tasks[0].python: got 'no.module:f', expected a module "
         "that can be imported (ModuleNotFoundError"),
        ({"python": f"{_FUNCTIONS}:absent"}, "expected a function that"),
        ({"python": f"{_FUNCTIONS}:CONSTANT"}, "expected a function that"),
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
        ({"interval_seconds": 0}, "interval_seconds: got 0, expected a whole number, at least 1"),
        ({"tasks": ["by_hand"]}, "tasks[0]: got 'by_hand', expected an asset or a job under"),
    ],
)
def test_arguments_that_are_none_are_refused(given: dict[str, Any], expected: str) -> None:
    """By their names."""
    (problem,) = problems_of(**given)
    assert problem.startswith(expected)


def undeclared() -> dg.AssetsDefinition:
    @dg.asset
    def plain() -> None: ...

    return plain


def test_an_asset_without_the_decorator_is_no_task() -> None:
    """It is told so, and is not taken for one."""
    (problem,) = problems_of(tasks=[undeclared()])
    assert "expected an asset or a job under fresh_parents" in problem


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
        ({}, {}, drawn(), "task", "an asset that one function makes"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(
    parents: Any, options: dict[str, Any], definition: Any, field: str, expected: str
) -> None:
    """At import, with field, value and what was expected."""
    with pytest.raises(InvalidDefinition) as refused:
        fresh_parents(parents, **options)(definition)
    assert refused.value.field == field
    assert expected in refused.value.expected


def test_the_zone_of_the_surroundings_is_that_of_tasks_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For files and for the decorator; a zone that is none is refused by the variable's name."""
    monkeypatch.setenv("ARCTIC_TIMEZONE", "Asia/Kathmandu")
    file = written(tmp_path, "b", {"name": "b/x"})
    (spec,) = declared_tasks(whole(batches=[file]).get_repository_def())
    assert spec.timezone == "Asia/Kathmandu"
    declared = spec_of(fresh_parents({})(undeclared()))
    assert declared is not None and declared.timezone == "Asia/Kathmandu"
    monkeypatch.setenv("ARCTIC_TIMEZONE", "Mars/Base")
    (problem,) = problems_of(batches=[file])
    assert problem.startswith("ARCTIC_TIMEZONE: got 'Mars/Base', expected a time zone")
