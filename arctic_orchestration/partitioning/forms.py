"""Partitions definitions as YAML and JSON, both directions.

==========================================  ==================================================
``{daily: {start: 2026-01-01}}``            also ``hourly``, ``weekly``, ``monthly``
``{cron: {expression: …, start: …}}``       any other definition of time windows
``{static: [a, b]}``                        these keys
``{dynamic: files}``                        ``{name: files, keys: [a]}`` with keys to begin with
``{multi: {date: {daily: …}, region: …}}``  two dimensions
==========================================  ==================================================
"""

import itertools
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from arctic_orchestration.dagster_internals import TimestampWithTimezone, later_windows
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.partitioning.form_values import (
    made,
    mapping_at,
    number_at,
    only_key,
    refuse,
    text_at,
    texts_at,
)
from arctic_orchestration.partitioning.key_space import Definition
from arctic_orchestration.partitioning.mapping_forms import form_of_mapping, mapping_of
from arctic_orchestration.zones import known_zone

__all__ = ["definition_of", "dynamic_keys_of", "form_of", "form_of_mapping", "mapping_of"]

Form = dict[str, Any]

_WINDOWS: dict[str, tuple[type[dg.TimeWindowPartitionsDefinition], tuple[str, ...]]] = {
    "hourly": (dg.HourlyPartitionsDefinition, ("minute_offset",)),
    "daily": (dg.DailyPartitionsDefinition, ("minute_offset", "hour_offset")),
    "weekly": (dg.WeeklyPartitionsDefinition, ("minute_offset", "hour_offset", "day_offset")),
    "monthly": (dg.MonthlyPartitionsDefinition, ("minute_offset", "hour_offset", "day_offset")),
}
_COMMON = ("start", "end", "timezone", "format", "end_offset", "exclusions")
_KINDS = (*_WINDOWS, "cron", "static", "dynamic", "multi")
#: Dagster's fields with other names in our forms.
_FORMATS = {"hourly": "%Y-%m-%d-%H:%M"}
_FORMAT = "%Y-%m-%d"
#: One of this many windows must not be excluded.
_FIRST_WINDOWS = 1000


def definition_of(form: object, *, field: str) -> Definition:
    """Creates the partitions definition of a form.

    Errors:
        InvalidDefinition: names the path under ``field``, the value and what was expected.
    """
    kind, body = only_key(form, field, _KINDS)
    field = f"{field}.{kind}"
    if kind == "static":
        return made(field, body, dg.StaticPartitionsDefinition, texts_at(body, field))
    if kind == "dynamic":
        return dg.DynamicPartitionsDefinition(name=_dynamic(body, field)[0])
    if kind == "multi":
        if not isinstance(body, Mapping) or len(body) != 2:
            refuse(field, body, "a mapping of two dimensions to their partitions")
        dimensions = {
            text_at(name, field): definition_of(dimension, field=f"{field}.{name}")
            for name, dimension in body.items()
        }
        return made(field, body, dg.MultiPartitionsDefinition, dimensions)
    return _windows(kind, mapping_at(body, field), field)


def form_of(definition: Definition) -> Form | None:
    """Returns the form for which :func:`definition_of` creates an equal definition; None: none.

    Custom classes have none, and neither have dynamic partitions that a function lists.
    """
    form = _form_of(definition)
    if form is None:
        return None
    try:
        same = definition_of(form, field="") == definition
    except InvalidDefinition:
        return None
    return form if same else None


def dynamic_keys_of(form: object, *, field: str) -> dict[str, tuple[str, ...]]:
    """Returns the keys that a form gives its dynamic partitions, by the name of the definition.

    Errors:
        InvalidDefinition: as :func:`definition_of`.
    """
    kind, body = only_key(form, field, _KINDS)
    if kind == "dynamic":
        name, keys = _dynamic(body, f"{field}.{kind}")
        return {name: keys}
    found: dict[str, tuple[str, ...]] = {}
    if kind == "multi" and isinstance(body, Mapping):
        for name, dimension in body.items():
            found.update(dynamic_keys_of(dimension, field=f"{field}.{kind}.{name}"))
    return found


def _windows(kind: str, body: Mapping[Any, Any], field: str) -> Definition:
    own = ("expression",) if kind == "cron" else _WINDOWS[kind][1]
    for name in body:
        if name not in (*_COMMON, *own):
            refuse(f"{field}.{name}", body[name], f"one of {', '.join((*own, *_COMMON))}")
    for name in ("start", *(("expression",) if kind == "cron" else ())):
        if name not in body:
            refuse(f"{field}.{name}", None, "a value: the field is required")
    zone = body.get("timezone", "UTC")
    try:
        zone = known_zone(zone) if isinstance(zone, str) else text_at(zone, f"{field}.timezone")
    except ValueError as error:
        refuse(f"{field}.timezone", zone, str(error))
    pattern = text_at(body.get("format", _FORMATS.get(kind, _FORMAT)), f"{field}.format")
    given: dict[str, Any] = {"timezone": zone, "fmt": pattern}
    for name in ("start", "end"):
        if body.get(name) is not None:
            moment = _moment(body[name], pattern, f"{field}.{name}")
            given[name if kind == "cron" else f"{name}_date"] = moment
    for name in ("end_offset", *own):
        if name in body:
            at = f"{field}.{name}"
            text = name == "expression"
            value = text_at(body[name], at) if text else number_at(body[name], at)
            given["cron_schedule" if text else name] = value
    if "exclusions" in body:
        given["exclusions"] = _exclusions(body["exclusions"], pattern, f"{field}.exclusions")
    make = dg.TimeWindowPartitionsDefinition if kind == "cron" else _WINDOWS[kind][0]
    definition = made(field, dict(body), make, **given)
    if definition.exclusions and _excludes_everything(definition):
        refuse(f"{field}.exclusions", body["exclusions"], "exclusions that leave windows")
    # Dagster checks this when an asset is defined.
    made(field, dict(body), definition.validate_partition_definition)
    return definition


def _excludes_everything(definition: dg.TimeWindowPartitionsDefinition) -> bool:
    """Returns whether all of the first windows are excluded; Dagster would search forever."""
    windows = later_windows(definition, definition.start_timestamp, excluded=True)
    return all(
        definition.is_window_start_excluded(window.start)
        for window in itertools.islice(windows, _FIRST_WINDOWS)
    )


def _form_of(definition: Definition) -> Form | None:
    if type(definition) is dg.StaticPartitionsDefinition:
        return {"static": list(definition.get_partition_keys())}
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return {"dynamic": definition.name} if definition.name is not None else None
    if type(definition) is dg.MultiPartitionsDefinition:
        forms = {each.name: form_of(each.partitions_def) for each in definition.partitions_defs}
        return None if None in forms.values() else {"multi": forms}
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return None
    kinds = {made_by: kind for kind, (made_by, _) in _WINDOWS.items()}
    kinds[dg.TimeWindowPartitionsDefinition] = "cron"
    kind = kinds.get(type(definition))
    if kind is None:
        return None
    body: Form = {"expression": definition.cron_schedule} if kind == "cron" else {}
    body["start"] = _wall(definition.start)
    if definition.end is not None:
        body["end"] = _wall(definition.end)
    if definition.timezone != "UTC":
        body["timezone"] = definition.timezone
    if definition.fmt != _FORMATS.get(kind, _FORMAT):
        body["format"] = definition.fmt
    for name in ("end_offset", *(_WINDOWS[kind][1] if kind != "cron" else ())):
        value = getattr(definition, name)
        if value != (1 if (kind, name) == ("monthly", "day_offset") else 0):
            body[name] = value
    if definition.exclusions:
        body["exclusions"] = [
            _wall(datetime.fromtimestamp(each.timestamp, ZoneInfo(definition.timezone)))
            if isinstance(each, TimestampWithTimezone)
            else each
            for each in definition.exclusions
        ]
    return {kind: body}


def _wall(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    return text.removesuffix("T00:00:00")


def _moment(value: object, pattern: str, field: str) -> datetime:
    """Parses a wall time of the definition's zone, from a date, ISO text or text in its format."""
    if isinstance(value, str):
        value = _read(value, pattern)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001  (a wall time)
    if not isinstance(value, datetime) or value.tzinfo is not None:
        refuse(field, value, "a date, or a wall time of the time zone, such as 2026-01-01T06:00")
    return value


def _read(text: str, pattern: str) -> datetime | str:
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    with suppress(ValueError):
        return datetime.strptime(text, pattern)  # noqa: DTZ007  (a wall time)
    return text


def _exclusions(value: object, pattern: str, field: str) -> list[str | datetime]:
    if not isinstance(value, list):
        refuse(field, value, "a list of cron expressions and wall times")
    return [
        each
        if isinstance(each, str) and len(each.split()) >= 5
        else _moment(each, pattern, f"{field}[{place}]")
        for place, each in enumerate(value)
    ]


def _dynamic(body: object, field: str) -> tuple[str, tuple[str, ...]]:
    if isinstance(body, Mapping):
        for name in body:
            if name not in ("name", "keys"):
                refuse(f"{field}.{name}", body[name], "one of name, keys")
        keys = texts_at(body.get("keys", []), f"{field}.keys")
        return text_at(body.get("name"), f"{field}.name"), tuple(keys)
    return text_at(body, field), ()
