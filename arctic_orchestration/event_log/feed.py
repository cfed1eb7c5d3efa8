"""What a reader of events is promised, whatever storage the events are in."""

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
    """How sure a feed is that it delivers everything once."""

    #: Every committed event is delivered once, whatever the order of commits.
    EXACT = "exact"
    #: An event that is committed later than the lag after its neighbours may be missed.
    LAGGED = "lagged"


@dataclass(frozen=True)
class Position:
    """How far a reader has come: opaque, a JSON object, to be stored with what was made of it."""

    state: Mapping[str, Any]

    def to_json(self) -> str:
        """The position as a JSON text."""
        return json.dumps(self.state, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Position":
        """The position that ``to_json`` wrote.

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
    """What one reading delivered.

    Attributes:
        events: the new events, by ascending storage id within one reading. Readings may
            overlap in ids: what was committed late comes late.
        position: where the next reading starts; store it together with the events.
        more: whether reading again at once may deliver more.
        mode: how sure the feed was during this reading.
        lag: for how long a late commit is waited for; None when there is no such limit.
    """

    events: Sequence[Event]
    position: Position
    more: bool
    mode: FeedMode = FeedMode.EXACT
    lag: timedelta | None = None


class Feed(Protocol):
    """A sequence of events that is read forwards, from a position on."""

    @property
    def storage_id(self) -> str:
        """Names the storage that is read; another one has another id."""

    @property
    def mode(self) -> FeedMode:
        """How sure the feed is; asks the storage when it is not known yet."""

    @property
    def mode_reason(self) -> str:
        """Why the mode is what it is, as a sentence for people."""

    def read(self, position: Position | None, limit: int) -> Batch:
        """At most ``limit`` events that no reading up to ``position`` delivered.

        ``None`` reads from the beginning. Nothing is written: reading twice from one position
        delivers what was delivered before, and possibly more.

        Errors:
            InvalidInput: the position is not one of this kind of feed.
            LogWentBack: the log lacks, or has replaced, events that were read before.
            DatabaseUnavailable: the storage did not answer.
        """

    def end(self) -> Position:
        """The position "from now on".

        What was committed before the call is left out; what is not committed when it returns is
        delivered later, even if its id is smaller than others that are left out.
        """


class ArrivalLookup(Protocol):
    """What is known of arrivals beyond their events, for many of them at once.

    Each method raises ``DatabaseUnavailable`` when the storage does not answer.
    """

    def backfills_of(self, run_ids: Iterable[str]) -> Mapping[str, str]:
        """The id of the backfill of each run that belongs to one, by run id."""

    def arrived(
        self, asset: str, partitions: Collection[str], position: Position | None
    ) -> set[str]:
        """The partitions of an asset that have arrived among the events up to a position.

        An event that no reading up to ``position`` delivered does not count, even if it is
        committed; one from before the asset was wiped does not count either. The empty text
        stands for arrivals without a partition. Position ``None`` is the beginning.
        """

    def checks_of(self, arrivals: Sequence[Event]) -> Mapping[int, ArrivalChecks]:
        """The planned checks and evaluations of each arrival, by its storage id."""

    def changed(self, arrivals: Sequence[Event]) -> set[int]:
        """The storage ids of the arrivals that brought another data version.

        Another one than the arrival of the same asset partition before. An arrival without a
        data version, and the first one of its asset partition, counts as changed.
        """


class LookedUpFeed(Feed, ArrivalLookup, Protocol):
    """A feed that is asked about its arrivals, too."""
