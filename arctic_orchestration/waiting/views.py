"""What waits, as values: by cause, or a page of it."""

from pydantic import computed_field

from arctic_orchestration.documents import At, Document
from arctic_orchestration.waits import Wait, WaitKind


class Example(Document):
    """One of the oldest waits of a cause."""

    id: str
    name: str
    location: str | None
    since: At
    reason: str


class CauseGroup(Document):
    """All that waits of one kind for one cause."""

    kind: WaitKind
    cause: str
    count: int
    #: of the oldest
    since: At
    examples: tuple[Example, ...]


class Trouble(Document):
    """Why something may wait that is not shown, or everything of a feature waits."""

    room: str
    text: str


class WaitingByCause(Document):
    """Everything that waits, by cause, the oldest cause first."""

    at: At
    groups: tuple[CauseGroup, ...]
    troubles: tuple[Trouble, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        """How many wait."""
        return sum(group.count for group in self.groups)


class WaitPage(Document):
    """Some of what waits, oldest first."""

    at: At
    waits: tuple[Wait, ...]
    troubles: tuple[Trouble, ...]
    #: the cursor of the next page; none: there are no more
    next_after: str | None
