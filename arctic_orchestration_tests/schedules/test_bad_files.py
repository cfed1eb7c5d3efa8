"""Files that cannot be applied: what is said of them, and that nothing changes."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import metadata
from arctic_orchestration_tests.schedules.bad_schedules import BAD, GOOD, form_of
from arctic_orchestration_tests.schedules.expectations import (
    DURATION,
    HOLD,
    MAPPING,
    PARTITIONS,
    STORABLE,
    TEXT,
    TIME,
    TRIGGERS,
    TRUTH,
    UNQUOTED,
    WHOLE,
)
from arctic_orchestration_tests.schedules.simulated import World, at

TOP = "a mapping with the list schedules"


def _refusal(value: float) -> str:
    """Versions of Python differ in what they say."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        return f"values that JSON can hold ({error})"
    raise AssertionError(value)


def _place_of_error(text: str) -> str:
    """Versions of Python differ in where a comma is one too many."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"s.json:{error.lineno}:{error.colno}"
    raise AssertionError(text)


_COMMA, _COMMA_INSIDE = '{"schedules": [],}', '{"schedules": [\n  {"name": "s",}\n]}'
SIZE = "at most 2,000,000 values, 100 levels deep, aliases resolved"
_BEGIN = "name: s, target: {job: r}, trigger: {partitions: {asset: a}}"


def one(more: str) -> str:
    """A file of one schedule in YAML, with more fields."""
    return f"schedules:\n- {{{_BEGIN}, {more}}}\n"


def line(more: str) -> str:
    """The line of that schedule."""
    return one(more).splitlines()[1]


def inside(more: str, part: str, problem: str) -> tuple[str, str, str, str, str]:
    """That file, with something in the line that is no YAML; columns are counted from 1."""
    column = line(more).index(part) + 1
    return "s.yaml", one(more), f"s.yaml:2:{column}", line(more), f"YAML ({problem})"


def _nested(levels: int) -> str:
    return "{any_of: [" * levels + "{partitions: {asset: a}}" + "]}" * levels


def _bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join([*lines, "schedules: *i", ""])


_WINDOW = 'constraints: [{{window: {{start: {}, end: "06:00"}}}}]'

# Name of the file, its text, and the field, value and expectation of the message.
FILES: list[tuple[str, str, str, Any, str]] = [
    # the top of the file
    ("s.yaml", "", "s.yaml", None, TOP),
    ("s.yaml", "# only a comment\n", "s.yaml", None, TOP),
    ("s.yaml", "- a\n", "s.yaml", ["a"], TOP),
    ("s.yaml", "hello", "s.yaml", "hello", TOP),
    ("s.yaml", "name: s\n", "s.yaml", {"name": "s"}, TOP),
    ("s.yaml", "schedules:\n", "schedules", None, "a list of schedules"),
    ("s.yaml", "schedules: {}\n", "schedules", {}, "a list of schedules"),
    ("s.yaml", "schedules: s\n", "schedules", "s", "a list of schedules"),
    ("s.yaml", "schedules: []\nversion: 2\n", "version", 2, "no such field"),
    ("s.yaml", "schedules:\n-\n", "schedules[0]", None, "a mapping of fields"),
    ("s.yaml", "schedules: [[]]\n", "schedules[0]", [], "a mapping of fields"),
    # what is no YAML
    ("s.yaml", "schedules:\n\t- name: s\n", "s.yaml:2:1", "- name: s",
     "YAML (found character that cannot start any token)"),
    ("s.yaml", "schedules: [\n", "s.yaml:2:1", "", "YAML (did not find expected node content)"),
    ("s.yaml", "schedules: *x\n", "s.yaml:1:12", "schedules: *x",
     "YAML (found undefined alias)"),
    ("s.yaml", "schedules: []\n---\nschedules: []\n", "s.yaml:2:1", "---",
     "YAML (but found another document)"),
    ("s.yaml", 'schedules: "\0"', "s.yaml:1", 'schedules: "\0"',
     "YAML without control characters"),
    ("s.yaml", "schedules: []\nschedules: []\n", "s.yaml:2:1", "schedules: []",
     "YAML (the key schedules for the second time)"),
    ("s.yaml", "schedules:\n- name: s\n  name: t\n", "s.yaml:3:3", "name: t",
     "YAML (the key name for the second time)"),
    inside("tags: {a: b, a: c}", "a: c", "the key a for the second time"),
    inside("? [a] : x", "[a]", "found unhashable key"),
    inside("description: !foo x", "!foo", "could not determine a constructor for the tag '!foo'"),
    inside("description: !!python/name:os.system x", "!!",
           "could not determine a constructor for the tag "
           "'tag:yaml.org,2002:python/name:os.system'"),
    inside("priority: !!int abc", "!!", "not a value of !!int"),
    inside("priority: !!int 1:30", "!!", "not a value of !!int"),
    inside("timeout: !!float 1" + ":1" * 200, "!!", "not a value of !!float"),
    inside("enabled: !!bool maybe", "!!", "not a value of !!bool"),
    inside("description: !!timestamp x", "!!", "not a value of !!timestamp"),
    inside("priority: " + "9" * 5000, "999", "not a value of !!int"),
    inside("<<: 5", "5", "expected a mapping or list of mappings for merging, but found scalar"),
    # what is too large or has no end
    ("s.yaml", _bomb(), "s.yaml", "more", SIZE),
    ("s.yaml", "schedules: &a [*a]\n", "s.yaml", "more", SIZE),
    ("s.yaml", "schedules:\n- &a {name: s, trigger: *a}\n", "s.yaml", "more", SIZE),
    ("s.yaml", f"schedules:\n- {{name: s, target: r, trigger: {_nested(3000)}}}\n", "s.yaml",
     "more", SIZE),
    # what plain YAML 1.1 takes for something else, and what is written as something else
    ("s.yaml", one("enabled: on"), "schedules[0].enabled", "on", TRUTH),
    ("s.yaml", one("enabled: yes"), "schedules[0].enabled", "yes", TRUTH),
    ("s.yaml", one("coalesce: no"), "schedules[0].coalesce", "no", TRUTH),
    ("s.yaml", one("enabled: 1"), "schedules[0].enabled", 1, TRUTH),
    ("s.yaml", one(_WINDOW.format("1320")), "schedules[0].constraints[0].window.start", 1320,
     UNQUOTED),
    ("s.yaml", one(_WINDOW.format("22")), "schedules[0].constraints[0].window.start", 22, TIME),
    ("s.yaml", one(_WINDOW.format("22:00:00")), "schedules[0].constraints[0].window.start",
     "22:00:00", TIME),
    ("s.yaml", one(_WINDOW.format("22.5")), "schedules[0].constraints[0].window.start", 22.5,
     TIME),
    ("s.yaml", one("priority: 010"), "schedules[0].priority", "010", WHOLE),
    ("s.yaml", one("priority: 0x10"), "schedules[0].priority", "0x10", WHOLE),
    ("s.yaml", one("priority: 1_000"), "schedules[0].priority", "1_000", WHOLE),
    ("s.yaml", one("priority: 1.0"), "schedules[0].priority", 1.0, WHOLE),
    ("s.yaml", one("priority: '5'"), "schedules[0].priority", "5", WHOLE),
    ("s.yaml", one("timeout: 90"), "schedules[0].timeout", 90, DURATION),
    ("s.yaml", one("timeout: 1:30"), "schedules[0].timeout", "1:30", DURATION),
    ("s.yaml", one("timeout: "), "schedules[0].timeout", None, DURATION),
    ("s.yaml", one("description: 5"), "schedules[0].description", 5, TEXT),
    ("s.yaml", one("description: true"), "schedules[0].description", True, TEXT),
    ("s.yaml", one("description: null"), "schedules[0].description", None, TEXT),
    ("s.yaml", one("description: !!binary aGk="), "schedules[0].description", b"hi", TEXT),
    ("s.yaml", one('description: "a\\0b"'), "schedules[0].description", "a\0b", STORABLE),
    ("s.yaml", one("tags: {on: 5}"), "schedules[0].tags.on", 5, TEXT),
    ("s.yaml", one("tags: {5: on}"), "schedules[0].tags", 5, "text as a key"),
    ("s.yaml", one("tags: "), "schedules[0].tags", None, MAPPING),
    ("s.yaml", one("tags: !!set {a, b}"), "schedules[0].tags", {"a", "b"}, "a list"),
    ("s.yaml", one("properties: [a: 1]"), "schedules[0].properties", [{"a": 1}], MAPPING),
    ("s.yaml", one("properties: {5: a}"), "schedules[0].properties", 5, "text as a key"),
    ("s.yaml", one("properties: {x: .inf}"), "schedules[0].properties", {"x": float("inf")},
     _refusal(float("inf"))),
    ("s.yaml", one("properties: {x: 1e999}"), "schedules[0].properties", {"x": float("inf")},
     _refusal(float("inf"))),
    ("s.yaml", one("constraints: [{delay: {duration: 5m, otherwise: no}}]"),
     "schedules[0].constraints[0].delay.otherwise", "no", HOLD),
    ("s.yaml", one("constraints: [delay: 5m]"), "schedules[0].constraints[0]", {"delay": "5m"},
     "a mapping of the fields of delay: otherwise, duration"),
    ("s.yaml", "schedules:\n- name: s\n  target: r\n  trigger:\n    partitions:\n",
     "schedules[0].trigger", {"partitions": None}, PARTITIONS),
    ("s.yaml", "schedules:\n- name: s\n  target: r\n  trigger:\n  - partitions: {asset: a}\n",
     "schedules[0].trigger", [{"partitions": {"asset": "a"}}],
     f"a mapping with a trigger key, {TRIGGERS}"),
    ("s.yaml", "schedules:\n- name: s\n  target: r\n  trigger: partitions\n",
     "schedules[0].trigger", "partitions", f"a mapping with a trigger key, {TRIGGERS}"),
    # two of one name
    ("s.yaml", f"schedules:\n- {{{_BEGIN}}}\n- {{{_BEGIN}}}\n", "schedules[1].name", "s",
     "another name: schedules[0] has it"),
    # JSON
    ("s.json", "", "s.json:1:1", "", "JSON"),
    ("s.json", "[]", "s.json", [], TOP),
    ("s.json", '"x"', "s.json", "x", TOP),
    ("s.json", "schedules: []", "s.json:1:1", "schedules: []", "JSON"),
    ("s.json", _COMMA, _place_of_error(_COMMA), '{"schedules": [],}', "JSON"),
    ("s.json", "{'schedules': []}", "s.json:1:2", "{'schedules': []}", "JSON"),
    ("s.json", _COMMA_INSIDE, _place_of_error(_COMMA_INSIDE), '{"name": "s",}', "JSON"),
    ("s.json", '{"schedules": []} // end', "s.json:1:19", '{"schedules": []} // end', "JSON"),
    ("s.json", '{"schedules": [], "schedules": []}', "s.json", "schedules",
     "each key once in a mapping"),
    ("s.json", '{"schedules": [{"name": "s", "name": "t"}]}', "s.json", "name",
     "each key once in a mapping"),
    ("s.json", '{"schedules": ' + "9" * 5000 + "}", "s.json", "...",
     "JSON (Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; "
     "use sys.set_int_max_str_digits() to increase the limit)"),
    ("s.json", "[" * 100_000 + "]" * 100_000, "s.json", "...", "at most 100 levels"),
    ("s.json", json.dumps({"schedules": [{**GOOD, "properties": {"x": float("nan")}}]}),
     "schedules[0].properties", {"x": float("nan")}, _refusal(float("nan"))),
    ("s.json", json.dumps({"schedules": [{**GOOD, "priority": float("inf")}]}),
     "schedules[0].priority", float("inf"), WHOLE),
    ("s.json", json.dumps({"schedules": [{**GOOD, "description": "\ud800"}]}),
     "schedules[0].description", "\ud800", STORABLE),
    ("s.json", json.dumps({"schedules": [{**GOOD, "timeout": 5}]}), "schedules[0].timeout", 5,
     DURATION),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "field", "value", "expected"),
    FILES,
    ids=[f"{name}-{text!r:.40}" for name, text, *_ in FILES],
)
def test_what_is_wrong_in_a_file_is_named(
    name: str, text: str, field: str, value: Any, expected: str
) -> None:
    """By its place in the file where it cannot be read at all, else by its field."""
    with pytest.raises(InvalidInput) as refusal:
        read_schedules(text, name=name)
    problem = refusal.value
    assert len(getattr(problem, "problems", (problem,))) == 1
    assert (problem.field, problem.expected) == (field, expected)
    assert type(problem.value) is type(value)
    assert repr(problem.value) == repr(value)


@pytest.mark.parametrize(
    "text",
    [
        one('constraints: [{window: {start: 22:00, end: 06:00}}], description: "22:00"'),
        one("description: 2026-01-01"),
        one("description: on"),
        one("properties: {norway: no, time: 12:30:45, octal: 010, hex: 0x1f, sum: 1_000}"),
        f"\ufeffschedules:\r\n- {{{_BEGIN}}}\r\n",
        f"schedules:\n- &a {{{_BEGIN}}}\n- {{<<: *a, name: t}}\n",
        "x: &t {a: b}\nschedules: []\n".replace("x: &t {a: b}\n", ""),
        json.dumps({"schedules": [GOOD]}),
        "{schedules: [{" + _BEGIN + "}]}",
    ],
)
def test_what_people_mean_is_what_is_read(text: str) -> None:
    """A time is no number, Norway is no falsehood, and anchors are for reuse."""
    for schedule in read_schedules(text, name="s.yaml"):
        again = read_schedules(json.dumps({"schedules": [schedule.to_form()]}), name="s.json")
        assert again == [schedule]
        if schedule.constraints:
            form = schedule.constraints[0].to_form()
            assert form == {"window": {"start": "22:00", "end": "06:00"}}
        if schedule.properties:
            assert schedule.properties == {
                "norway": "no", "time": "12:30:45", "octal": "010", "hex": "0x1f", "sum": "1_000"
            }  # fmt: skip


def rows(world: World) -> dict[str, list[str]]:
    """All rows of the state database."""
    with world.database.begin() as tx:
        return {
            table.name: sorted(repr(tuple(row)) for row in tx.execute(sa.select(table)))
            for table in metadata.sorted_tables
        }


def apply(world: World, text: str, name: str) -> None:
    """What ``arctic schedules apply`` does with the text of a file."""
    wanted = read_schedules(text, name=name)
    with world.database.begin() as tx:
        location = locked(tx, "default", "here")
        control.apply(tx, ScheduleStore(), location, wanted, at(60))


def test_a_file_that_is_refused_changes_nothing(
    world: Callable[[Sequence[Schedule]], World],
) -> None:
    """Nor do the schedules beside the wrong one that are new, changed or right as they are."""
    kept = Schedule(name="kept", target="rollup", trigger=on.partitions("a", count=2), enabled=True)
    changed = Schedule(name="changed", target="rollup", trigger=on.cron("@daily"), enabled=True)
    made = world([kept, changed])
    made.feed.arrive("a", "1")
    made.tick(1)
    before = rows(made)
    assert len(before["arctic_schedules"]) == 2
    assert len(before["arctic_schedule_keys"]) >= 1
    assert len(before["arctic_timers"]) == 1
    assert len(before["arctic_jobs"]) == 1

    beside = [
        kept.to_form(),
        {**changed.to_form(), "priority": 5},
        {**GOOD, "name": "new"},
    ]
    refused = 0
    for name, text, *_ in FILES:
        with pytest.raises(InvalidInput):
            apply(made, text, name)
        refused += 1
    for bad in BAD:
        document = {"schedules": [*beside, form_of(bad)]}
        with pytest.raises(InvalidInput) as refusal:
            apply(made, json.dumps(document), "s.json")
        assert refusal.value.field == f"schedules[3].{bad.field}"
        refused += 1
    assert refused > 300
    assert rows(made) == before

    # The others alone are applied: it was the wrong one that kept them out.
    apply(made, yaml.safe_dump({"schedules": beside}), "s.yaml")
    after = rows(made)
    assert after != before
    assert len(after["arctic_schedules"]) == 3
