"""What cannot be a schedule is refused, naming the field, the value and what was expected."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from arctic_orchestration import Arctic
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.bad_schedules import BAD, GOOD, Bad, form_of
from arctic_orchestration_tests.schedules.expectations import (
    CONSTRAINTS,
    DURATION,
    HOLD,
    LIST,
    LONG,
    MAPPING,
    NOT_EMPTY,
    REQUIRED,
    SHORT,
    SIZE,
    STORABLE,
    TEXT,
    TIME,
    TRIGGERS,
    TRUTH,
    WHOLE,
    ZONE,
)


def refused(write: Callable[[], object]) -> InvalidInput:
    """The one problem for which ``write`` is refused; the message is about nothing else."""
    with pytest.raises(InvalidDefinition) as refusal:
        write()
    (problem,) = refusal.value.problems
    assert str(refusal.value) == str(problem)
    return problem


def is_same(value: object, other: object) -> bool:
    """Equal, of one type, and NaN like NaN."""
    return type(value) is type(other) and (value == other or (value != value and other != other))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.field}={bad.value!r:.30}")
def test_a_wrong_field_is_named_with_its_value_and_what_was_expected(bad: Bad) -> None:
    """The same refusal in Python and in a loaded form, and nothing else is complained of."""
    form = form_of(bad)
    in_a_form = refused(lambda: Schedule.parse(form, field="schedules[3]"))
    assert in_a_form.field == f"schedules[3].{bad.field}"
    assert is_same(in_a_form.value, bad.value)
    assert in_a_form.expected == bad.expected
    in_python = refused(lambda: Schedule(**form))
    assert in_python.field == f"Schedule(s).{bad.field}"
    assert is_same(in_python.value, bad.value)
    assert in_python.expected == bad.expected
    message = f"Schedule(s).{bad.field}: got {bad.value!r}, expected {bad.expected}"
    assert str(in_python) == message


def test_the_table_is_long_and_has_every_kind() -> None:
    """Each trigger, constraint and field of a schedule is written wrongly in some way."""
    assert len(BAD) >= 200
    places = {bad.field for bad in BAD}
    kinds = (
        "cron partitions data quiet run elapsed check freshness all_of any_of then "
        "concurrency rate window delay minimum_interval load fresh checks_passed idle"
    )
    for kind in kinds.split():
        assert any(f".{kind}" in place for place in places), kind
    for field in Schedule.model_fields.keys() - {"name"}:
        assert any(place.startswith(field) for place in places), field


@pytest.mark.parametrize(
    ("name", "shown", "expected"),
    [
        ("", "Schedule()", "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        ("a b", "Schedule(a b)", "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        ("1st", "Schedule(1st)", "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        ("s\n", "Schedule(s\n)", "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        ("ñ", "Schedule(ñ)", "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        ("x" * 101, f"Schedule({'x' * 101})",
         "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        (5, "Schedule", TEXT),
        (None, "Schedule", TEXT),
        (True, "Schedule", TEXT),
    ],
)  # fmt: skip
def test_a_name_is_short_and_plain(name: object, shown: str, expected: str) -> None:
    """It stands in tags, tables and addresses."""
    problem = refused(lambda: Schedule(**{**GOOD, "name": name}))
    assert (problem.field, problem.value, problem.expected) == (f"{shown}.name", name, expected)


def test_a_schedule_without_a_name_is_refused() -> None:
    """The name is required, like the target and the trigger."""
    problem = refused(lambda: Schedule(target="job", trigger=on.partitions("a")))
    assert (problem.field, problem.value, problem.expected) == ("Schedule.name", None, REQUIRED)


@pytest.mark.parametrize("form", [None, [], "s", 5, {1: 2}, {None: "x"}])
def test_what_is_no_mapping_is_no_schedule(form: object) -> None:
    """As a YAML file may have it."""
    for field, shown in (("schedules[2]", "schedules[2]"), ("", "(definition)")):
        problem = refused(partial(Schedule.parse, form, field=field))
        assert (problem.field, problem.value) == (shown, form)
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
    assert [(problem.field, problem.value) for problem in refusal.value.problems] == [
        ("schedules[4].target", None),
        ("schedules[4].trigger.partitions.count", 0),
        ("schedules[4].constraints[0].concurrency.limit", -1),
        ("schedules[4].timeout", 5),
    ]
    assert len(str(refusal.value).splitlines()) == 4


def _twice() -> Iterator[str]:
    yield "a"
    yield "b"


def _deep(levels: int) -> dict[str, Any]:
    form: dict[str, Any] = {"partitions": {"asset": "a"}}
    for _ in range(levels):
        form = {"any_of": [form]}
    return form


#: the same for arguments of wrong types
ON: Any = on
ONLY: Any = only

_ITSELF: list[Any] = []
_ITSELF.append({"any_of": _ITSELF})


@pytest.mark.parametrize(
    ("write", "field", "value", "expected"),
    [
        (lambda: ON.partitions("a", count=0), "partitions.count", 0, "at least 1"),
        (lambda: ON.partitions("a", count=1.0), "partitions.count", 1.0, WHOLE),
        (lambda: ON.partitions("a", count=Decimal(1)), "partitions.count", Decimal(1), WHOLE),
        (lambda: ON.partitions(""), "partitions.asset", "", NOT_EMPTY),
        (lambda: ON.partitions(None), "partitions.asset", None, TEXT),
        (lambda: ON.partitions(b"raw/a"), "partitions.asset", b"raw/a", TEXT),
        (lambda: ON.partitions("a\0"), "partitions.asset", "a\0", STORABLE),
        (lambda: ON.cron("nope"), "cron.expression", "nope",
         "a cron expression of five fields, such as 0 4 * * *"),
        (lambda: ON.cron("0 4 * * *", timezone="Mars"), "cron.timezone", "Mars", ZONE),
        (lambda: ON.cron("0 4 * * *", timezone=UTC), "cron.timezone", UTC, TEXT),
        (lambda: ON.cron("0 4 * * *", grace=5), "cron.grace", 5, DURATION),
        (lambda: ON.cron("0 4 * * *", grace=timedelta(-1)), "cron.grace", timedelta(-1),
         "a duration that is not negative"),
        (lambda: ON.data("a", 10**9), "data.size", 10**9, SIZE),
        (lambda: ON.data("a", "1GB", max_wait=3600), "data.max_wait", 3600, DURATION),
        (lambda: ON.quiet("a", timedelta(microseconds=1)), "quiet.duration",
         timedelta(microseconds=1), "a duration in whole milliseconds"),
        (lambda: ON.quiet("a", timedelta.max), "quiet.duration", timedelta.max,
         "a duration of at most 100 years"),
        (lambda: ON.run(), "run", {"job": None, "assets": (), "status": "success", "count": 1,
                                   "location": None, "tags": {}}, "a job, or assets"),
        (lambda: ON.run("a", status="ended"), "run.status[0]", "ended",
         "'success', 'failure', 'canceled' or 'started'"),
        (lambda: ON.run(assets={"a"}), "run.assets", {"a"}, LIST),
        (lambda: ON.run(assets="raw/a"), "run.assets", "raw/a", LIST),
        (lambda: ON.elapsed("4h", since=on.cron("0 4 * * *")), "elapsed.since",
         on.cron("0 4 * * *"), "last_launch, or a trigger: one of partitions, data, run"),
        (lambda: ON.elapsed(datetime(2026, 1, 1, tzinfo=UTC)), "elapsed.duration",
         datetime(2026, 1, 1, tzinfo=UTC), DURATION),
        (lambda: ON.any_of(), "any_of", (), "at least one trigger"),
        (lambda: ON.any_of("cron"), "any_of[0]", "cron",
         f"a mapping with a trigger key, {TRIGGERS}"),
        (lambda: ON.any_of([on.partitions("a")]), "any_of[0]", [on.partitions("a")],
         f"a mapping with a trigger key, {TRIGGERS}"),
        (lambda: ON.any_of(only.concurrency(1)), "any_of[0]", only.concurrency(1),
         f"a mapping with a trigger key, {TRIGGERS}"),
        (lambda: ON.all_of(on.partitions("a")), "all_of", (on.partitions("a"),),
         "at least two triggers"),
        (lambda: ON.all_of(on.partitions("a"), on.partitions("b"), within=5), "all_of.within", 5,
         DURATION),
        (lambda: ONLY.concurrency(0), "concurrency.limit", 0, "at least 1"),
        (lambda: ONLY.concurrency(1, group=""), "concurrency.group", "", NOT_EMPTY),
        (lambda: ONLY.delay(300), "delay.duration", 300, DURATION),
        (lambda: ONLY.delay("5m", otherwise="drop"), "delay.otherwise", "drop", HOLD),
        (lambda: ONLY.rate(1, per="0s"), "rate.per", "0s", "a duration longer than 0s"),
        (lambda: ONLY.window("22:00", 6), "window.end", 6, TIME),
        (lambda: ONLY.window("22:00", "06:00", days={"mon"}), "window.days", {"mon"}, LIST),
        (lambda: ONLY.window("22:00", "06:00", timezone="CEST"), "window.timezone", "CEST", ZONE),
        (lambda: ONLY.minimum_interval("5m", statuses=iter(())), "minimum_interval.statuses",
         None, LIST),
        (lambda: ONLY.load(below=80), "load.below", 80, "at most 1"),
        (lambda: ONLY.fresh(["a"]), "fresh.parents", ["a"], MAPPING),
        (lambda: ONLY.fresh({"a": timedelta(hours=1)}), "fresh.parents.a", timedelta(hours=1),
         "a number"),
    ],
)  # fmt: skip
def test_the_python_forms_of_triggers_and_constraints_refuse_alike(
    write: Callable[[], object], field: str, value: object, expected: str
) -> None:
    """Where they are written, before a schedule is made of them."""
    problem = refused(write)
    assert (problem.field, problem.expected) == (field, expected)
    assert value is None or is_same(problem.value, value)


@pytest.mark.parametrize(
    ("wrong", "field", "expected"),
    [
        # What stands in the place of something else.
        ({"trigger": only.concurrency(1)}, "trigger", f"a mapping with a trigger key, {TRIGGERS}"),
        ({"trigger": on.partitions}, "trigger", f"a mapping with a trigger key, {TRIGGERS}"),
        ({"trigger": Schedule(**GOOD)}, "trigger", f"a mapping with a trigger key, {TRIGGERS}"),
        ({"constraints": [on.partitions("a")]}, "constraints[0]",
         f"a mapping with a constraint key, {CONSTRAINTS}"),
        ({"constraints": only.concurrency(1)}, "constraints", LIST),
        ({"target": on.partitions("a")}, "target", "a job, its name, or a selection of assets"),
        ({"target": Schedule(**GOOD)}, "target", "a job, its name, or a selection of assets"),
        ({"target": timedelta(1)}, "target", "a job, its name, or a selection of assets"),
        # What has no order, or is empty the second time.
        ({"constraints": {only.concurrency(1)}}, "constraints", LIST),
        ({"constraints": (only.concurrency(1) for _ in "x")}, "constraints", LIST),
        ({"target": {"assets": {"a", "b"}}}, "target.assets", LIST),
        ({"target": {"assets": _twice()}}, "target.assets", LIST),
        ({"trigger": {"any_of": frozenset()}}, "trigger.any_of", LIST),
        # What YAML and JSON do not have.
        ({"description": b"text"}, "description", TEXT),
        ({"target": {"assets": [b"a"]}}, "target.assets[0]", TEXT),
        ({"description": date(2026, 1, 1)}, "description", TEXT),
        ({"timeout": timedelta(-1)}, "timeout", "a duration that is not negative"),
        ({"timeout": 5.0}, "timeout", DURATION),
        ({"timeout": date(2026, 1, 1)}, "timeout", DURATION),
        ({"priority": Decimal(1)}, "priority", WHOLE),
        ({"priority": 10**5000}, "priority", "at most 1000000"),
        ({"enabled": None}, "enabled", TRUTH),
        ({"tags": {"a": b"b"}}, "tags.a", TEXT),
        ({"tags": {5: "b"}}, "tags", "text as a key"),
        ({"properties": {5: "b"}}, "properties", "text as a key"),
    ],
)  # fmt: skip
def test_other_objects_of_python_are_not_taken_for_what_they_are_not(
    wrong: dict[str, Any], field: str, expected: str
) -> None:
    """A set would be stored in another order by each process, and deployed again each time."""
    problem = refused(lambda: Schedule(**{**GOOD, **wrong}))
    assert (problem.field, problem.expected) == (f"Schedule(s).{field}", expected)


@pytest.mark.parametrize(
    "trigger", [_deep(41), _deep(5000), {"any_of": _ITSELF}], ids=["42", "5001", "endless"]
)
def test_what_is_too_deep_is_refused_and_nothing_overflows(trigger: dict[str, Any]) -> None:
    """One level of any_of is two of the form: the mapping and the list."""
    problem = refused(lambda: Schedule(**{**GOOD, "trigger": trigger}))
    assert problem.field.startswith("Schedule(s).trigger.any_of[0].any_of[0].any_of")
    assert (problem.value, problem.expected) == ("more", "at most 80 levels")


def test_forty_levels_are_stored_and_read_back() -> None:
    """What may be written also comes back from the database."""
    schedule = Schedule(**{**GOOD, "trigger": _deep(38)})
    assert Schedule.parse(schedule.to_form()) == schedule
    joined: Any = on.partitions("a")
    with pytest.raises(InvalidDefinition, match="at most 80 levels"):
        for _ in range(200):
            joined = on.any_of(joined)


def nested(levels: int) -> dict[str, Any]:
    """A mapping in a mapping in a mapping."""
    outer: dict[str, Any] = {"levels": levels}
    for _ in range(levels - 1):
        outer = {"deeper": outer}
    return outer


@pytest.mark.parametrize("field", ["properties", "run_config"])
def test_properties_are_what_json_can_hold(field: str) -> None:
    """They are stored, and handed to another process."""
    endless: dict[str, Any] = {}
    endless["again"] = endless
    deep = nested(5000)
    for wrong, why in (
        ({"when": timedelta(1)}, "Object of type timedelta is not JSON serializable"),
        ({"x": {1, 2}}, "Object of type set is not JSON serializable"),
        ({"x": b"y"}, "Object of type bytes is not JSON serializable"),
        ({"x": float("nan")}, "Out of range float values are not JSON compliant"),
        ({"x": [float("-inf")]}, "Out of range float values are not JSON compliant"),
        (endless, "Circular reference detected"),
        (deep, "at most 80 levels"),
        (nested(81), "at most 80 levels"),
        ({"x": 10**5000}, "Exceeds the limit"),
    ):
        problem = refused(partial(Schedule, **{**GOOD, field: wrong}))
        assert problem.field == f"Schedule(s).{field}"
        assert problem.expected.startswith(f"values that JSON can hold ({why}")
    assert getattr(Schedule(**{**GOOD, field: nested(80)}), field) == nested(80)


@pytest.mark.parametrize(
    ("arguments", "field", "value", "expected"),
    [
        ({"schedules": [Schedule(**GOOD)] * 2}, "schedules[0].name", "s", "a name used once"),
        ({"schedules": [GOOD]}, "schedules[0]", GOOD, "a Schedule"),
        ({"schedules": ["s"]}, "schedules[0]", "s", "a Schedule"),
        ({"schedules": [None]}, "schedules[0]", None, "a Schedule"),
        ({"schedules": "s"}, "schedules", "s", "a list of schedules"),
        ({"schedules": None}, "schedules", None, "a list of schedules"),
        ({"schedules": Schedule(**GOOD)}, "schedules", Schedule(**GOOD), "a list of schedules"),
        ({"schedules": {"s": GOOD}}, "schedules", {"s": GOOD}, "a list of schedules"),
        ({"schedules": [], "interval_seconds": 0}, "interval_seconds", 0, "at least 1"),
        ({"schedules": [], "interval_seconds": "5"}, "interval_seconds", "5", WHOLE),
        ({"schedules": [], "interval_seconds": 0.5}, "interval_seconds", 0.5, WHOLE),
        ({"schedules": [], "interval_seconds": True}, "interval_seconds", True, WHOLE),
        ({"schedules": [], "location": ""}, "location", "", "the name of a code location"),
        ({"schedules": [], "location": 5}, "location", 5, "the name of a code location"),
        ({"schedules": [], "location": LONG}, "location", LONG, SHORT),
    ],
)  # fmt: skip
def test_what_a_code_location_cannot_declare_is_named(
    arguments: dict[str, Any], field: str, value: object, expected: str
) -> None:
    """When the code location is loaded, not when its first tick comes."""
    with pytest.raises(InvalidDefinition) as refusal:
        Arctic(**arguments)
    problem = refusal.value.problems[0]
    assert (problem.field, problem.value, problem.expected) == (field, value, expected)


def test_a_value_of_any_length_is_shown_by_its_beginning() -> None:
    """A message stays readable, and the value is there in full."""
    problem = refused(lambda: on.partitions("a", count="9" * 100_000))
    assert str(problem) == f"partitions.count: got '{'9' * 996}..., expected a whole number"
    assert problem.value == "9" * 100_000
    unprintable = refused(lambda: on.partitions("a", count=-(10**5000)))
    assert str(unprintable) == (
        "partitions.count: got a int that cannot be shown, expected at least 1"
    )
