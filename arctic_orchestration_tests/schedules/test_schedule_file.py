"""Files of schedules: YAML and JSON, and what is refused with its place."""

import json
from pathlib import Path

import pytest

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_file import read_schedule, read_schedules
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.yaml_file import repeated_key

YAML = """
schedules:
- name: rollup
  target: {job: rollup}
  trigger:
    any_of:
    - partitions: {asset: raw/flights, count: 3}
    - cron: {expression: 0 4 * * *, timezone: America/New_York}
  properties: {at: 22:00, on: no, day: 2026-01-01, number: 007, count: 7, share: 0.5}
"""


def test_yaml_and_json_are_read_alike() -> None:
    """The same schedule in both forms is the same value."""
    (read,) = read_schedules(YAML, name="a.yaml")
    as_json = json.dumps({"schedules": [read.to_form()]})
    assert read_schedules(as_json, name="a.json") == [read]
    assert read_schedules(as_json, name="stdin") == [read]
    partitions = on.partitions("raw/flights", count=3)
    cron = on.cron("0 4 * * *", timezone="America/New_York")
    assert read.trigger == partitions | cron


def test_plain_scalars_mean_what_people_see() -> None:
    """22:00 is no number of base 60, no is not false, a date is text; numbers are numbers."""
    (read,) = read_schedules(YAML, name="a.yaml")
    assert dict(read.properties) == {
        "at": "22:00",
        "on": "no",
        "day": "2026-01-01",
        "number": "007",
        "count": 7,
        "share": 0.5,
    }


def test_anchors_and_merges_share_what_schedules_have_in_common() -> None:
    """YAML's own means against repetition."""
    text = """
schedules:
- &first
  name: first
  target: {job: a}
  trigger: {partitions: {asset: x}}
- <<: *first
  name: second
"""
    first, second = read_schedules(text, name="a.yaml")
    assert second == Schedule(name="second", target=first.target, trigger=first.trigger)


def test_all_problems_of_all_schedules_are_named_at_once() -> None:
    """Each with its path, its value and what was expected."""
    text = """
schedules:
- name: a
  target: {job: a}
  trigger: {cron: {expression: 0 4 * *}}
- name: b
  target: {job: a}
  trigger: {partitions: {asset: x, count: 0}}
  timeout: 5
- name: a
  target: {job: a}
  trigger: {partitions: {asset: x}}
- 7
tables: []
"""
    with pytest.raises(InvalidDefinition) as refused:
        read_schedules(text, name="a.yaml")
    found = [(problem.field, problem.value) for problem in refused.value.problems]
    assert found == [
        ("tables", []),
        ("schedules[0].trigger.cron.expression", "0 4 * *"),
        ("schedules[1].trigger.partitions.count", 0),
        ("schedules[1].timeout", 5),
        ("schedules[2].name", "a"),
        ("schedules[3]", 7),
    ]
    assert "schedules[2].name: got 'a', expected another name: schedules[0] has it" in str(
        refused.value
    )


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("schedules:\n- name: a\n  name: b", "f", "f:3:3: got 'name: b', expected YAML (the key"),
        ("schedules:\n- {a: b", "f.yaml", "f.yaml:"),
        ("a: b\nc: d: e\n", "f", "f:2:5: got 'c: d: e', expected YAML"),
        ("schedules:\n\t- a", "f", "f:2:1: got '- a', expected YAML"),
        ("schedules: []\n---\nb: 1", "f", "f:2:1: got '---', expected YAML"),
        ("schedules:\n- \x07", "f", "f:2: got"),
        ("schedules: !!python/name:os.system", "f", "f:1:12: got"),
        ('{"schedules": [\n}', "f.json", "f.json:2:1: got '}', expected JSON"),
        ('{"schedules": [], "schedules": []}', "f", "f: got 'schedules', expected each key once"),
        ("", "f", "f: got None, expected a mapping with the list schedules"),
        ("- a", "f", "f: got ['a'], expected a mapping with the list schedules"),
        ("schedules:", "f", "schedules: got None, expected a list of schedules"),
        ("schedules: {}", "f", "schedules: got {}, expected a list of schedules"),
        ("schedules: &a [*a]", "f", "f: got 'more', expected at most"),
        ("[" * 100_000, "f.json", "f.json: got"),
        # These ended the process.
        ("{" * 100_000, "f", "f: got 'more', expected at most"),
        ("- " * 100_000, "f", "f: got 'more', expected at most"),
        ("? " * 100_000, "f", "f: got 'more', expected at most"),
        ("[a, " * 100_000, "f", "f: got 'more', expected at most"),
    ],
)
def test_a_text_that_holds_no_schedules_is_refused_with_its_line(
    text: str, name: str, message: str
) -> None:
    """One message, that names the file and, where there is one, the line and column."""
    with pytest.raises(InvalidInput) as refused:
        read_schedules(text, name=name)
    assert str(refused.value).startswith(message)


def test_aliases_of_aliases_are_refused_before_they_fill_the_memory() -> None:
    """Nine lines of YAML that would be a thousand million values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(InvalidInput, match="at most 2,000,000 values"):
        read_schedules("\n".join([*lines, "schedules: []"]), name="f")


@pytest.mark.parametrize("long", ['"{}"', "{{? {} : 1}}"], ids=["value", "key"])
def test_a_long_text_is_not_repeated_by_aliases(long: str) -> None:
    """A hundred kilobytes, three hundred times; a file that is as long itself is read."""
    text = long.format("y" * 100_000)
    with pytest.raises(InvalidInput, match="at most 20,000,000 characters"):
        read_schedules(f"a: &a {text}\nb: [{'*a, ' * 300}]\nschedules: []", name="f")
    large = f"schedules: []\n# {'y' * 30_000_000}\na: &a {text}\nb: [{'*a, ' * 300}]"
    with pytest.raises(InvalidDefinition, match="a: got"):
        read_schedules(large, name="f")


def test_a_key_that_is_there_twice_is_found_among_many() -> None:
    """Each key is compared a few times, and not with all others: that took minutes."""
    compared = 0

    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    pairs = [(Key(f"k{number}"), 1) for number in (*range(2_000), 1_999)]
    assert repeated_key(pairs) == "k1999"
    assert compared < 10_000
    keys = [f'"{key}": 1' for key, _ in pairs]
    with pytest.raises(InvalidInput, match="k1999"):
        read_schedules("{" + ", ".join(keys) + "}", name="f.json")


def test_one_schedule_is_read_by_its_name() -> None:
    """From a list of several, or from its fields alone."""
    alone = "name: b\ntarget: {job: a}\ntrigger: {partitions: {asset: x}}\n"
    listed = "schedules:\n- " + alone.strip().replace("\n", "\n  ")
    listed += "\n- name: c\n  target: {job: a}\n  trigger: {partitions: {asset: x}}"
    assert read_schedule(alone, name="f", schedule="b") == read_schedule(
        listed, name="f", schedule="b"
    )
    with pytest.raises(InvalidInput, match="name: got 'b', expected c: a schedule keeps its name"):
        read_schedule(alone, name="f", schedule="c")
    with pytest.raises(InvalidInput, match=r"schedules: got \['b', 'c'\], expected one with the"):
        read_schedule(listed, name="f", schedule="d")


def test_the_schedules_of_the_documentation_can_be_read() -> None:
    """What people copy from there is accepted as it stands."""
    page = Path(__file__).parents[2] / "docs" / "schedules.md"
    blocks = [part.split("```")[0] for part in page.read_text().split("```yaml\n")[1:]]
    files = [block for block in blocks if block.startswith("schedules:")]
    assert [s.name for file in files for s in read_schedules(file, name="docs")] == [
        "nightly_merge"
    ]
