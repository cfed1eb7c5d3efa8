"""A feed over a list of events in memory; the position is the number of read events."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from arctic_orchestration.event_log.arrival_checks import ArrivalChecks, concerns, latest
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.feed import Batch, FeedMode, Position


@dataclass(kw_only=True)
class EventList:
    """Events in the order in which they are reported."""

    events: list[Event] = field(default_factory=list)
    mode: FeedMode = FeedMode.EXACT
    mode_reason: str = "a list loses nothing"
    storage_id: str = "list"
    #: the backfill of runs that belong to one
    backfills: dict[str, str] = field(default_factory=dict)
    #: the checks that are planned for an arrival, by its storage id
    planned: dict[int, frozenset[str]] = field(default_factory=dict)
    #: sums over the first ``_indexed`` events, for look-ups
    _indexed: int = 0
    #: asset and partition: the index of its first arrival, and the data version of its last
    _first: dict[tuple[str, str], int] = field(default_factory=dict)
    _version: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)
    _checks: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))

    def read(self, position: Position | None, limit: int) -> Batch:
        """Returns the events after a position."""
        begin = int(position.state["read"]) if position else 0
        end = min(begin + limit, len(self.events))
        return Batch(
            events=self.events[begin:end],
            position=Position({"read": end}),
            more=end < len(self.events),
        )

    def end(self) -> Position:
        """Returns the position after all events."""
        return Position({"read": len(self.events)})

    def backfills_of(self, run_ids: Iterable[str]) -> dict[str, str]:
        """Returns the backfill of each run that belongs to one; see ``ArrivalLookup``."""
        return {id: self.backfills[id] for id in run_ids if id in self.backfills}

    def arrived(
        self, asset: str, partitions: Collection[str], position: Position | None
    ) -> set[str]:
        """Returns the partitions that have arrived up to a position; see ``ArrivalLookup``."""
        self._index()
        end = int(position.state["read"]) if position else 0
        return {key for key in partitions if self._first.get((asset, key), end) < end}

    def checks_of(self, arrivals: Sequence[Event]) -> dict[int, ArrivalChecks]:
        """Returns the checks of each arrival; see ``ArrivalLookup``."""
        self._index()
        return {
            event.storage_id: ArrivalChecks(
                planned=self.planned.get(event.storage_id, frozenset()),
                evaluations=tuple(
                    check for check in self._checks[event.subject] if concerns(check, event)
                ),
            )
            for event in arrivals
        }

    def changed(self, arrivals: Sequence[Event]) -> set[int]:
        """Returns the arrivals with another data version; see ``ArrivalLookup``."""
        self._index()
        return {event.storage_id for event in arrivals} & self._changed

    def latest_checks(
        self, assets: Sequence[str], partition: str | None = None
    ) -> dict[str, dict[str, Event | None]]:
        """Returns the latest evaluation of each check, as ``DagsterLog.latest_checks``."""
        self._index()
        found: dict[str, dict[str, Event | None]] = {}
        for asset in assets:
            if checks := self._checks.get(asset):
                found[asset] = dict.fromkeys(check.check or "" for check in checks)
                wanted = [c for c in checks if partition in (None, c.partition) or not c.partition]
                found[asset] |= {check.check or "": check for check in latest(wanted)}
        return found

    def _index(self) -> None:
        for index in range(self._indexed, len(self.events)):
            event = self.events[index]
            if event.kind is EventKind.CHECK:
                self._checks[event.subject].append(event)
            elif event.kind is EventKind.PARTITION:
                key, version = (event.subject, event.partition or ""), event.data_version
                self._first.setdefault(key, index)
                if version is None or self._version.get(key) != version:
                    self._changed.add(event.storage_id)
                self._version[key] = version
        self._indexed = len(self.events)
