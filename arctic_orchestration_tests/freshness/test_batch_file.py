"""Batches as files: what they say, and dozens of bad ones, each refused by its path."""

import json
import re
from copy import deepcopy
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.freshness.batch_file import (
    Batch,
    BatchTask,
    batch_schema,
    load_batch,
    parse_batch,
)
from arctic_orchestration.freshness.criteria import Parent, TaskSpec

#: every field, each different from its default
FULL: dict[str, Any] = {
    "$schema": "batch.schema.json",
    "name": "delays",
    "description": "What is late",
    "timezone": "America/New_York",
    "partitionsStart": "2013-01-01",
    "concurrency": 2,
    "retries": 1,
    "retryDelay": "5m",
    "recheck": "1m",
    "patience": "1h30m",
    "tags": {"team": "ops"},
    "tasks": [
        {
            "name": "reports/worst_routes",
            "description": "The routes that are latest",
            "sql": "select origin, dest from routes where flight_date <= :partition",
            "reads": {"routes": "nyc.delays_by_route"},
            "table": "nyc.worst_routes",
            "partitionColumn": "known_on",
            "dependencies": ["flights"],
            "dependenciesWithMeta": {"delays_by_route": {"freshnessCriteriaInHours": 24}},
            "freshnessCriteriaInHours": 12.5,
            "retries": 3,
            "retryDelay": "10s",
            "skip": "the source is being mended",
            "tags": {"size": "small"},
        },
        {"name": "tell", "kind": "job", "python": "my_lake.reports:tell", "skip": True},
    ],
}


def changed(path: str, value: object) -> dict[str, Any]:
    """The full batch with another value at a place, or without that place (``...``)."""
    made = deepcopy(FULL)
    steps = [int(step) if step.isdecimal() else step for step in path.replace("[", ".[").split(".")]
    steps = [int(str(s)[1:-1]) if str(s).startswith("[") else s for s in steps]
    place: Any = made
    for step in steps[:-1]:
        place = place[step]
    if value is ...:
        del place[steps[-1]]
    else:
        place[steps[-1]] = value
    return made


def refusal(form: object) -> InvalidDefinition:
    with pytest.raises(InvalidDefinition) as refused:
        parse_batch(form)
    return refused.value


def test_a_batch_says_what_its_tasks_are() -> None:
    """Every field arrives where it is used; a task without retries has those of its batch."""
    batch = parse_batch(FULL)
    assert batch.partitions_start == date(2013, 1, 1)
    assert batch.tasks[0].reads == {"routes": "nyc.delays_by_route"}
    assert batch.tasks[0].partition_column == "known_on"
    shared = {
        "batch": "delays",
        "timezone": "America/New_York",
        "concurrency": 2,
        "recheck": timedelta(minutes=1),
        "patience": timedelta(minutes=90),
    }
    assert batch.specs(timezone="Europe/Berlin") == (
        TaskSpec(
            name="reports/worst_routes",
            target="reports/worst_routes",
            freshness_hours=12.5,
            parents=(Parent(name="flights"), Parent(name="delays_by_route", hours=24)),
            retries=3,
            retry_delay=timedelta(seconds=10),
            skip="the source is being mended",
            tags={"team": "ops", "size": "small"},
            **shared,
        ),
        TaskSpec(
            name="tell",
            kind="job",
            target="tell",
            retries=1,
            retry_delay=timedelta(minutes=5),
            skip="by its definition",
            tags={"team": "ops"},
            **shared,
        ),
    )


def test_the_least_that_a_batch_is() -> None:
    """Parents and the task itself: made today, in the zone of the surroundings."""
    batch = parse_batch({"name": "b", "tasks": [{"name": "a", "python": "m:f"}]})
    assert batch.specs() == (TaskSpec(name="a", target="a", batch="b"),)
    assert batch.specs(timezone="Asia/Tokyo")[0].timezone == "Asia/Tokyo"


_REQUIRED = "the field is required"
_META = "tasks[0].dependenciesWithMeta"
_OF_ROUTES = f"{_META}.delays_by_route"

#: Where another value stands (``...``: nothing stands there any more), and what was expected.
#: The last one: where that is reported, if not there.
BAD: list[tuple[str, object, str, str | None]] = [
    ("name", ..., _REQUIRED, None),
    ("name", "", "letters, digits and _", None),
    ("name", "my batch", "letters, digits and _", None),
    ("name", 7, "text", None),
    ("tasks", ..., _REQUIRED, None),
    ("tasks", [], "at least one task", None),
    ("tasks", {"a": {}}, "a list", None),
    ("tasks[1]", "tell", "a mapping", None),
    ("partitions_start", "2013-01-01", "no such field", None),
    ("owner", "me", "no such field", None),
    ("timezone", "Mars/Base", "IANA", None),
    ("timezone", "+02:00", "IANA", None),
    ("partitionsStart", "2013-02-30", "date", None),
    ("partitionsStart", 0, "a day such as 2026-01-01", None),
    ("partitionsStart", 20260101, "a day such as 2026-01-01", None),
    ("partitionsStart", "1767225600", "a day such as 2026-01-01", None),
    ("concurrency", 0, "at least 1", None),
    ("concurrency", 1.5, "a whole number", None),
    ("concurrency", "2", "a whole number", None),
    ("concurrency", True, "a whole number", None),
    ("retries", -1, "at least 0", None),
    ("retries", 101, "at most 100", None),
    ("recheck", 120, "a duration such as", None),
    ("patience", "0s", "longer than 0s", None),
    ("tags", ["ops"], "a mapping", None),
    ("tags.team", 7, "text", None),
    ("tasks[0].name", ..., _REQUIRED, None),
    ("tasks[0].name", "a b", "slashes", None),
    ("tasks[0].name", "a/", "slashes", None),
    ("tasks[0].name", "n" * 201, "at most 200", None),
    ("tasks[1].kind", "op", "'asset' or 'job'", None),
    ("tasks[0].sql", "  ", "not empty", None),
    ("tasks[0].sql", ["select 1"], "text", None),
    ("tasks[0].sql", ..., "either sql or python", "tasks[0]"),
    ("tasks[0].python", "m:f", "either sql or python", "tasks[0]"),
    ("tasks[1].python", "a/b.py", "module:function", None),
    ("tasks[1].python", "m:C.f", "module:function", None),
    ("tasks[1].python", "my_lake", "module:function", None),
    ("tasks[0].reads", ["nyc.x"], "a mapping", None),
    ("tasks[0].reads", {"a.b": "n.t"}, "'a.b' is none", None),
    ("tasks[0].reads.routes", "routes", "namespace", None),
    ("tasks[0].table", ..., "a table for the rows", "tasks[0]"),
    ("tasks[0].table", "nyc.my table", "namespace", None),
    ("tasks[1].table", "n.t", "neither sql nor table", "tasks[1]"),
    ("tasks[0].kind", "job", "neither sql nor table", "tasks[0]"),
    ("tasks[1].name", "a/b", "letters, digits and _", "tasks[1]"),
    ("tasks[1].name", "a-b", "letters, digits and _", "tasks[1]"),
    ("tasks[0].partitionColumn", "as of", "letters", None),
    ("tasks[0].dependencies", "flights", "a list", None),
    ("tasks[0].dependencies[0]", 7, "text", None),
    ("tasks[0].dependencies[0]", "", "not empty", None),
    ("tasks[0].dependencies", ["a", "a"], "a stands there twice", None),
    ("tasks[0].dependencies", ["delays_by_route"], "stands in dependencies too", _META),
    (_META, ["a"], "a mapping", None),
    (_META, {"a": 24}, "a mapping", f"{_META}.a"),
    (_META, {"a": {}}, _REQUIRED, f"{_META}.a.freshnessCriteriaInHours"),
    (_META, {"": {"freshnessCriteriaInHours": 1}}, "1 to 200 characters", None),
    (f"{_OF_ROUTES}.freshnessCriteriaInHours", -3, "more than 0", None),
    (f"{_OF_ROUTES}.days", 1, "no such field", None),
    ("tasks[0].freshnessCriteriaInHours", 0, "more than 0", None),
    ("tasks[0].freshnessCriteriaInHours", "24h", "a number", None),
    ("tasks[0].freshnessCriteriaInHours", 1e9, "at most 876000", None),
    ("tasks[0].freshnessCriteriaInHours", float("inf"), "not infinite", None),
    ("tasks[1].skip", 1, "the reason as text", None),
    ("tasks[1].skip", "", "the reason as text", None),
    ("tasks[1].skip", "false", "the reason as text", None),
    ("tasks[1].name", "reports/worst_routes", "another name: tasks[0] has it", None),
    ("tasks[1].dependencies", ["tell"], "do not need themselves", None),
    ("tasks[0].description", "\0", "no character 0", None),
]
_NAMED = [f"{path}={value!r}"[:80] for path, value, _, _ in BAD]


@pytest.mark.parametrize(("path", "value", "expected", "reported_at"), BAD, ids=_NAMED)
def test_what_no_batch_can_be_is_refused(
    path: str, value: object, expected: str, reported_at: str | None
) -> None:
    """By path, with the value and what was expected."""
    problems = {problem.field: problem for problem in refusal(changed(path, value)).problems}
    assert list(problems) == [reported_at or path] or path == "tasks[1].name"
    assert expected in problems[reported_at or path].expected


def test_each_task_writes_a_table_of_its_own() -> None:
    """Each run replaces the rows of its day, whichever task wrote them."""
    form = deepcopy(FULL)
    form["tasks"].append({**form["tasks"][0], "name": "reports/best_routes"})
    (problem,) = refusal(form).problems
    assert (problem.field, problem.value) == ("tasks[2].table", "nyc.worst_routes")
    assert problem.expected == "another table: tasks[0] writes it"


def test_all_problems_are_reported_at_once() -> None:
    """Four mistakes, four lines; nothing of the batch is made."""
    form = changed("timezone", "Mars")
    form["tasks"][0]["freshnessCriteriaInHours"] = 0
    form["tasks"][1] |= {"name": "reports/worst_routes", "retries": "3"}
    assert [problem.field for problem in refusal(form).problems] == [
        "timezone",
        "tasks[0].freshnessCriteriaInHours",
        "tasks[1].retries",
        "tasks[1].name",
    ]


def test_a_cycle_is_refused_with_its_way_around() -> None:
    """At the field in which its first step stands."""
    form = {
        "name": "b",
        "tasks": [
            {"name": "one", "python": "m:f", "dependencies": ["elsewhere"]},
            {
                "name": "two",
                "python": "m:f",
                "dependenciesWithMeta": {"three": {"freshnessCriteriaInHours": 1}},
            },
            {"name": "three", "python": "m:f", "dependencies": ["one", "two"]},
        ],
    }
    assert str(refusal(form)) == (
        "tasks[1].dependenciesWithMeta: got 'two needs three needs two', "
        "expected tasks that do not need themselves"
    )


@pytest.mark.parametrize("form", [None, 7, "batch", [], [FULL], {}])
def test_what_is_no_mapping_of_fields_is_refused(form: object) -> None:
    """Whatever JSON it is."""
    assert refusal(form).expected in ("a mapping", "a value: the field is required") or "dict" in (
        refusal(form).expected
    )


def test_a_file_is_read(tmp_path: Path) -> None:
    """As it is written, in UTF-8."""
    file = tmp_path / "delays.json"
    file.write_text(json.dumps(changed("description", "Verspätungen"), ensure_ascii=False))
    assert load_batch(file).description == "Verspätungen"
    assert load_batch(str(file)).name == "delays"


@pytest.mark.parametrize(
    ("name", "content", "field", "expected"),
    [
        ("b.yaml", b"name: b", "batch", "ends in .json"),
        ("b.json", None, "batch", "can be read"),
        ("b.json", b"\xff\xfe", "batch", "UTF-8"),
        ("b.json", b'{"name": "b",\n  "tasks": [}', "b.json:2:13", "JSON"),
        ("b.json", b"name: b", "b.json:1:1", "JSON"),
        ("b.json", b'{"name": "a", "name": "b"}', "b.json", "each key once"),
        ("b.json", b"[" * 5000 + b"]" * 5000, "b.json", "levels"),
    ],
)
def test_a_file_that_is_none_is_refused(
    tmp_path: Path, name: str, content: bytes | None, field: str, expected: str
) -> None:
    """By its name, and the line where there is one."""
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        load_batch(file)
    assert refused.value.field == field
    assert expected in refused.value.expected


def test_the_batch_of_the_documentation_is_one() -> None:
    """And what it says of bad ones is what they get."""
    page = Path(__file__).parents[2].joinpath("docs/freshness.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    form = json.loads(example)
    assert len(parse_batch(form).tasks) == 2
    form["tasks"][0]["dependenciesWithMeta"]["flights"]["freshnessCriteriaInHours"] = 0
    assert f"punctuality.json: {refusal(form)}\n" in page
    fields = {field.alias for field in BatchTask.model_fields.values()}
    fields |= {field.alias for field in Batch.model_fields.values()} - {"$schema"}
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_the_schema_for_editors_agrees_with_the_reader() -> None:
    """It takes what is taken, and refuses each bad batch whose mistake one value shows."""
    schema = batch_schema()
    Draft202012Validator.check_schema(schema)
    editor = Draft202012Validator(schema)
    assert editor.is_valid(FULL)
    passed = {
        (path, repr(value)) for path, value, _, _ in BAD if editor.is_valid(changed(path, value))
    }
    # What needs a list of zones, a look at two fields or a regular expression.
    assert {path for path, _ in passed} == {
        "name", "timezone", "partitionsStart", "patience", "tasks[0].name", "tasks[0].sql",
        "tasks[0].python", "tasks[1].python", "tasks[0].reads", "tasks[0].reads.routes",
        "tasks[0].table", "tasks[1].table", "tasks[0].kind", "tasks[1].name",
        "tasks[0].partitionColumn",
        "tasks[0].dependencies", _META, "tasks[1].skip", "tasks[1].dependencies",
        "tasks[0].description",
    }  # fmt: skip
    assert len(passed) < len(BAD) / 2
    described = schema["$defs"]["BatchTask"]["properties"]
    assert all("description" in field for field in described.values())
