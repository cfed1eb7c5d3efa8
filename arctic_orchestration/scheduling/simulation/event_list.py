"""A feed over a list of events in memory; the position is how many were read."""

from dataclasses import dataclass, field

from arctic_orchestration.events.event import Event
from arctic_orchestration.events.feed import Batch, FeedMode, Position


@dataclass(kw_only=True)
class EventList:
    """Events in the order in which they are told."""

    events: list[Event] = field(default_factory=list)
    mode: FeedMode = FeedMode.EXACT
    mode_reason: str = "a list loses nothing"
    storage_id: str = "list"

    def read(self, position: Position | None, limit: int) -> Batch:
        """The events after a position."""
        begin = int(position.state["read"]) if position else 0
        end = min(begin + limit, len(self.events))
        return Batch(
            events=self.events[begin:end],
            position=Position({"read": end}),
            more=end < len(self.events),
        )

    def end(self) -> Position:
        """The position after all events."""
        return Position({"read": len(self.events)})
