"""What a message says of a value that cannot be used: enough to find it, and no more."""

from typing import Any

import pytest

from arctic_orchestration.consumers.specification import ConsumerSpec
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on

#: a structure that people write, and that fills a screen
MANY: dict[str, Any] = {
    "any_of": [{"partitions": {"asset": f"raw/flights_{n}"}} for n in range(40)]
}
OUTLINE = "{'any_of': [{'partitions': {...}}, {'partitions': {...}}, {'partitions': {...}}, ...]}"
ONE_KEY = (
    "expected exactly one trigger key, one of cron, partitions, partition_end, data, quiet, run, "
    "elapsed, check, freshness, requests, all_of, any_of, then"
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"trigger": {**MANY, "within": "1h"}},
            f"s.trigger: got {OUTLINE[:-1]}, 'within': '1h'}}, {ONE_KEY}",
        ),
        (
            {"trigger": {"any_of": [MANY, {"partitons": {"asset": "a"}}]}},
            "s.trigger.any_of[1]: got {'partitons': {'asset': 'a'}}, expected a trigger key, one "
            "of cron, partitions, partition_end, data, quiet, run, elapsed, check, freshness, "
            "requests, all_of, any_of, then",
        ),
        (
            {"constraints": [{"concurrency": {"limit": MANY}}]},
            f"s.constraints[0].concurrency.limit: got {OUTLINE}, expected a whole number",
        ),
        (
            {"timeout": MANY},
            f"s.timeout: got {OUTLINE}, expected a duration such as 90s, 5m, 4h, 1d or 1h30m",
        ),
    ],
)
def test_a_long_structure_is_shown_by_its_outline(fields: dict[str, Any], message: str) -> None:
    """A line: the field, what it has at the top, what was expected. The value is there in full."""
    form = {"name": "x", "target": "j", "trigger": {"partitions": {"asset": "a"}}, **fields}
    with pytest.raises(InvalidInput) as refusal:
        Schedule.parse(form, field="s")
    assert str(refusal.value) == message


@pytest.mark.parametrize("value", [MANY, [MANY] * 40, (MANY,) * 40])
def test_an_outline_takes_no_more_than_a_few_lines(value: object) -> None:
    """Of a consumer, too, all fields of which are wrong; what was found is kept as it was."""
    fields = ("start", "until", "working_set", "lease", "attempts", "retry_after", "held_for")
    with pytest.raises(InvalidInput) as refusal:
        ConsumerSpec.parse({"name": "x", "asset": "a", **dict.fromkeys(fields, value)}, field="c")
    lines = str(refusal.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"c.{field}" for field in fields]
    assert max(map(len, lines)) < 300
    assert refusal.value.value is value


def test_a_specification_is_shown_as_it_is_written() -> None:
    """Without what was left out; as a trigger, a constraint is as good as any other mistake."""
    with pytest.raises(InvalidInput) as refusal:
        Schedule(name="x", target="j", trigger=only.concurrency(3))
    assert str(refusal.value).startswith(
        "Schedule(x).trigger: got {'concurrency': {'limit': 3}}, expected a mapping"
    )
    with pytest.raises(InvalidInput, match=r"elapsed\.since: got {'cron': {'expression': '@daily'"):
        on.elapsed("1h", since=on.cron("@daily"))  # type: ignore[arg-type]


def test_a_short_structure_is_shown_in_full() -> None:
    """However deep it is."""
    deep = {"a": {"b": {"c": {"d": [1, 2, 3, 4, 5]}}}}
    assert str(InvalidInput("field", deep, "less")) == f"field: got {deep}, expected less"
