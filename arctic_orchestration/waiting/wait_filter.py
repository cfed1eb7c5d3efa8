"""Which waits are wanted, and where a page of them begins."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.escaping import is_storable
from arctic_orchestration.quantities import in_calendar
from arctic_orchestration.waits import WaitKind, WaitRows


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitFilter:
    """A filter of waits; what is empty filters nothing."""

    kind: WaitKind | None = None
    #: a code location; what belongs to none is left out
    location: str | None = None
    #: a cause, or its part before the first colon
    cause: str | None = None
    #: a part of the name, the id or the stored reason, in any case
    text: str | None = None

    @classmethod
    def parse(
        cls,
        *,
        kind: str | None = None,
        location: str | None = None,
        cause: str | None = None,
        text: str | None = None,
    ) -> "WaitFilter":
        """Returns the filter of a person's words.

        Errors:
            InvalidInput: there is no such kind, or no database can have such a text.
        """
        kinds = [one.value for one in WaitKind]
        if kind is not None and kind not in kinds:
            raise InvalidInput("kind", kind, f"one of {', '.join(kinds)}")
        for field, value in (("location", location), ("cause", cause), ("text", text)):
            if value is not None and not is_storable(value):
                raise InvalidInput(field, value, "text in UTF-8 without the character 0")
        return cls(
            kind=WaitKind(kind) if kind else None,
            location=location or None,
            cause=cause or None,
            text=text or None,
        )

    def conditions(self, rows: WaitRows) -> list[sa.ColumnElement[bool]] | None:
        """Returns the conditions for some rows; None: it admits none of them."""
        if self.kind not in (None, rows.kind):
            return None
        found = list(rows.where)
        if self.location is not None:
            if rows.location is None:
                return None
            in_location = rows.in_location or rows.location.__eq__
            found.append(in_location(self.location))
        if self.cause is not None:
            below = rows.cause.startswith(f"{self.cause}:", autoescape=True)
            found.append((rows.cause == self.cause) | below)
        if self.text is not None:
            texts = (rows.name, rows.id, rows.reason)
            found.append(sa.or_(*(text.icontains(self.text, autoescape=True) for text in texts)))
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """The last wait of a page: the next one begins after it.

    Waits are sorted by their moment, then by their place among the rows of all features, then by
    their keys, which each database compares in its own way.
    """

    since: datetime
    place: int
    keys: tuple[Any, ...]

    def to_text(self) -> str:
        """Returns it for people and programs, who hand it back unchanged."""
        document = json.dumps([self.since.isoformat(), self.place, *self.keys])
        return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Reads what :meth:`to_text` has written.

        Errors:
            InvalidInput: it is something else.
        """
        try:
            padded = text + "=" * (-len(text) % 4)
            since, place, *keys = json.loads(base64.urlsafe_b64decode(padded))
            at = datetime.fromisoformat(since)
            if at.tzinfo is None or not in_calendar(at) or type(place) is not int or not keys:
                raise ValueError
            if not all(_is_key(key) for key in keys):
                raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise InvalidInput("after", text, "the cursor of an earlier page") from None
        return cls(since=at, place=place, keys=tuple(keys))

    def follows(self, rows: WaitRows, place: int) -> sa.ColumnElement[bool]:
        """Returns the condition that rows of a place come after it."""
        if place != self.place:
            return rows.since >= self.since if place > self.place else rows.since > self.since
        if len(self.keys) != len(rows.keys):
            raise InvalidInput("after", self.to_text(), "the cursor of an earlier page")
        later = rows.since > self.since
        same = rows.since == self.since
        for column, key in zip(rows.keys, self.keys, strict=True):
            later = later | (same & (column > key))
            same = same & (column == key)
        return later


def _is_key(key: object) -> bool:
    """Returns whether a database can hold a key of a cursor."""
    if isinstance(key, str):
        return is_storable(key)
    return type(key) is int and abs(key) < 2**63
