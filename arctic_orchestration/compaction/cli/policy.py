"""The policy of a table for people: each property, its value, and its source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from arctic_orchestration.compaction.planning.policy import PREFIX, Policy
from arctic_orchestration.lake.sort_columns import Clustering
from arctic_orchestration.quantities import format_duration, format_size

_TARGET = "write.target-file-size-bytes"
_SHORT = 8


def _text(value: Any) -> str:
    return str(value)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _queue(value: str | None) -> str:
    return value or "none is named"


def _interval(value: timedelta | None) -> str:
    return "never" if value is None else format_duration(value)


def _number(value: int | None) -> str:
    return "never" if value is None else str(value)


def _sort(value: Clustering | None) -> str:
    if value is None:
        return "never"
    names = [f"{one.name} desc" if one.descending else one.name for one in value.columns]
    text = ", ".join(names)
    return f"zorder({text})" if value.z_order else text


def _size(value: int) -> str:
    """Formats a size exactly if that is short, else rounded."""
    exact = format_size(value)
    return exact if len(exact) <= _SHORT else f"about {value / 1024**2:.1f}MiB"


#: the property without its prefix, the field of the policy, and the format of its value
PROPERTIES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("enabled", "enabled", _truth),
    ("queue", "queue", _queue),
    ("level", "level", _text),
    ("target-size", "target_size", _size),
    ("fragment-size", "fragment_size", _size),
    ("done-size", "done_size", _size),
    ("split-size", "split_size", _size),
    ("minor.min-files", "minor_min_files", _text),
    ("minor.interval", "minor_interval", _interval),
    ("major.min-files", "major_min_files", _text),
    ("major.interval", "major_interval", _interval),
    ("major.delete-files", "major_delete_files", _text),
    ("major.deleted-rows", "major_deleted_rows", _text),
    ("full.interval", "full_interval", _interval),
    ("max-task-size", "max_task_size", _size),
    ("max-files", "max_files", _text),
    ("check-interval", "check_interval", format_duration),
    ("commit-interval", "commit_interval", format_duration),
    ("retry-interval", "retry_interval", format_duration),
    ("attempts", "attempts", _text),
    ("expire-snapshots", "expire_snapshots", _interval),
    ("remove-orphans", "remove_orphans", _interval),
    ("rewrite-manifests", "rewrite_manifests", _number),
    ("sort", "sort", _sort),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One property of a policy."""

    #: without the prefix ``arctic.compaction.``
    name: str
    value: str
    #: the table property that sets it; none: it is the default
    property: str | None


def policy_lines(policy: Policy, properties: Mapping[str, str]) -> list[Line]:
    """Returns all properties, with the effective values."""
    lines = []
    for name, field, write in PROPERTIES:
        source = PREFIX + name if PREFIX + name in properties else None
        if source is None and name == "target-size" and _TARGET in properties:
            source = _TARGET
        value = write(getattr(policy, field))
        lines.append(Line(name=name, value=value, property=source))
    return lines
