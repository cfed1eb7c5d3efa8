"""``fresh_parents`` and ``task_definitions``: what users declare becomes assets, jobs, policies."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Freshness, fresh_parents
from arctic_orchestration.clock import utc_now
from arctic_orchestration.freshness.criteria import Parent, TaskSpec
from arctic_orchestration.freshness.dagster.fresh_parents import (
    declared_tasks,
    newest_partition,
    spec_of,
)
from arctic_orchestration_tests.code_location.declared_tasks import (
    FUNCTIONS,
    after,
    by_hand,
    send,
    undeclared,
    whole,
    written,
)


def window(definitions: dg.Definitions, asset: str) -> timedelta:
    """How old Dagster lets an asset become before it calls it stale."""
    key = dg.AssetKey.from_user_string(asset)
    policy: Any = definitions.get_repository_def().asset_graph.get(key).freshness_policy
    window: timedelta = policy.fail_window.to_timedelta()
    return window


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
            retry_delay=timedelta(minutes=5),
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


def test_each_argument_of_the_decorator_is_declared() -> None:
    """Those that tell how a task is made when its parents are stale, or when others run."""
    given: dict[str, Any] = {
        "freshness_hours": 12,
        "name": "totals",
        "batch": "b",
        "timezone": "Asia/Tokyo",
        "concurrency": 3,
        "retries": 2,
        "retry_delay": timedelta(minutes=5),
        "skip": "it is broken",
        "recheck": timedelta(minutes=1),
        "patience": timedelta(hours=4),
    }
    parents = (Parent(name="raw"), Parent(name="flights", hours=24))
    made = spec_of(fresh_parents({"raw": None, "flights": 24}, **given)(undeclared()))
    assert made == TaskSpec(target="plain", parents=parents, **given)


def test_names_may_be_what_dagster_takes(tmp_path: Path) -> None:
    """Also keys whose ops would have the same name; the job of the batch runs each of them."""
    tasks = ["rep/daily-report", "rep/daily.report", "rep/daily_report", "2024/orders"]
    file = written(tmp_path, "2024_sales", *({"name": name} for name in tasks))
    repository = whole(batches=[file]).get_repository_def()
    assert sorted(spec.target for spec in declared_tasks(repository)) == sorted(tasks)
    layer = repository.get_job("2024_sales").asset_layer
    assert {key.to_user_string() for key in layer.selected_asset_keys} == set(tasks)


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


def test_the_edge_to_a_task_of_another_name_leads_to_its_asset(tmp_path: Path) -> None:
    """The batch needs it by the name of the task; Dagster's graph has no asset of that name."""

    @fresh_parents({}, name="all_flights")
    @dg.asset(key=["nyc", "flights"])
    def flights() -> None: ...

    file = written(tmp_path, "b", {"name": "b/child", "dependencies": ["all_flights"]})
    graph = whole(batches=[file], tasks=[flights]).get_repository_def().asset_graph
    assert graph.get(dg.AssetKey(["b", "child"])).parent_keys == {dg.AssetKey(["nyc", "flights"])}
    assert dg.AssetKey("all_flights") not in graph.get_all_asset_keys()


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


def test_the_metadata_of_an_asset_stays() -> None:
    """Under the decorator it keeps group, metadata, description, and can be called as before."""
    (spec,) = by_hand.specs
    assert (spec.group_name, spec.metadata["owner"]) == ("others", "me")
    assert spec.description == "An asset with a docstring."
    declared = spec_of(by_hand)
    assert declared is not None
    assert declared.name == "by_hand"
    made, _history = Freshness(tasks=[by_hand]).definitions().assets or ()
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
        {"name": "silent", "kind": "job", "python": f"{FUNCTIONS}:silent"},
    )
    definitions = whole(batches=[file])
    today = f"{utc_now():%Y-%m-%d}"
    result = made_by(definitions, instance, "b/one", today)
    (event,) = result.asset_materializations_for_node("b__one")
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert (metadata["name"], metadata["partition"]) == ("b/one", today)
    assert metadata["arctic/token"] == 1
    assert definitions.resolve_job_def("silent").execute_in_process(instance=instance).success


def test_a_function_that_returns_what_no_task_can_be_fails_its_run(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """By name, with what it returned; one without rows for its table too. Nothing is published."""
    file = written(
        tmp_path,
        "b",
        {"name": "b/wrong", "python": f"{FUNCTIONS}:wrong"},
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
        assert error is not None
        assert error.cause is not None
        assert expected in error.cause.message
        assert result.asset_materializations_for_node(asset.replace("/", "__")) == []


def test_the_zone_of_the_surroundings_is_that_of_tasks_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For files and for the decorator."""
    monkeypatch.setenv("ARCTIC_TIMEZONE", "Asia/Kathmandu")
    file = written(tmp_path, "b", {"name": "b/x"})
    (spec,) = declared_tasks(whole(batches=[file]).get_repository_def())
    assert spec.timezone == "Asia/Kathmandu"
    declared = spec_of(fresh_parents({})(undeclared()))
    assert declared is not None
    assert declared.timezone == "Asia/Kathmandu"
