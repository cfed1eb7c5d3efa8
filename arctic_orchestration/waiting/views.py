"""What waits, as values: by cause, or a page of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arctic_orchestration.quantities import iso
from arctic_orchestration.waits import Wait, WaitKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One of the oldest waits of a cause."""

    id: str
    name: str
    location: str | None
    since: datetime
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "id": self.id,
            "name": self.name,
            "location": self.location,
            "since": iso(self.since),
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseGroup:
    """All that waits of one kind for one cause."""

    kind: WaitKind
    cause: str
    count: int
    #: of the oldest
    since: datetime
    examples: tuple[Example, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "kind": self.kind.value,
            "cause": self.cause,
            "count": self.count,
            "since": iso(self.since),
            "examples": [example.to_json() for example in self.examples],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Why something may wait that is not shown, or everything of a feature waits."""

    room: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {"room": self.room, "text": self.text}


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingByCause:
    """Everything that waits, by cause, the oldest cause first."""

    at: datetime
    groups: tuple[CauseGroup, ...]
    troubles: tuple[Trouble, ...]

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(group.count for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "at": iso(self.at),
            "count": self.count,
            "groups": [group.to_json() for group in self.groups],
            "troubles": [trouble.to_json() for trouble in self.troubles],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitPage:
    """Some of what waits, oldest first."""

    at: datetime
    waits: tuple[Wait, ...]
    troubles: tuple[Trouble, ...]
    #: the cursor of the next page; none: there are no more
    next_after: str | None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "at": iso(self.at),
            "waits": [wait.to_json() for wait in self.waits],
            "troubles": [trouble.to_json() for trouble in self.troubles],
            "next_after": self.next_after,
        }
