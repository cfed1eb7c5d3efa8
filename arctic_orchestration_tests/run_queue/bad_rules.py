"""Rules of the run queue with one thing wrong: where it stands, what was found, what was expected.

A row says what differs from a rule that is right. The path, the value and the expectation are
those of the message, in full.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

REQUIRED = "a value: the field is required"
UNKNOWN = "no such field"
NOT_EMPTY = "text that is not empty"
TEXT, WHOLE, LIST, MAPPING, TRUTH = "text", "a whole number", "a list", "a mapping", "true or false"
KEY = "text as a key"
DURATION = "a duration such as 90s, 5m, 4h, 1d or 1h30m"
ABOVE_0S = "a duration longer than 0s"
MONTH = "a duration of at most 30d"
MILLISECONDS = "a duration in whole milliseconds"
UNQUOTED = "a time of day in quotes: YAML reads 22:00 without them as 1320"
TIME = 'a time of day such as "22:00"'
ZONE = "a time zone of the IANA database, such as Europe/Berlin"
NO_MATCH = 'job, location, asset or tags; all runs are {job: "*"}'
JOB = "a job's name (A-Z a-z 0-9 _), in which * ? [abc] are patterns"
NO_LIMIT = "limit, limit_per_program or both"
STATUS = "'success', 'failure' or 'canceled'"
SHARE = "a number more than 0"
FINITE = "a number that is not infinite"
STORABLE = "text that a database can hold: no character 0, no half of a surrogate pair"
DAY = "'mon', 'tue', 'wed', 'thu', 'fri', 'sat' or 'sun'"
LENGTH = "an end that is not the start; a whole day is 00:00 to 24:00"
NAME = "a name of 1 to 40 of A-Z a-z 0-9 _ -, beginning with a letter or digit"
SECONDS = "a whole number, 1 to 86400"
MISSING = object()


class Bad(NamedTuple):
    """A configuration that is refused, and how: the path is the one below ``config``."""

    config: dict[str, Any]
    path: str
    value: Any
    expected: str


#: a rule of each kind that is right
GOOD: dict[str, dict[str, Any]] = {
    "groups": {"limit": 3, "match": {"job": "load"}},
    "windows": {"start": "22:00", "end": "06:00", "match": {"job": "bill"}},
    "rates": {"limit": 10, "per": "1m", "match": {"job": "load"}},
    "intervals": {"duration": "10m", "match": {"job": "rollup"}},
    "queues": {"level": 2, "share": 4, "match": {"job": "urgent_*"}},
}

#: field, value, expectation; then path below the rule and value, where they differ
_Row = tuple[Any, ...]

_MATCH: list[_Row] = [
    ("match", None, LIST),
    ("match", 5, LIST),
    ("match", True, LIST),
    ("match", "load_*", MAPPING, "match[0]", "load_*"),
    ("match", ["load_*"], MAPPING, "match[0]", "load_*"),
    ("match", {}, NO_MATCH, "match[0]", {}),
    ("match", [{"job": "a"}, {}], NO_MATCH, "match[1]", {}),
    ("match", {"tags": {}}, NO_MATCH, "match[0]", {"tags": {}}),
    ("match", {"job": None}, NO_MATCH, "match[0]", {"job": None}),
    ("match", {"job": ""}, NOT_EMPTY, "match[0].job", ""),
    ("match", {"job": 5}, TEXT, "match[0].job", 5),
    ("match", {"job": True}, TEXT, "match[0].job", True),
    ("match", {"job": ["a", "b"]}, TEXT, "match[0].job", ["a", "b"]),
    ("match", {"job": "a\0"}, STORABLE, "match.job", "a\0"),
    ("match", {"job": "load_.*"}, JOB, "match[0].job", "load_.*"),
    ("match", {"job": "load|bill"}, JOB, "match[0].job", "load|bill"),
    ("match", {"job": "load, bill"}, JOB, "match[0].job", "load, bill"),
    ("match", {"location": ""}, NOT_EMPTY, "match[0].location", ""),
    ("match", {"location": 5}, TEXT, "match[0].location", 5),
    ("match", {"asset": ""}, NOT_EMPTY, "match[0].asset", ""),
    ("match", {"asset": ["marts", "orders"]}, TEXT, "match[0].asset", ["marts", "orders"]),
    ("match", {"assets": "marts/*"}, UNKNOWN, "match[0].assets", "marts/*"),
    ("match", {"Job": "a", "job": "a"}, UNKNOWN, "match[0].Job", "a"),
    ("match", {"tags": "team"}, MAPPING, "match[0].tags", "team"),
    ("match", {"tags": ["team"]}, MAPPING, "match[0].tags", ["team"]),
    ("match", {"tags": {"tier": 1}}, TEXT, "match[0].tags.tier", 1),
    ("match", {"tags": {"tier": True}}, TEXT, "match[0].tags.tier", True),
    ("match", {"tags": {"tier": None}}, TEXT, "match[0].tags.tier", None),
    # YAML reads the key `yes` as a truth.
    ("match", {"tags": {True: "1"}}, KEY, "match[0].tags", True),
]  # fmt: skip

_OF_KIND: dict[str, list[_Row]] = {
    "groups": [
        ("limit", MISSING, NO_LIMIT, "", {"match": {"job": "load"}}),
        ("limit", None, NO_LIMIT, "", {"limit": None, "match": {"job": "load"}}),
        ("limit", -1, "at least 0"),
        ("limit", -(10**30), "at least 0"),
        ("limit", True, WHOLE),
        ("limit", False, WHOLE),
        ("limit", 1.0, WHOLE),
        ("limit", 2.5, WHOLE),
        ("limit", "3", WHOLE),
        ("limit", float("nan"), WHOLE),
        ("limit", [3], WHOLE),
        ("limit", {"env": "LIMIT"}, WHOLE),
        ("limit_per_program", -1, "at least 0"),
        ("limit_per_program", True, WHOLE),
        ("limit_per_program", "1", WHOLE),
        ("limit_per_program", float("inf"), WHOLE),
        ("limits", 3, UNKNOWN),
        ("Limit", 3, UNKNOWN),
        ("per", "1m", UNKNOWN),
        (5, 3, KEY, "[5]", 5),
    ],
    "windows": [
        ("start", MISSING, REQUIRED),
        ("end", MISSING, REQUIRED),
        # 22:00 without quotes is a number of minutes in YAML.
        ("start", 1320, UNQUOTED),
        ("end", 1320, UNQUOTED),
        ("start", None, TIME),
        ("start", True, TIME),
        ("start", "", TIME),
        ("start", "9:00", TIME),
        ("start", "25:00", TIME),
        ("start", "22:60", TIME),
        ("start", "22:00:00", TIME),
        ("start", "10pm", TIME),
        ("start", " 22:00", TIME),
        ("start", "24:00", 'a time from "00:00" to "23:59"'),
        ("end", 6, TIME),
        ("end", "22:00", LENGTH, "",
         {"start": "22:00", "end": "22:00", "match": {"job": "bill"}}),
        ("timezone", "Mars/Olympus", ZONE),
        ("timezone", "", ZONE),
        ("timezone", 2, TEXT),
        ("timezone", None, TEXT),
        ("days", [], "at least one day"),
        ("days", None, LIST),
        ("days", ["monday"], DAY, "days[0]", "monday"),
        ("days", ["mon", 2], DAY, "days[1]", 2),
        ("days", {"mon": True}, LIST),
        ("otherwise", "hold", "start, end, timezone, days and match, but not otherwise", "",
         {**GOOD["windows"], "otherwise": "hold"}),
        ("kind", "window", "start, end, timezone, days and match, but not kind", "",
         {**GOOD["windows"], "kind": "window"}),
        ("begin", "22:00", UNKNOWN),
    ],
    "rates": [
        ("limit", MISSING, REQUIRED),
        ("per", MISSING, REQUIRED),
        ("limit", 0, "at least 1"),
        ("limit", -1, "at least 1"),
        ("limit", True, WHOLE),
        ("limit", None, WHOLE),
        ("limit", "10", WHOLE),
        ("limit", 1.5, WHOLE),
        ("per", 60, DURATION),
        ("per", 0, DURATION),
        ("per", True, DURATION),
        ("per", None, DURATION),
        ("per", "minute", DURATION),
        ("per", "1 m", DURATION),
        ("per", "-1m", DURATION),
        ("per", "1M", DURATION),
        ("per", "0s", ABOVE_0S),
        ("per", "0.5ms", MILLISECONDS),
        ("per", "31d", MONTH),
        ("per", "720h1ms", MONTH),
        ("interval", "1m", UNKNOWN),
    ],
    "intervals": [
        ("duration", MISSING, REQUIRED),
        ("duration", 600, DURATION),
        ("duration", 10.0, DURATION),
        ("duration", False, DURATION),
        ("duration", None, DURATION),
        ("duration", "10", DURATION),
        ("duration", "ten minutes", DURATION),
        ("duration", "0s", ABOVE_0S),
        ("duration", "31d", MONTH),
        ("statuses", [], "at least one status"),
        ("statuses", None, LIST),
        ("statuses", "ended", STATUS, "statuses[0]", "ended"),
        ("statuses", ["success", "started"], STATUS, "statuses[1]", "started"),
        ("statuses", ["SUCCESS"], STATUS, "statuses[0]", "SUCCESS"),
        ("statuses", ["cancelled"], STATUS, "statuses[0]", "cancelled"),
        ("statuses", {"success": True}, STATUS, "statuses[0]", {"success": True}),
        ("status", "success", UNKNOWN),
    ],
    "queues": [
        ("level", True, WHOLE),
        ("level", None, WHOLE),
        ("level", "2", WHOLE),
        ("level", 2.0, WHOLE),
        ("level", 1_000_001, "at most 1000000"),
        ("level", -1_000_001, "at least -1000000"),
        ("level", 10**30, "at most 1000000"),
        ("share", 0, "more than 0"),
        ("share", -0.0, "more than 0"),
        ("share", -1, "more than 0"),
        ("share", 1_000_001, "at most 1000000"),
        ("share", float("nan"), FINITE),
        ("share", float("inf"), FINITE),
        ("share", float("-inf"), FINITE),
        ("share", True, SHARE),
        ("share", "4", SHARE),
        ("share", "40%", SHARE),
        ("share", None, SHARE),
        ("share", [4], SHARE),
        ("paused", "yes", TRUTH),
        ("paused", 1, TRUTH),
        ("paused", None, TRUTH),
        ("limit", 5, UNKNOWN),
        ("priority", 5, UNKNOWN),
    ],
}  # fmt: skip


def _rows() -> Iterator[Bad]:
    for kind, good in GOOD.items():
        for form in (5, True, "nightly", [good], 1.5):
            yield Bad({kind: {"nightly": form}}, f"{kind}.nightly", form, MAPPING)
        for name in ("", " ", "a b", "-a", "_a", "a.b", "a/b", "ä", "x" * 41, "a\n", 5, None, True):
            yield Bad({kind: {name: good}}, kind, name, NAME)
        for given in ("nightly", 5, True, [good]):
            yield Bad({kind: given}, kind, given, "a mapping from names to rules")
        for row in _OF_KIND[kind] + _MATCH:
            field, value, expected = row[:3]
            below, found = row[3:] or (field, None if value is MISSING else value)
            wrong = {key: item for key, item in (good | {field: value}).items()
                     if item is not MISSING}  # fmt: skip
            dot = "" if not below or below.startswith("[") else "."
            path = f"{kind}.nightly{dot}{below}"
            yield Bad({kind: {"nightly": wrong}}, path, found, expected)
    for seconds in (0, -1, 86_401, 10**30, True, False, 1.5, "600", [600], float("nan")):
        yield Bad({"seconds_per_level": seconds}, "seconds_per_level", seconds, SECONDS)


BAD = list(_rows())
