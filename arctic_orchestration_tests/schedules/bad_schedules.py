"""Schedules with one thing wrong: where it stands, what was found, what was expected.

A row says what differs from a schedule that is right. The path, the value and the expectation
are those of the message, in full.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from arctic_orchestration_tests.schedules.bad_triggers import BAD_TRIGGERS
from arctic_orchestration_tests.schedules.expectations import (
    CONSTRAINTS,
    DURATION,
    HOLD,
    HUNDRED_YEARS,
    LIST,
    LONG,
    MAPPING,
    MISSING,
    NOT_EMPTY,
    NUMBER,
    PARTITIONS,
    READING,
    REQUIRED,
    SHORT,
    STORABLE,
    TEXT,
    TIME,
    TRIGGERS,
    TRUTH,
    UNKNOWN,
    UNQUOTED,
    WHOLE,
    ZONE,
    Row,
)

GOOD: dict[str, Any] = {
    "name": "s",
    "target": {"job": "rollup"},
    "trigger": {"partitions": {"asset": "raw/a"}},
}


class Bad(NamedTuple):
    """A schedule that is refused, and how."""

    wrong: dict[str, Any]
    field: str
    value: Any
    expected: str
    #: whether the JSON Schema refuses it, too: what is wrong can be seen from the look of it
    seen: bool = True


#: For each constraint: what is right, then rows of what is wrong
_CONSTRAINTS: dict[str, tuple[dict[str, Any], list[Row]]] = {
    "concurrency": (
        {"limit": 1},
        [
            ("limit", MISSING, REQUIRED),
            ("limit", 0, "at least 1"),
            ("limit", True, WHOLE),
            ("limit", "1", WHOLE),
            ("limit", 1.5, WHOLE),
            ("limit", None, WHOLE),
            ("group", "", NOT_EMPTY),
            ("group", LONG, SHORT, READING),
            ("group", 5, TEXT),
            ("otherwise", "wait", HOLD),
            ("otherwise", None, HOLD),
            ("max", 1, UNKNOWN),
        ],
    ),
    "rate": (
        {"limit": 1, "per": "1h"},
        [
            ("limit", 0, "at least 1"),
            ("limit", -5, "at least 1"),
            ("per", MISSING, REQUIRED),
            ("per", 60, DURATION),
            ("per", "0s", "a duration longer than 0s", READING),
            ("per", "31d", "a duration of at most 30d", READING),
            ("per", "hour", DURATION),
            ("group", "", NOT_EMPTY),
            ("group", LONG, SHORT, READING),
            ("otherwise", "discard", HOLD),
        ],
    ),
    "window": (
        {"start": "22:00", "end": "06:00"},
        [
            ("start", MISSING, REQUIRED),
            ("end", MISSING, REQUIRED),
            ("start", 1320, UNQUOTED),
            ("start", "22", TIME),
            ("start", "22:60", TIME),
            ("start", "25:00", TIME),
            ("start", "9:00", TIME),
            ("start", "22:00:00", TIME),
            ("start", "10pm", TIME),
            ("start", None, TIME),
            ("start", "24:00", 'a time from "00:00" to "23:59"', READING),
            ("end", 6, TIME),
            ("end", "22:00", "an end that is not the start; a whole day is 00:00 to 24:00", READING,
             "", {"start": "22:00", "end": "22:00"}),
            ("timezone", "Mars/Olympus", ZONE, READING),
            ("timezone", "localtime", ZONE, READING),
            ("timezone", 2, TEXT),
            ("days", [], "at least one day", READING),
            ("days", ["monday"], _days := (
                "'mon', 'tue', 'wed', 'thu', 'fri', 'sat' or 'sun'"), "days[0]", "monday"),
            ("days", ["mon", 2], _days, "days[1]", 2),
            ("days", "weekdays", _days, "days[0]", "weekdays"),
            ("days", None, LIST),
            ("otherwise", "no", HOLD),
        ],
    ),
    "delay": (
        {"duration": "5m"},
        [
            ("duration", MISSING, REQUIRED),
            ("duration", 5, DURATION),
            ("duration", "5", DURATION),
            ("duration", "5 m", DURATION),
            ("duration", "5M", DURATION),
            ("duration", "-5m", DURATION),
            ("duration", "1e3s", DURATION),
            ("duration", "٥m", DURATION),
            ("otherwise", "wait", HOLD),
        ],
    ),
    "minimum_interval": (
        {"duration": "5m"},
        [
            ("duration", MISSING, REQUIRED),
            ("duration", 300.0, DURATION),
            ("statuses", [], "at least one status", READING),
            ("statuses", ["started"], "'success', 'failure' or 'canceled'", "statuses[0]",
             "started"),
            ("statuses", {"success": True}, LIST),
            ("status", "success", UNKNOWN),
        ],
    ),
    "load": (
        {"below": 0.8},
        [
            ("below", MISSING, REQUIRED),
            ("below", 0, "more than 0"),
            ("below", -0.1, "more than 0"),
            ("below", 80, "at most 1"),
            ("below", "80%", NUMBER),
            ("below", True, NUMBER),
            ("below", None, NUMBER),
            ("below", float("nan"), "a number that is not infinite", READING),
            ("below", float("inf"), "a number that is not infinite"),
            ("probe", "disk", "'runs', 'cpu', 'memory' or 'spark'"),
        ],
    ),
    "fresh": (
        {"parents": {"raw/a": 24}},
        [
            ("parents", MISSING, REQUIRED),
            ("parents", {}, "at least one asset or job, each with its hours", READING),
            ("parents", ["raw/a"], MAPPING),
            ("parents", {"raw/a": 0}, "more than 0", "parents.raw/a", 0),
            ("parents", {"raw/a": -1}, "more than 0", "parents.raw/a", -1),
            ("parents", {"raw/a": "24h"}, NUMBER, "parents.raw/a", "24h"),
            ("parents", {"raw/a": 1e9}, "at most 876000", "parents.raw/a", 1e9),
            ("recheck", "0s", "a duration longer than 0s", READING),
            ("recheck", 120, DURATION),
        ],
    ),
    "idle": (
        {"assets": ["raw/a"]},
        [
            ("assets", [5], TEXT, "assets[0]", 5),
            ("assets", None, LIST),
            ("jobs", "", NOT_EMPTY, "jobs[0]", ""),
            ("assets", LONG, SHORT, READING, "assets[0]", LONG),
            ("jobs", {"a": 1}, LIST),
            ("otherwise", "wait", HOLD),
        ],
    ),
    "checks_passed": (
        {"assets": ["raw/a"]},
        [
            ("assets", [5], TEXT, "assets[0]", 5),
            ("assets", [""], NOT_EMPTY, "assets[0]", ""),
            ("assets", None, LIST),
            ("checks", 5, LIST),
            ("checks", "", NOT_EMPTY, "checks[0]", ""),
            ("recheck", "0s", "a duration longer than 0s", READING),
            ("otherwise", "drop", HOLD),
            ("status", "passed", UNKNOWN),
        ],
    ),
}  # fmt: skip

_SCHEDULE: list[Row] = [
    ("target", MISSING, REQUIRED),
    ("target", {}, _target := "a job, its name, or a selection of assets"),
    ("target", None, _target),
    ("target", ["a"], _target),
    ("target", 5, _target),
    ("target", {"job": "a", "assets": ["b"]}, "either job or assets, not both"),
    ("target", "", NOT_EMPTY, "target.job", ""),
    ("target", {"job": ""}, NOT_EMPTY, "target.job", ""),
    ("target", LONG, SHORT, READING, "target.job", LONG),
    ("target", {"assets": ["a", LONG]}, SHORT, READING, "target.assets[1]", LONG),
    ("target", {"job": 5}, TEXT, "target.job", 5),
    ("target", {"asset": "a"}, UNKNOWN, "target.asset", "a"),
    ("target", {"assets": "a"}, LIST, "target.assets", "a"),
    ("target", {"assets": [None]}, TEXT, "target.assets[0]", None),
    ("trigger", MISSING, REQUIRED),
    ("trigger", None, f"a mapping with a trigger key, {TRIGGERS}"),
    ("trigger", "cron", f"a mapping with a trigger key, {TRIGGERS}"),
    ("trigger", [{"partitions": {"asset": "a"}}], f"a mapping with a trigger key, {TRIGGERS}"),
    ("trigger", {}, f"exactly one trigger key, {TRIGGERS}"),
    ("trigger", {"partition": {"asset": "a"}}, f"a trigger key, {TRIGGERS}"),
    ("trigger", {"concurrency": {"limit": 1}}, f"a trigger key, {TRIGGERS}"),
    ("trigger", {"partitions": {"asset": "a"}, "cron": {"expression": "0 4 * * *"}},
     f"exactly one trigger key, {TRIGGERS}"),
    ("trigger", {"partitions": "raw/a"}, PARTITIONS),
    ("trigger", {"partitions": None}, PARTITIONS),
    ("trigger", {"partitions": ["raw/a"]}, PARTITIONS),
    ("trigger", {"partitions": {"asset": "a", "kind": "cron"}}, PARTITIONS),
    ("trigger", {"run": {}}, "a job, or assets", READING, "trigger.run", {}),
    ("trigger", {"all_of": [{"partitions": {"asset": "a"}}]}, "at least two triggers", READING,
     "trigger.all_of", [{"partitions": {"asset": "a"}}]),
    ("trigger", {"any_of": "cron"}, "a mapping of the fields of any_of: of"),
    ("constraints", {"delay": {"duration": "5m"}}, LIST),
    ("constraints", None, LIST),
    ("constraints", "none", LIST),
    ("constraints", [None], f"a mapping with a constraint key, {CONSTRAINTS}",
     "constraints[0]", None),
    ("constraints", [{"concurency": {"limit": 1}}], f"a constraint key, {CONSTRAINTS}",
     "constraints[0]", {"concurency": {"limit": 1}}),
    ("constraints", [{"partitions": {"asset": "a"}}], f"a constraint key, {CONSTRAINTS}",
     "constraints[0]", {"partitions": {"asset": "a"}}),
    ("constraints", [{"concurrency": {"limit": 1}, "delay": {"duration": "1m"}}],
     f"exactly one constraint key, {CONSTRAINTS}",
     "constraints[0]", {"concurrency": {"limit": 1}, "delay": {"duration": "1m"}}),
    ("constraints", [{"delay": {"duration": "1m"}}, {"concurrency": {"limit": 0}}], "at least 1",
     "constraints[1].concurrency.limit", 0),
    ("constraints", [{"concurrency": 1}],
     "a mapping of the fields of concurrency: otherwise, limit, group",
     "constraints[0]", {"concurrency": 1}),
    ("description", None, TEXT),
    ("description", 5, TEXT),
    ("priority", "high", WHOLE),
    ("priority", 1.5, WHOLE),
    ("priority", True, WHOLE),
    ("priority", 1_000_001, "at most 1000000"),
    ("priority", -(10**30), "at least -1000000"),
    ("enabled", "yes", TRUTH),
    ("enabled", 1, TRUTH),
    ("enabled", None, TRUTH),
    ("coalesce", "no", TRUTH),
    ("timeout", 3600, DURATION),
    ("timeout", None, DURATION),
    ("timeout", "tomorrow", DURATION),
    ("timeout", "99999d", HUNDRED_YEARS, READING),
    ("timeout", {"days": 1}, DURATION),
    ("on_timeout", "retry", "'discard' or 'launch'"),
    ("partitions", "all", "'none', 'each' or 'range'"),
    ("partitions", 1, "'none', 'each' or 'range'"),
    ("suspend_mode", "nope", "'drop', 'drain', 'backlog' or 'collect'"),
    ("suspend_mode", ["drop"], "'drop', 'drain', 'backlog' or 'collect'"),
    ("tags", {"arctic/job": "x"}, "no tag that begins with arctic/: it is set by what runs it",
     READING),
    ("tags", {"dagster/run_key": "x"},
     "no tag that begins with dagster/run_key: it is set by what runs it", READING),
    ("tags", {"team": 5}, TEXT, "tags.team", 5),
    ("tags", {"team": None}, TEXT, "tags.team", None),
    ("tags", ["team"], MAPPING),
    ("tags", {"team": "\0"}, STORABLE, READING, "tags.team", "\0"),
    ("properties", "blue", MAPPING),
    ("properties", None, MAPPING),
    ("run_config", [], MAPPING),
    ("colour", "blue", UNKNOWN),
    ("schedule", {}, UNKNOWN),
    ("given", 1, UNKNOWN),
]  # fmt: skip


def _rows(good: dict[str, Any], rows: list[Row], at: str, wrap: Any) -> Iterator[Bad]:
    for name, value, expected, *more in rows:
        seen = not (more and more[0] is READING)
        path, found = more[-2:] if len(more) > 1 else (name, None if value is MISSING else value)
        body = {key: item for key, item in {**good, name: value}.items() if item is not MISSING}
        separator = "" if not path or not at or path.startswith("[") else "."
        yield Bad(wrap(body), f"{at}{separator}{path}", found, expected, seen)


BAD: list[Bad] = [
    *(
        bad
        for kind, (good, rows) in BAD_TRIGGERS.items()
        for bad in _rows(
            good, rows, f"trigger.{kind}", lambda body, kind=kind: {"trigger": {kind: body}}
        )
    ),
    *(
        bad
        for kind, (good, rows) in _CONSTRAINTS.items()
        for bad in _rows(
            good,
            rows,
            f"constraints[0].{kind}",
            lambda body, kind=kind: {"constraints": [{kind: body}]},
        )
    ),
    *(bad for bad in _rows({}, _SCHEDULE, "", dict)),
]


def form_of(bad: Bad) -> dict[str, Any]:
    """The whole schedule, which is right but for one thing."""
    form = {**GOOD, **bad.wrong}
    if bad.expected == REQUIRED and bad.field in GOOD:
        del form[bad.field]
    return form
