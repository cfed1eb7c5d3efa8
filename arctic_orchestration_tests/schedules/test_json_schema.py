"""The JSON Schema of files of schedules, judged by an independent validator."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from jsonschema import Draft202012Validator
from pydantic import Field

from arctic_orchestration.schedules import constraints, triggers
from arctic_orchestration.schedules.json_schema import schedules_schema
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.yaml_file import load
from arctic_orchestration_tests.schedules.bad_schedules import BAD, GOOD, Bad, form_of
from arctic_orchestration_tests.schedules.strategies import forms

SCHEMA = schedules_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
ACCEPTANCE = Path(__file__).parent.parent / "acceptance"

DESIGN = """
schedules:
- name: hourly_rollup
  description: Three new feeds, or at four in the morning
  target: {job: rollup}                      # or {assets: [hourly_rollup]}
  trigger:                                   # exactly one key; any_of and all_of nest
    any_of:
    - partitions: {asset: raw/flights, count: 3}
    - cron: {expression: "0 4 * * *", timezone: America/New_York}
  constraints:
  - window: {start: "22:00", end: "06:00", timezone: America/New_York}
  - concurrency: {limit: 1}
  - minimum_interval: {duration: 5m}
  timeout: 1d
  on_timeout: discard                        # or launch
  suspend_mode: drop                         # or drain, backlog, collect
  priority: 0
  coalesce: true                             # false: a job for each firing
  partitions: none                           # or each (a run for each partition), range
  properties: {}                             # handed to the run, with the events
  tags: {team: ops}
  run_config: {}
  enabled: true
"""


def complaints(form: object) -> list[str]:
    """What the validator says of a file with one schedule."""
    return [
        f"{'/'.join(str(step) for step in error.absolute_path)}: {error.message}"
        for error in VALIDATOR.iter_errors({"schedules": [form]})
    ]


def test_it_is_a_valid_schema_of_its_dialect() -> None:
    """Draft 2020-12, which editors know; each reference leads somewhere."""
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)
    references = _references(SCHEMA)
    assert references
    assert references <= {f"#/$defs/{name}" for name in SCHEMA["$defs"]}


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if "$ref" in node else set()
        return own.union(*(_references(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(_references(value) for value in node))
    return set()


def test_it_has_every_trigger_constraint_and_field() -> None:
    """Made from what is registered; editors offer just these."""
    definitions = SCHEMA["$defs"]
    assert set(definitions["Trigger"]["properties"]) == set(triggers.KINDS)
    assert set(definitions["Constraint"]["properties"]) == set(constraints.KINDS)
    assert set(definitions["Schedule"]["properties"]) == set(Schedule.model_fields)
    assert "kind" not in str(definitions)


def test_it_accepts_the_example_of_the_design() -> None:
    """Which uses each field of a schedule."""
    assert list(VALIDATOR.iter_errors(load(DESIGN, name="design.yaml"))) == []
    assert set(yaml.safe_load(DESIGN)["schedules"][0]) == set(Schedule.model_fields)


def test_it_accepts_the_files_of_the_acceptance_tests() -> None:
    """Each is read and simulated by a test of its own."""
    files = [*ACCEPTANCE.rglob("*.yaml"), *ACCEPTANCE.rglob("*.yml")]
    read = 0
    for file in files:
        document = load(file.read_text(), name=file.name)
        if isinstance(document, dict) and "schedules" in document:
            assert list(VALIDATOR.iter_errors(document)) == [], file
            read += 1
    assert read or not files


@given(form=forms)
def test_it_accepts_every_schedule_that_can_be_read(form: dict[str, Any]) -> None:
    """As people write it, and as it is written by us."""
    assert complaints(form) == []
    assert complaints(Schedule.stored(form).to_form()) == []


@pytest.mark.parametrize(
    "trigger",
    [
        {"all_of": [GOOD["trigger"], GOOD["trigger"]]},
        {"all_of": {"of": [GOOD["trigger"], {"any_of": [GOOD["trigger"]]}], "within": "1h"}},
        {"any_of": {"of": [GOOD["trigger"]]}},
        {"run": {"job": "a", "status": "failure"}},
        {"run": {"assets": ["a"], "status": ["failure", "canceled"]}},
        {"elapsed": {"duration": "4h", "since": "last_launch"}},
        {"elapsed": {"duration": "4h", "since": {"run": {"job": "a"}}}},
    ],
)
def test_it_accepts_each_way_to_write_a_trigger(trigger: dict[str, Any]) -> None:
    """A list or a mapping, one status or several."""
    Schedule.parse({**GOOD, "trigger": trigger})
    assert complaints({**GOOD, "trigger": trigger}) == []


@pytest.mark.parametrize(
    "bad", [bad for bad in BAD if bad.seen], ids=lambda bad: f"{bad.field}={bad.value!r:.30}"
)
def test_it_refuses_what_looks_wrong(bad: Bad) -> None:
    """Wrong names, nesting, types, enums and limits, as reading the file would."""
    assert complaints(form_of(bad))


@pytest.mark.parametrize(
    "document",
    [None, [], [GOOD], {}, {"schedules": None}, {"schedules": GOOD}, {"schedules": [None]},
     {"schedules": [GOOD], "version": 1}],
)  # fmt: skip
def test_it_refuses_what_is_no_file_of_schedules(document: object) -> None:
    """The list ``schedules`` stands at the top, alone."""
    assert list(VALIDATOR.iter_errors(document))


def test_a_complaint_names_the_place() -> None:
    """An editor underlines the field, not the whole trigger."""
    form = {**GOOD, "trigger": {"any_of": {"of": [{"partitions": {"asset": "a", "count": 0}}]}}}
    (error,) = VALIDATOR.iter_errors({"schedules": [form]})
    assert list(error.absolute_path) == ["schedules", 0, "trigger", "any_of"]
    wrong = {**GOOD, "trigger": {"partitions": {"asset": "a", "count": 0}}}
    assert complaints(wrong) == [
        "schedules/0/trigger/partitions/count: 0 is less than the minimum of 1"
    ]
    unknown = {**GOOD, "trigger": {"partition": {"asset": "a"}}}
    (complaint,) = complaints(unknown)
    assert complaint.startswith("schedules/0/trigger: Additional properties are not allowed")


def test_editors_show_defaults_and_texts() -> None:
    """Defaults as one writes them; texts from docstrings and comments of the fields."""
    definitions = SCHEMA["$defs"]
    schedule = definitions["Schedule"]["properties"]
    assert schedule["timeout"]["default"] == "1d"
    assert schedule["timeout"]["description"] == "how long a job waits, from its first event"
    assert schedule["suspend_mode"]["enum"] == ["drop", "drain", "backlog", "collect"]
    assert definitions["Fresh"]["properties"]["recheck"]["default"] == "2m"
    partitions = definitions["Partitions"]
    assert partitions["description"].startswith(
        "Fires when `count` different partitions of `asset` have arrived since the last job."
    )
    count = {"type": ["integer", "string"], "minimum": 1, "pattern": "^all$", "default": 1}
    assert partitions["properties"]["count"] == count
    for kind in ("Trigger", "Constraint"):
        for reference in definitions[kind]["properties"].values():
            name = reference["$ref"].removeprefix("#/$defs/")
            assert definitions[name]["description"], name


def test_a_trigger_that_is_registered_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema is made from the union, and from nothing else."""

    class Moon(triggers.Leaf):
        """Fires at full moon."""

        kind: Literal["moon"] = "moon"
        #: how many of them
        moons: Annotated[int, Field(ge=1)] = 1

    monkeypatch.setattr(
        "arctic_orchestration.schedules.json_schema.AnyTrigger",
        Annotated[triggers.TriggerUnion | Moon, Field(discriminator="kind")],
    )
    made = schedules_schema()["$defs"]
    assert made["Trigger"]["properties"]["moon"] == {"$ref": "#/$defs/Moon"}
    assert made["Moon"]["description"] == "Fires at full moon."
    assert made["Moon"]["properties"]["moons"]["minimum"] == 1
