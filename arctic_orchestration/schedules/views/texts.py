"""Writes triggers and constraints on one line, for people and programs."""

from collections.abc import Mapping
from typing import Any


def one_line(form: Mapping[str, Any]) -> str:
    """Returns a trigger or constraint, ``{kind: fields}``, as ``concurrency limit 1, group a``.

    Combined ones list their children in brackets: ``any_of (run job a; run job b)``.
    """
    ((kind, fields),) = form.items()
    return f"{kind} {_fields(fields)}".rstrip()


def _fields(fields: Any) -> str:
    if isinstance(fields, Mapping):
        return ", ".join(
            _value(value) if name == "of" else f"{name} {_value(value)}"
            for name, value in fields.items()
        )
    return _value(fields)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({one_line(value)})" if _is_form(value) else "{" + _fields(value) + "}"
    if isinstance(value, list):
        if value and all(map(_is_form, value)):
            return "(" + "; ".join(map(one_line, value)) + ")"
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _is_form(value: Any) -> bool:
    """Returns whether it has the form of a trigger or constraint: one key with its fields."""
    return (
        isinstance(value, Mapping)
        and len(value) == 1
        and all(isinstance(below, (Mapping, list)) for below in value.values())
    )
