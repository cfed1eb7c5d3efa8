"""Finds the events that keep a batch from being stored, by reading smaller batches.

A reader stores a batch in one transaction. When that fails, it is retried with half as many events,
until a single event fails alone. That event is suspected: the next attempt leaves it out and
records it as unreadable in the same transaction. When storing fails without any event, no event is
at fault, and the error is raised.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from arctic_orchestration.event_log.event import Event

_LETTERS = 1_000


@dataclass(kw_only=True)
class Narrowing:
    """The number of events to read, and the events to leave out.

    Attributes:
        most: the number to read while nothing fails.
        limit: the number to read next.
    """

    most: int
    limit: int = field(init=False)
    #: by id: the subject of the event, and the error it caused
    _suspects: dict[int, tuple[str, str]] = field(default_factory=dict, init=False)
    #: the events of the current attempt at storing; None: there is none
    _attempt: Sequence[Event] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.limit = self.most

    def begin(self, events: Sequence[Event]) -> tuple[Sequence[Event], dict[int, tuple[str, str]]]:
        """Records the start of storing; returns the events to store and those to set aside."""
        aside = {}
        if self._suspects:
            aside = {e.storage_id: self._suspects[e.storage_id] for e in events
                     if e.storage_id in self._suspects}  # fmt: skip
            events = [event for event in events if event.storage_id not in aside]
        self._attempt = events
        return events, aside

    def stored(self) -> None:
        """Records that the events were stored."""
        self._attempt = None
        if self._suspects:
            # The faulty event was found: later ones are probably good.
            self.limit = min(self.limit * 2, self.most)

    def cap(self, most: int) -> None:
        """Reads at most so many events from now on: more are too many for one transaction."""
        self.most = self.limit = most
        self._attempt = None

    def narrow(self, error: Exception) -> bool:
        """Makes the next attempt smaller; returns false if no event is at fault for the error."""
        events, self._attempt = self._attempt, None
        if not events or isinstance(error, MemoryError):
            return False
        if len(events) > 1:
            self.limit = max(1, min(self.limit, len(events)) // 2)
            return True
        (event,) = events
        about = " ".join(filter(None, (event.kind.value, event.subject, event.partition)))
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self._suspects[event.storage_id] = about[:_LETTERS], reason[:_LETTERS]
        return True
