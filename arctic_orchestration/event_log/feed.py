"""The contract of a reader of events, for every storage."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.arrival_checks import ArrivalChecks
from arctic_orchestration.event_log.event import Event


class FeedMode(StrEnum):
    """The delivery guarantee of a feed."""

    #: Every committed event is delivered once, whatever the order of commits.
    EXACT = "exact"
    #: An event may be missed if its commit lags behind its neighbours by more than the lag.
    LAGGED = "lagged"


@dataclass(frozen=True)
class Position:
    """A reader's position: an opaque JSON object, to be stored with the results of the events."""

    state: Mapping[str, Any]

    def to_json(self) -> str:
        """Returns the position as a JSON text."""
        return json.dumps(self.state, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Position":
        """Parses the text that ``to_json`` made.

        Errors:
            InvalidInput: the text is not a JSON object.
        """
        try:
            state = json.loads(text)
        except ValueError as error:
            raise InvalidInput("position", text, "what Position.to_json wrote") from error
        if not isinstance(state, dict):
            raise InvalidInput("position", text, "what Position.to_json wrote")
        return cls(state)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The result of one reading.

    Attributes:
        events: the new events, by ascending storage id within one reading. Readings may
            overlap in ids: an event that is committed late is delivered late.
        position: where the next reading starts; store it together with the events.
        more: whether another reading may deliver more at once.
        mode: the guarantee during this reading.
        lag: how long late commits are waited for; None: without limit.
    """

    events: Sequence[Event]
    position: Position
    more: bool
    mode: FeedMode = FeedMode.EXACT
    lag: timedelta | None = None


class Feed(Protocol):
    """A sequence of events that is read forwards from a position."""

    @property
    def storage_id(self) -> str:
        """Identifies the storage; every storage has another id."""

    @property
    def mode(self) -> FeedMode:
        """The guarantee of the feed; queries the storage if it is not known yet."""

    @property
    def mode_reason(self) -> str:
        """The reason of the mode, as a sentence for people."""

    def read(self, position: Position | None, limit: int) -> Batch:
        """At most ``limit`` events that no reading up to ``position`` delivered.

        ``None`` reads from the beginning. Nothing is written: another reading from the same
        position delivers the same events, and possibly more.

        Errors:
            InvalidInput: the position belongs to another kind of feed.
            LogWentBack: the log lacks, or has replaced, events that were read before.
            DatabaseUnavailable: the storage did not answer.
        """

    def end(self) -> Position:
        """Returns the position "from now on".

        Events committed before the call are skipped. Events not committed when it returns are
        delivered later, even if their ids are smaller than skipped ones.
        """


class ArrivalLookup(Protocol):
    """Looks up facts about arrivals that their events lack, for many arrivals at once.

    Each method raises ``DatabaseUnavailable`` when the storage does not answer.
    """

    def backfills_of(self, run_ids: Iterable[str]) -> Mapping[str, str]:
        """Returns the id of the backfill of each run that belongs to one, by run id."""

    def arrived(
        self, asset: str, partitions: Collection[str], position: Position | None
    ) -> set[str]:
        """Returns the partitions of an asset that have arrived among the events up to a position.

        An event that no reading up to ``position`` delivered does not count, even if it is
        committed; neither does one from before the asset was wiped. The empty text stands for
        arrivals without a partition. Position ``None`` is the beginning.
        """

    def checks_of(self, arrivals: Sequence[Event]) -> Mapping[int, ArrivalChecks]:
        """Returns the planned checks and evaluations of each arrival, by its storage id."""

    def changed(self, arrivals: Sequence[Event]) -> set[int]:
        """Returns the storage ids of the arrivals with another data version.

        The version is compared with the previous arrival of the same asset partition. An arrival
        without a data version, and the first one of its asset partition, counts as changed.
        """


class LookedUpFeed(Feed, ArrivalLookup, Protocol):
    """A feed that also looks up facts about its arrivals."""
