"""What cannot be a schedule is refused, naming the field, the value and what was expected."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml

from arctic_orchestration.constraints import only
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration.triggers import on

GOOD: dict[str, Any] = {
    "name": "s",
    "target": {"job": "rollup"},
    "trigger": {"partitions": {"asset": "raw/a"}},
}
KINDS = "one of cron, partitions, run, any_of"
CRON = "a cron expression of five fields, such as 0 4 * * *"
AT_LEAST = "greater than or equal to 1"

# What stands in the form, the field that is named, the value found, what was expected.
FORMS: list[tuple[dict[str, Any], str, Any, str]] = [
    # triggers
    ({"trigger": {"partition": {"asset": "a"}}}, "s.trigger", {"partition": {"asset": "a"}},
     f"a trigger key, {KINDS}"),
    ({"trigger": {"partitions": {"asset": "a"}, "cron": {"expression": "0 4 * * *"}}}, "s.trigger",
     {"partitions": {"asset": "a"}, "cron": {"expression": "0 4 * * *"}},
     f"exactly one trigger key, {KINDS}"),
    ({"trigger": {}}, "s.trigger", {}, f"exactly one trigger key, {KINDS}"),
    ({"trigger": None}, "s.trigger", None,
     f"a mapping with a trigger key, {KINDS}"),
    ({"trigger": "cron"}, "s.trigger", "cron",
     f"a mapping with a trigger key, {KINDS}"),
    ({"trigger": {"partitions": "raw/a"}}, "s.trigger", {"partitions": "raw/a"},
     "a mapping of the fields of partitions"),
    ({"trigger": {"any_of": []}}, "s.trigger.any_of", [], "at least one trigger"),
    ({"trigger": {"any_of": [{"partitions": {"asset": "a"}}, {"nope": {}}]}},
     "s.trigger.any_of[1]", {"nope": {}}, f"a trigger key, {KINDS}"),
    ({"trigger": {"any_of": [{"partitions": {"asset": "a", "count": -3}}]}},
     "s.trigger.any_of[0].partitions.count", -3, AT_LEAST),
    # partitions
    ({"trigger": {"partitions": {"count": 1}}}, "s.trigger.partitions.asset", None,
     "a value: the field is required"),
    ({"trigger": {"partitions": {"asset": ""}}}, "s.trigger.partitions.asset", "", "at least 1"),
    ({"trigger": {"partitions": {"asset": 5}}}, "s.trigger.partitions.asset", 5, "text"),
    ({"trigger": {"partitions": {"asset": "a", "count": 0}}}, "s.trigger.partitions.count", 0,
     AT_LEAST),
    ({"trigger": {"partitions": {"asset": "a", "count": -1}}}, "s.trigger.partitions.count", -1,
     AT_LEAST),
    ({"trigger": {"partitions": {"asset": "a", "count": True}}}, "s.trigger.partitions.count",
     True, "a whole number"),
    ({"trigger": {"partitions": {"asset": "a", "count": 2.0}}}, "s.trigger.partitions.count", 2.0,
     "a whole number"),
    ({"trigger": {"partitions": {"asset": "a", "count": "3"}}}, "s.trigger.partitions.count", "3",
     "a whole number"),
    ({"trigger": {"partitions": {"asset": "a", "counts": 3}}}, "s.trigger.partitions.counts", 3,
     "no such field"),
    # cron
    ({"trigger": {"cron": {"expression": "0 0 4 * * *"}}}, "s.trigger.cron.expression",
     "0 0 4 * * *", CRON),
    ({"trigger": {"cron": {"expression": "daily"}}}, "s.trigger.cron.expression", "daily", CRON),
    ({"trigger": {"cron": {"expression": 4}}}, "s.trigger.cron.expression", 4, "text"),
    ({"trigger": {"cron": {"expression": "0 0 30 2 *"}}}, "s.trigger.cron.expression",
     "0 0 30 2 *", "a cron expression with ticks"),
    ({"trigger": {"cron": {"expression": "0 4 * * *", "timezone": "Europe/Atlantis"}}},
     "s.trigger.cron.timezone", "Europe/Atlantis",
     "a time zone of the IANA database, such as Europe/Berlin"),
    ({"trigger": {"cron": {"expression": "0 4 * * *", "timezone": "+02:00"}}},
     "s.trigger.cron.timezone", "+02:00", "a time zone of the IANA database"),
    ({"trigger": {"cron": {"expression": "0 4 * * *", "grace": 60}}}, "s.trigger.cron.grace", 60,
     "a duration such as 90s, 5m, 4h, 1d or 1h30m"),
    ({"trigger": {"cron": {"expression": "0 4 * * *", "catch_up": "some"}}},
     "s.trigger.cron.catch_up", "some", "'latest', 'all' or 'none'"),
    ({"trigger": {"cron": {"expression": "0 4 * * *", "catch_up_limit": 0}}},
     "s.trigger.cron.catch_up_limit", 0, AT_LEAST),
    ({"trigger": {"cron": {"expression": "0 4 * * *", "dst": "guess"}}}, "s.trigger.cron.dst",
     "guess", "'dagster', 'first', 'second', 'both' or 'skip'"),
    # run
    ({"trigger": {"run": {}}}, "s.trigger.run", {}, "either job or assets"),
    ({"trigger": {"run": {"job": "a", "assets": ["b"]}}}, "s.trigger.run",
     {"job": "a", "assets": ["b"]}, "either job or assets"),
    ({"trigger": {"run": {"job": ""}}}, "s.trigger.run.job", "", "at least 1"),
    ({"trigger": {"run": {"job": "a", "status": "done"}}}, "s.trigger.run.status[0]", "done",
     "'success', 'failure', 'canceled' or 'started'"),
    ({"trigger": {"run": {"job": "a", "status": []}}}, "s.trigger.run.status", [],
     "at least one status"),
    ({"trigger": {"run": {"job": "a", "count": "many"}}}, "s.trigger.run.count", "many",
     "a whole number"),
    # constraints
    ({"constraints": [{"concurency": {"limit": 1}}]}, "s.constraints[0]",
     {"concurency": {"limit": 1}}, "a constraint key, one of concurrency, delay"),
    ({"constraints": [{"concurrency": {"limit": 1}, "delay": {"duration": "1m"}}]},
     "s.constraints[0]", {"concurrency": {"limit": 1}, "delay": {"duration": "1m"}},
     "exactly one constraint key, one of concurrency, delay"),
    ({"constraints": [{"delay": {"duration": "1m"}}, {"concurrency": {"limit": 0}}]},
     "s.constraints[1].concurrency.limit", 0, AT_LEAST),
    ({"constraints": [{"concurrency": {"limit": True}}]}, "s.constraints[0].concurrency.limit",
     True, "a whole number"),
    ({"constraints": [{"concurrency": {}}]}, "s.constraints[0].concurrency.limit", None,
     "a value: the field is required"),
    ({"constraints": [{"delay": {"duration": 5}}]}, "s.constraints[0].delay.duration", 5,
     "a duration such as 90s"),
    ({"constraints": [{"delay": {"duration": "5 m"}}]}, "s.constraints[0].delay.duration", "5 m",
     "a duration such as 90s"),
    ({"constraints": [{"delay": {"duration": "5m", "otherwise": "wait"}}]},
     "s.constraints[0].delay.otherwise", "wait", "'hold' or 'cancel'"),
    ({"constraints": {"delay": {"duration": "5m"}}}, "s.constraints",
     {"delay": {"duration": "5m"}}, "a list"),
    # target
    ({"target": {"job": "a", "assets": ["b"]}}, "s.target", {"job": "a", "assets": ["b"]},
     "either job or assets, not both"),
    ({"target": {}}, "s.target", {}, "a job, its name, or a selection of assets"),
    ({"target": None}, "s.target", None, "a job, its name, or a selection of assets"),
    ({"target": ["a"]}, "s.target", ["a"], "a job, its name, or a selection of assets"),
    ({"target": {"job": ""}}, "s.target.job", "", "at least 1"),
    ({"target": {"asset": "a"}}, "s.target.asset", "a", "no such field"),
    ({"target": {"assets": "a"}}, "s.target.assets", "a", "a list"),
    # the schedule itself
    ({"name": ""}, "Schedule().name", "", "1 to 100 of A-Z a-z 0-9 _ . -"),
    ({"name": "a b"}, "Schedule(a b).name", "a b", "1 to 100 of A-Z a-z 0-9 _ . -"),
    ({"name": "x" * 101}, f"Schedule({'x' * 101}).name", "x" * 101, "1 to 100"),
    ({"name": 5}, "Schedule.name", 5, "text"),
    ({"priority": "high"}, "s.priority", "high", "a whole number"),
    ({"priority": 1.5}, "s.priority", 1.5, "a whole number"),
    ({"priority": True}, "s.priority", True, "a whole number"),
    ({"enabled": "yes"}, "s.enabled", "yes", "true or false"),
    ({"enabled": 1}, "s.enabled", 1, "true or false"),
    ({"coalesce": "no"}, "s.coalesce", "no", "true or false"),
    ({"timeout": 3600}, "s.timeout", 3600, "a duration such as 90s"),
    ({"timeout": "tomorrow"}, "s.timeout", "tomorrow", "a duration such as 90s"),
    ({"timeout": "99999d"}, "s.timeout", "99999d", "a duration of at most 100 years"),
    ({"on_timeout": "retry"}, "s.on_timeout", "retry", "'discard' or 'launch'"),
    ({"partitions": "all"}, "s.partitions", "all", "'none', 'each' or 'range'"),
    ({"suspend_mode": "nope"}, "s.suspend_mode", "nope", "'drop'"),
    ({"tags": {"arctic/job": "x"}}, "s.tags", {"arctic/job": "x"},
     "no tag that begins with arctic/: it is set by what runs it"),
    ({"tags": {"dagster/partition": "x"}}, "s.tags", {"dagster/partition": "x"},
     "no tag that begins with dagster/partition: it is set by what runs it"),
    ({"tags": {"dagster/run_key": "x"}}, "s.tags", {"dagster/run_key": "x"},
     "no tag that begins with dagster/run_key"),
    ({"tags": {"team": 5}}, "s.tags.team", 5, "text"),
    ({"tags": ["team"]}, "s.tags", ["team"], "a mapping"),
    ({"properties": "blue"}, "s.properties", "blue", "a mapping"),
    ({"run_config": []}, "s.run_config", [], "a mapping"),
    ({"colour": "blue"}, "s.colour", "blue", "no such field"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "field", "value", "expected"), FORMS)
@pytest.mark.parametrize("way", ["python", "form", "yaml"])
def test_a_wrong_field_is_named_with_its_value_and_what_was_expected(
    way: str, wrong: dict[str, Any], field: str, value: Any, expected: str
) -> None:
    """The same refusal in Python, in a loaded form and in a file."""
    form = {**GOOD, **wrong}
    with pytest.raises(InvalidDefinition) as refusal:
        if way == "python":
            Schedule(**form)
        elif way == "form":
            Schedule.parse(form)
        else:
            Schedule.parse(yaml.safe_load(yaml.safe_dump(form)))
    (problem,) = refusal.value.problems
    assert problem.field == (field.replace("s.", "Schedule(s).", 1) if field[:2] == "s." else field)
    assert problem.value == value
    assert expected in problem.expected
    assert str(refusal.value) == (
        f"{problem.field}: got {problem.value!r}, expected {problem.expected}"
    )


@pytest.mark.parametrize("field", ["name", "target", "trigger"])
def test_a_field_that_is_missing_is_named(field: str) -> None:
    """A schedule has a name, a target and a trigger."""
    form = {key: value for key, value in GOOD.items() if key != field}
    with pytest.raises(InvalidDefinition) as refusal:
        Schedule.parse(form)
    (problem,) = refusal.value.problems
    assert problem.field.endswith(f".{field}")
    assert problem.expected == "a value: the field is required"


@pytest.mark.parametrize("form", [None, [], "s", 5, {1: 2}])
def test_what_is_no_mapping_is_no_schedule(form: object) -> None:
    """As a YAML file may have it."""
    with pytest.raises(InvalidDefinition) as refusal:
        Schedule.parse(form, field="schedules[2]")
    problem = refusal.value.problems[0]
    assert (problem.field, problem.value) == ("schedules[2]", form)
    assert problem.expected == "a mapping of fields"


def test_all_that_is_wrong_is_named_at_once() -> None:
    """Under the path in the file, one line each."""
    form = {
        "name": "s",
        "trigger": {"partitions": {"asset": "a", "count": 0}},
        "constraints": [{"concurrency": {"limit": -1}}],
        "timeout": 5,
    }
    with pytest.raises(InvalidDefinition) as refusal:
        Schedule.parse(form, field="schedules[4]")
    assert [problem.field for problem in refusal.value.problems] == [
        "schedules[4].target",
        "schedules[4].trigger.partitions.count",
        "schedules[4].constraints[0].concurrency.limit",
        "schedules[4].timeout",
    ]
    assert len(str(refusal.value).splitlines()) == 4


@pytest.mark.parametrize(
    ("write", "field", "value", "expected"),
    [
        (lambda: on.partitions("a", count=0), "partitions.count", 0, AT_LEAST),
        (lambda: on.partitions("a", count=1.0), "partitions.count", 1.0, "a whole number"),
        (lambda: on.partitions(""), "partitions.asset", "", "at least 1"),
        (lambda: on.cron("nope"), "cron.expression", "nope", CRON),
        (lambda: on.cron("0 4 * * *", timezone="Mars"), "cron.timezone", "Mars", "a time zone"),
        (lambda: on.cron("0 4 * * *", grace=5), "cron.grace", 5, "a duration"),
        (lambda: on.cron("0 4 * * *", grace=timedelta(-1)), "cron.grace", timedelta(-1),
         "a duration that is not negative"),
        (lambda: on.run("a", status="ended"), "run.status[0]", "ended", "'success'"),
        (lambda: on.any_of(), "any_of", (), "at least one trigger"),
        (lambda: on.any_of("cron"), "any_of[0]", "cron",
         f"a mapping with a trigger key, {KINDS}"),
        (lambda: only.concurrency(0), "concurrency.limit", 0, AT_LEAST),
        (lambda: only.concurrency(1, group=""), "concurrency.group", "", "at least 1"),
        (lambda: only.delay(300), "delay.duration", 300, "a duration"),
        (lambda: only.delay("5m", otherwise="drop"), "delay.otherwise", "drop", "'hold'"),
    ],
)  # fmt: skip
def test_the_python_forms_of_triggers_and_constraints_refuse_alike(
    write: Callable[[], object], field: str, value: object, expected: str
) -> None:
    """Where they are written, before a schedule is made of them."""
    with pytest.raises(InvalidDefinition) as refusal:
        write()
    (problem,) = refusal.value.problems
    assert (problem.field, problem.value) == (field, value)
    assert expected in problem.expected


def test_properties_are_what_json_can_hold() -> None:
    """They are stored, and handed to another process."""
    for field in ("properties", "run_config"):
        for wrong in ({"when": timedelta(1)}, {"x": {1, 2}}, {"x": float("nan")}):
            with pytest.raises(InvalidDefinition) as refusal:
                Schedule(**{**GOOD, field: wrong})
            (problem,) = refusal.value.problems
            assert problem.field == f"Schedule(s).{field}"
            assert problem.expected.startswith("values that JSON can hold")
