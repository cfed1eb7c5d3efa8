"""The policy of a table for people: each property, its value, and its source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from arctic_orchestration.compaction.planning.policy import PREFIX, Policy
from arctic_orchestration.lake.sort_columns import Clustering
from arctic_orchestration.quantities import format_duration, format_size

_TARGET = "write.target-file-size-bytes"
_SHORT = 8


def _text(field: str, value: Any) -> str:
    """Formats a value as the property of a table would have it."""
    if field == "queue":
        return value or "none is named"
    if value is None:
        return "never"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Clustering):
        names = [f"{one.name} desc" if one.descending else one.name for one in value.columns]
        text = ", ".join(names)
        return f"zorder({text})" if value.z_order else text
    return _size(value) if field.endswith("_size") else str(value)


def _size(value: int) -> str:
    """Formats a size exactly if that is short, else rounded."""
    exact = format_size(value)
    return exact if len(exact) <= _SHORT else f"about {value / 1024**2:.1f}MiB"


#: the property without its prefix, and the field of the policy
PROPERTIES = tuple(
    (re.sub("^(minor|major|full)_", r"\1.", field.name).replace("_", "-"), field.name)
    for field in fields(Policy)
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
    for name, field in PROPERTIES:
        source = PREFIX + name if PREFIX + name in properties else None
        if source is None and name == "target-size" and _TARGET in properties:
            source = _TARGET
        value = _text(field, getattr(policy, field))
        lines.append(Line(name=name, value=value, property=source))
    return lines
