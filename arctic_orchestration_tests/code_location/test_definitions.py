"""Definitions that name what is not there are refused; those that can be loaded touch nothing."""

import runpy
import socket
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import (
    Arctic,
    Compaction,
    Freshness,
    PartitionConsumer,
    Schedule,
    consumer_sensor,
    fresh_parents,
    on,
    only,
)
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.dagster.adoption.drafts import drafts_of

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")


@dg.asset(partitions_def=days)
def parent() -> None: ...


@dg.asset(partitions_def=days, deps=[parent])
def child() -> None: ...


@dg.asset(deps=[parent])
def whole() -> None: ...


@dg.asset(partitions_def=days, deps=[whole])
def grandchild() -> None: ...


@dg.multi_asset(specs=[dg.AssetSpec("left"), dg.AssetSpec("right")])
def both() -> Iterator[dg.MaterializeResult[None]]:
    yield from ()


@dg.multi_asset(
    specs=[dg.AssetSpec(name, skippable=True) for name in ("one", "two")], can_subset=True
)
def some() -> Iterator[dg.MaterializeResult[None]]:
    yield from ()


@dg.op
def nothing() -> None: ...


@dg.job
def work() -> None:
    nothing()


@dg.asset_check(asset=parent)
def no_nulls() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


stranger = dg.define_asset_job("stranger", selection=["child"])
ASSETS: list[dg.AssetsDefinition | dg.AssetSpec] = [
    parent,
    child,
    whole,
    grandchild,
    both,
    some,
    dg.AssetSpec("raw/a"),
]


def load(*schedules: Schedule) -> None:
    """What a code server does: all of the location is put together."""
    merged = dg.Definitions.merge(
        dg.Definitions(assets=ASSETS, asset_checks=[no_nulls], jobs=[work]),
        Arctic(schedules=schedules).definitions(),
    )
    dg.Definitions.validate_loadable(merged)


def problems(error: BaseException | None) -> tuple[InvalidInput, ...]:
    """Ours, wherever Dagster has put it in the chain of causes."""
    while error is not None and not isinstance(error, InvalidDefinition):
        error = error.__cause__
    assert error is not None, "no refusal of ours"
    return error.problems


GOOD: dict[str, Any] = {"name": "s", "target": "work", "trigger": on.partitions("raw/a")}
EXECUTABLE = "an asset to run, child, grandchild, left, one, parent, right, two, whole"
KNOWN = "one of child, grandchild, left, one, parent, raw/a, right, two, whole"
A_JOB = "the name of a job of this code location"


@pytest.mark.parametrize(
    ("wrong", "field", "value", "expected"),
    [
        ({"target": "wrok"}, "target.job", "wrok", A_JOB),
        ({"target": stranger}, "target.job", "stranger", A_JOB),
        ({"target": {"assets": ["child", "chidl"]}}, "target.assets", "chidl", EXECUTABLE),
        ({"target": {"assets": ["raw/a"]}, "trigger": on.cron("0 4 * * *")},
         "target.assets", "raw/a", EXECUTABLE),
        ({"target": dg.AssetSelection.groups("none")}, "target", 'group:"none"',
         "at least one asset"),
        ({"target": dg.AssetSelection.assets("chidl")}, "target", 'key:"chidl"',
         "a selection of assets of this code location (AssetKey(s) ['chidl']"),
        ({"trigger": on.partitions("raw/x")}, "trigger.partitions.asset", "raw/x", KNOWN),
        ({"trigger": on.run("wrok")}, "trigger.run.job", "wrok", A_JOB),
        ({"trigger": on.run(assets=["parent", "x"])}, "trigger.run.assets[1]", "x", KNOWN),
        ({"trigger": on.partitions("raw/a") | on.run("wrok")}, "trigger.any_of[1].run.job",
         "wrok", A_JOB),
        ({"trigger": on.partitions("raw/a") & on.data("raw/x", "1GB")},
         "trigger.all_of[1].data.asset", "raw/x", KNOWN),
        ({"trigger": on.elapsed("1h", since=on.partitions("raw/x"))},
         "trigger.elapsed.since.partitions.asset", "raw/x", KNOWN),
        ({"constraints": [only.concurrency(1), only.fresh({"raw/x": 24})]},
         "constraints[1].fresh.parents", "raw/x", KNOWN),
        ({"trigger": on.check("raw/x")}, "trigger.check.asset", "raw/x", KNOWN),
        ({"trigger": on.check("parent", "no_nuls")}, "trigger.check.name", "no_nuls",
         "a check of parent: one of no_nulls"),
        ({"trigger": on.partitions("parent", checks=["no_nuls", "no_nulls"])},
         "trigger.partitions.checks", "no_nuls", "a check of parent: one of no_nulls"),
        ({"trigger": on.check("whole", "no_nulls")}, "trigger.check.name", "no_nulls",
         "a check of whole: none is defined"),
        ({"trigger": on.freshness("raw/x", state="fail")}, "trigger.freshness.asset", "raw/x",
         KNOWN),
        ({"constraints": [only.checks_passed("raw/x")]},
         "constraints[0].checks_passed.assets", "raw/x", KNOWN),
        ({"constraints": [only.checks_passed(["whole", "parent"], "no_nuls")]},
         "constraints[0].checks_passed.checks", "no_nuls",
         "a check of whole or parent: one of no_nulls"),
        ({"target": dg.AssetSelection.assets("parent", "right")}, "target.assets", "right",
         "left as well: one function makes them"),
        ({"target": {"assets": ["child"]}}, "partitions", "none",
         "each or range: child and its parent parent are partitioned"),
        ({"target": dg.AssetSelection.assets("parent", "child")}, "partitions", "none",
         "each or range: child and its parent parent are partitioned"),
    ],
)  # fmt: skip
def test_what_a_schedule_names_must_be_there(
    wrong: dict[str, Any], field: str, value: str, expected: str
) -> None:
    """The message names the schedule's field, the value and what would have been accepted."""
    good = Schedule(**{**GOOD, "name": "good"})
    with pytest.raises((InvalidDefinition, dg.DagsterInvalidDefinitionError)) as refusal:
        load(good, Schedule(**{**GOOD, **wrong}))
    (problem,) = problems(refusal.value)
    assert (problem.field, problem.value) == (f"Schedule(s).{field}", value)
    assert problem.expected.startswith(expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"target": {"assets": ["child"]}, "partitions": "each"},
        {"target": {"assets": ["child"]}, "partitions": "range"},
        {"target": {"assets": ["parent"]}},
        {"target": {"assets": ["whole"]}},
        {"target": {"assets": ["right", "left"]}},
        {"target": {"assets": ["two"]}},
        {"target": {"assets": ["grandchild"]}},
        {"target": dg.AssetSelection.all(), "partitions": "each"},
        {"target": work},
        {"trigger": on.run("of another", location="there")},
        {"trigger": on.run(assets=["of another"], location="there")},
        pytest.param(
            {"trigger": on.partitions("raw/a") | on.run("work", status="failure")},
            marks=pytest.mark.filterwarnings("ignore:.*a run of its own that fails"),
        ),
        {"trigger": on.check("parent", "no_nulls")},
        {"trigger": on.check("raw/a")},
        # The location of the asset may define them.
        {"trigger": on.check("raw/a", "not_null")},
        {"trigger": on.partitions("raw/a", checks=["not_null"])},
        {"constraints": [only.checks_passed(["raw/a", "parent"], "not_null")]},
        {"constraints": [only.checks_passed()]},
        {"constraints": [only.checks_passed("parent", "no_nulls")]},
    ],
)
def test_what_is_there_is_accepted(fields: dict[str, Any]) -> None:
    """Also the runs of other locations, which this one cannot know."""
    load(Schedule(**{**GOOD, **fields}))


def test_dagster_fails_an_unpartitioned_run_of_a_partitioned_child() -> None:
    """The reason for the refusal above: when this no longer fails, the refusal can go."""
    repository = dg.Definitions(assets=ASSETS).get_repository_def()
    job = repository.get_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        outcomes = {}
        for asset in (parent, whole, grandchild, child):
            ran = job.execute_in_process(
                instance=instance, asset_selection=[asset.key], raise_on_error=False
            )
            outcomes[asset.key.to_user_string()] = ran.success
    assert outcomes == {"parent": True, "whole": True, "grandchild": True, "child": False}


def test_a_name_is_used_once() -> None:
    """Both places are named."""
    twice = [Schedule(**{**GOOD, "name": name}) for name in ("a", "b", "a")]
    with pytest.raises(InvalidDefinition) as refusal:
        Arctic(schedules=twice)
    found = [(p.field, p.value, p.expected) for p in refusal.value.problems]
    expected = "a name used once"
    assert found == [
        ("schedules[0].name", "a", expected),
        ("schedules[2].name", "a", expected),
    ]


def test_an_interval_is_positive() -> None:
    """A dispatcher that never rests would be all the daemon does."""
    with pytest.raises(InvalidDefinition) as refusal:
        Arctic(schedules=[], interval_seconds=0)
    (problem,) = refusal.value.problems
    assert (problem.field, problem.value, problem.expected) == ("interval_seconds", 0, "at least 1")


def test_a_text_is_not_true() -> None:
    """That of an environment variable would deploy what it says not to."""
    for name in ("update_schedules", "schedule_assets"):
        given: dict[str, Any] = {name: "false"}
        with pytest.raises(InvalidDefinition, match=f"{name}: got 'false', expected True or False"):
            Arctic(**given)


def test_loading_a_location_touches_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file, no connection, with a database that does not exist."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection while definitions were loaded")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", "postgresql://127.0.0.1:1/nowhere")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(sqlite3, "connect", refuse)
    here = Path(__file__).with_name("lake_of_tests.py")
    names = runpy.run_path(str(here))
    dg.Definitions.validate_loadable(names["defs"])
    assert list(tmp_path.iterdir()) == []


def test_tables_whose_names_make_no_op_have_no_asset() -> None:
    """Nor has the second of two that would have one op: the location is loaded all the same."""
    tables = ["nyc.a-b", "nyc.a_b", "nyc.d e", "nyc.käse", "nyc.50%", "nyc.f"]
    location = Arctic(compaction=Compaction(tables=tables)).definitions()
    dg.Definitions.validate_loadable(location)
    keys = location.get_repository_def().asset_graph.get_all_asset_keys()
    compacted = {key.path[-1] for key in keys if "compaction" in key.path}
    assert compacted == {"a-b", "f"}


def test_all_parts_come_by_one_way() -> None:
    """Schedules, tasks, consumers and compaction; none of their names collide. Their sensors are
    none that could be adopted or imported."""

    @dg.asset
    def fed() -> None: ...

    task = fresh_parents({"fed": None})(dg.asset(name="fed_child")(lambda: None))
    arctic = Arctic(
        schedules=[Schedule(name="s", target="work", trigger=on.partitions("raw/a"))],
        freshness=Freshness(tasks=[task]),
        consumers=[consumer_sensor(PartitionConsumer("raw/a", name="copy"), target=work)],
        compaction=Compaction(tables=["nyc.*"]),
    )
    defs = dg.Definitions.merge(
        dg.Definitions(assets=[*ASSETS, fed], jobs=[work]), arctic.definitions()
    )
    dg.Definitions.validate_loadable(defs)
    sensors = {sensor.name for sensor in defs.get_repository_def().sensor_defs}
    assert sensors == {"arctic_dispatcher", "arctic_tasks", "arctic_compaction", "copy"}
    assert drafts_of(defs.get_repository_def(), datetime(2026, 3, 2, tzinfo=UTC)) == []


def test_a_part_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(InvalidDefinition) as refused:
        Arctic(freshness=["delays.json"], consumers=[work], compaction="nyc.*")  # type: ignore[arg-type,list-item]
    assert [(problem.field, problem.expected) for problem in refused.value.problems] == [
        ("freshness", "Freshness(...)"),
        ("compaction", "Compaction(...)"),
        ("consumers[0]", "a sensor of consumer_sensor(...)"),
    ]


def test_a_selection_with_an_asset_that_no_run_makes_is_refused() -> None:
    """A dashboard, say, that is declared only to be seen in the lineage."""
    dashboard = dg.AssetSpec("dashboard", deps=["whole"])
    selected = dg.AssetSelection.assets("whole").downstream()
    merged = dg.Definitions.merge(
        dg.Definitions(assets=[whole, dashboard, dg.AssetSpec("raw/a")], jobs=[work]),
        Arctic(schedules=[Schedule(**{**GOOD, "target": selected})]).definitions(),
    )
    with pytest.raises((InvalidDefinition, dg.DagsterInvalidDefinitionError)) as refusal:
        dg.Definitions.validate_loadable(merged)
    (problem,) = problems(refusal.value)
    assert (problem.field, problem.value) == ("Schedule(s).target.assets", "dashboard")
    assert problem.expected == "an asset to run: no function makes it"


def test_targets_and_configuration_are_taken_as_dagster_takes_them() -> None:
    """A definition of several assets, and a ``RunConfig``."""

    @dg.multi_asset(specs=[dg.AssetSpec("second"), dg.AssetSpec("first")])
    def several() -> Iterator[dg.MaterializeResult[None]]:
        yield from ()

    class Settings(dg.Config):
        rows: int

    config = dg.RunConfig(ops={"several": Settings(rows=3)})
    schedule = Schedule(**{**GOOD, "target": several, "run_config": config})
    assert schedule.target.assets == ("first", "second")
    assert schedule.run_config["ops"] == {"several": {"config": {"rows": 3}}}
    assert Schedule(**{**GOOD, "target": [whole, several]}).target.assets == (
        "whole", "first", "second"
    )  # fmt: skip
