"""What messages about bad schedules say was expected."""

from typing import Any

from arctic_orchestration.schedules import constraints, triggers

TRIGGERS = f"one of {', '.join(triggers.KINDS)}"
CONSTRAINTS = f"one of {', '.join(constraints.KINDS)}"
PARTITIONS = (
    "a mapping of the fields of partitions: asset, count, where, complete, distinct, per, mapping, "
    "checks, changed, late, metadata, backfill"
)
REQUIRED = "a value: the field is required"
UNKNOWN = "no such field"
NOT_EMPTY = "text that is not empty"
TEXT, WHOLE, NUMBER, LIST = "text", "a whole number", "a number", "a list"
MAPPING, TRUTH = "a mapping", "true or false"
DURATION = "a duration such as 90s, 5m, 4h, 1d or 1h30m"
ABOVE_0S = "a duration longer than 0s"
HUNDRED_YEARS = "a duration of at most 100 years"
MILLISECONDS = "a duration in whole milliseconds"
SIZE = "a size such as 512B, 500KB, 1.5GB or 64MiB"
ZONE = "a time zone of the IANA database, such as Europe/Berlin"
CRON = "a cron expression of five fields, such as 0 4 * * *"
TIME = 'a time of day such as "22:00"'
UNQUOTED = "a time of day in quotes: YAML reads 22:00 without them as 1320"
STATUS = "'success', 'failure', 'canceled' or 'started'"
HOLD = "'hold' or 'cancel'"
EVENTS = "last_launch, or a trigger: one of partitions, data, run"
STORABLE = "text that a database can hold: no character 0, no half of a surrogate pair"
SHORT = "text of at most 1,000 bytes in UTF-8"
#: 1,001 bytes in fewer letters
LONG = "ä" * 500 + "x"
LATE = "'rerun', 'ignore', or 'collect:' and a duration, as collect:1h"
#: the look of it is right; only reading tells
READING = False
MISSING = object()

#: field, value, expectation (path and value when they differ)
Row = tuple[Any, ...]
