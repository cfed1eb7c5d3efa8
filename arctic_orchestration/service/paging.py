"""Cursors: where the next page of a list begins, as text that clients do not read."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.escaping import is_storable

Limit = Annotated[int, Query(ge=1, le=1_000, description="At most so many.")]
Cursor = Annotated[str | None, Query(max_length=2_000, description="next_cursor of a page.")]
_Item = TypeVar("_Item")


def cursor(*values: str | int) -> str:
    """Returns the cursor that :func:`values` reads."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def page(
    read: Sequence[_Item], limit: int, place: Callable[[_Item], Iterable[str | int]]
) -> tuple[Sequence[_Item], str | None]:
    """Returns the items of a page, of which one more was read, and the cursor of the next page."""
    shown = read[:limit]
    return shown, cursor(*place(shown[-1])) if len(read) > limit else None


def values(text: str | None, *kinds: type) -> list[Any] | None:
    """Returns the values in a cursor, or None without one.

    Errors:
        InvalidInput: it is no cursor of a list with values of these kinds.
    """
    if text is None:
        return None
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
        read = json.loads(raw)
        if isinstance(read, list) and [type(value) for value in read] == list(kinds):
            sound = all(_is_sound(value) for value in read)
            if sound:
                return read
    except (binascii.Error, ValueError, RecursionError):
        pass
    raise InvalidInput("cursor", text, "next_cursor of a page of this list")


def _is_sound(value: str | int) -> bool:
    if isinstance(value, int):
        return abs(value) < 2**63
    return is_storable(value)
