"""A log of arrivals in memory, a clock that stands, and an engine on them, for tests."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.specification import ConsumerSpec
from arctic_orchestration.consumers.working_set import Existing
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import Batch, FeedMode, Position
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.standing_clock import Clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ASSET = "raw/flights"


@dataclass
class Log:
    """A feed of what tests write into it; like Dagster's, it is only read by position."""

    events: list[Event] = field(default_factory=list)
    storage_id: str = "storage"
    mode: FeedMode = FeedMode.EXACT
    mode_reason: str = "it is a list"
    readings: int = 0

    def arrives(
        self,
        *partitions: str | None,
        asset: str = ASSET,
        at: datetime = NOON,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Each partition is materialized, one after the other."""
        for partition in partitions:
            self.events.append(
                Event(
                    kind=EventKind.PARTITION,
                    subject=asset,
                    partition=partition,
                    at=at,
                    storage_id=len(self.events) + 1,
                    run_id=f"run-{len(self.events) + 1}",
                    bytes=100,
                    metadata=metadata or {},
                )
            )

    def read(self, position: Position | None, limit: int) -> Batch:
        """The next events."""
        self.readings += 1
        start = position.state["read"] if position else 0
        found = self.events[start : start + limit]
        return Batch(
            events=found,
            position=Position({"read": start + len(found)}),
            more=start + len(found) < len(self.events),
        )

    def end(self) -> Position:
        """From now on."""
        return Position({"read": len(self.events)})


@dataclass
class Partitions:
    """The dynamic partitions that Dagster has."""

    keys: set[str] = field(default_factory=set)

    def __call__(self, keys: Sequence[str]) -> Collection[str]:
        return self.keys


def engine_of(
    database: Database, log: Log, clock: Clock | None = None, *, existing: Any = None, **spec: Any
) -> ConsumerEngine:
    """A registered consumer of ``raw/flights`` by the name ``totals``, by default."""
    form = {"name": "totals", "asset": ASSET, **spec}
    engine = ConsumerEngine(
        spec=ConsumerSpec.parse(form),
        cluster="default",
        database=database,
        feed=log,
        existing=None if existing is None else Existing("feeds", existing),
    )
    if clock is not None:
        engine.time = clock
    engine.register()
    return engine
