"""Reads a growing Postgres table without gaps: a state machine that yields its queries.

The problem. Postgres assigns ids before commit. A reader that remembers the largest id it has seen
misses every row with a smaller id that is committed later.

The method. An INSERT locks its table in mode ``RowExclusiveLock`` before its default calls
``nextval``, and holds the lock until its transaction ends; a commit becomes visible before its
locks are released. Let ``M`` be the largest visible id, and ``H`` the transactions that hold such a
lock, read *after* ``M``. Ids are assigned in order (cache 1, increment 1), so each id up to ``M``
is assigned. The transaction that got an id is either in ``H``, or has released its lock: then the
row is visible, or will never exist. Once all transactions of ``H`` have ended, the rows up to ``M``
are *final*: a statement that starts later sees all of them. The method requires only SELECT on the
table and the columns of ``pg_locks`` that every role may read.

While transactions are open, visible rows are delivered at once, and their ids are kept. The state:

* ``watermark``: all rows up to this id are final and delivered.
* ``zones``: the ids above it, in pieces. A zone ends at the ``M`` of the poll that opened it. Its
  ``holders`` are the transactions that may still commit a row in it; each later ``H`` shrinks the
  holders of all zones: ``holders := holders & H``. Only a holder's commit adds a row to a zone, so
  a zone that was read to its end is read again only when one of its holders has ended. The first
  zone without holders is final: it is read once more, and the watermark moves to its end.
* ``seen``: the ids above the watermark that were visible when they were read, for rows of *all*
  types, as ranges: it grows with the number of holes, not with the number of events.

A later zone has at least the holders of an earlier one, because the same ``H`` shrinks both.
Neighbors with equal holders are merged. So there are never more zones than holders, however long a
transaction stays open and however many rows are written meanwhile.

No row is lost: an id is added to ``seen`` only by the step that delivers its row, and the watermark
moves past an id only after a read that began when the id's zone had no holders. No row is delivered
twice: delivered rows are the visible ones without those in ``seen``, and a final read that ignores
``seen`` covers only ids above all of ``seen``. Both hold however other transactions interleave with
the queries; each query is a statement with its own snapshot.

Four cases need a remedy:

* *Prepared transactions* are renamed in ``pg_locks`` to ``-1/...`` when they are prepared, and
  survive a restart. Each transaction with such a name counts as a holder of every zone.
* *A restart, a crash or a failover* reuses the names of old transactions. The holders of all zones
  have ended or are prepared by then. Waiting for a reused name delays rows, and loses none. When
  the names have another scope (``basis``), each current holder counts for every zone.
* *A savepoint that is rolled back* releases the locks that were taken after it, and removes the
  rows that were written after it.
* *Ids that start again* (the log was restored, truncated or created again): the largest visible id
  is below the watermark, and so is the sequence. Reading stops with ``LogWentBack``. If the ids up
  to the watermark are reused, ``postgres_log`` detects it by the last rows, and does the same.

Preconditions, which ``postgres_log`` checks: a sequence with cache 1 and increment 1, and a server
that is not in recovery (a standby does not see the locks of its primary). Otherwise the same
machine is given spans of time as pseudo-holders, which end by the clock; each zone is read again at
each poll until then. This mode is called lagged.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arctic_orchestration.errors import InvalidInput, LogWentBack
from arctic_orchestration.event_log.ranges import IdRanges

#: The maximum number of ids in one query of visible ids.
IDS_PER_STEP = 50_000
#: The maximum number of separate ranges of new ids in one query.
RANGES_PER_STEP = 1_000
#: The maximum number of steps of one poll.
STEPS_PER_POLL = 16
#: With more holes, rows wait until they are final: the stored position stays small.
HOLES_AT_MOST = 20_000
#: How often ``from_now`` polls whether the current writers have ended.
PATIENCE = 40
#: How many ids back ``from_now`` searches for late commits if locks are not visible.
LAGGED_LOOK_BACK = 1_000_000

_PREPARED = "-1/"

#: A row of the table; the first column is its id.
Row = tuple[Any, ...]


@dataclass(frozen=True)
class HeadQuery:
    """The largest visible id, 0 if there is none. Its result is an ``int``."""


@dataclass(frozen=True)
class HoldersQuery:
    """The transactions that may commit a row. Its result is ``Holders``."""


@dataclass(frozen=True)
class LastIssuedQuery:
    """The last id that the sequence has assigned; none: it cannot be read."""


@dataclass(frozen=True)
class VisibleQuery:
    """The first ``limit`` visible ids in ``(after, upto]``, of any row type, as ``IdRanges``."""

    after: int
    upto: int
    limit: int | None


@dataclass(frozen=True)
class RowsQuery:
    """The first ``limit`` visible rows of the wanted types in these ranges, in ascending order."""

    ranges: IdRanges
    limit: int


@dataclass(frozen=True)
class Pause:
    """A pause of some milliseconds, without a result."""


@dataclass(frozen=True)
class Holders:
    """The transactions that hold a writer's lock.

    Attributes:
        basis: the scope of the names: equal names of another basis are other transactions.
        present: their names.
        complete: whether no other transaction can commit a row up to the largest visible id.
    """

    basis: str
    present: frozenset[str]
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Zone:
    """The ids above the previous zone, up to ``upto``.

    Attributes:
        upto: the last id of the zone.
        holders: the transactions that may still commit a row in it.
        read: the last id that the present pass over the zone has read.
        reread: whether another pass is due after this one.
    """

    upto: int
    holders: frozenset[str]
    read: int
    reread: bool = False


@dataclass(frozen=True, kw_only=True)
class ReaderState:
    """The progress of a reader; see the docstring of the module."""

    watermark: int = 0
    basis: str = ""
    zones: tuple[Zone, ...] = ()
    seen: IdRanges = field(default_factory=IdRanges)

    @property
    def top(self) -> int:
        """The last id of the last zone; without zones, the watermark."""
        return self.zones[-1].upto if self.zones else self.watermark

    @property
    def unfinished(self) -> int | None:
        """The index of the first zone that can be read now; none: there is none."""
        for index, zone in enumerate(self.zones):
            if index == 0 and not zone.holders:
                return 0
            if zone.read < zone.upto and len(self.seen) < HOLES_AT_MOST:
                return index
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON values; the stored name of the watermark is ``settled``."""
        return {
            "settled": self.watermark,
            "basis": self.basis,
            "zones": [
                [zone.upto, sorted(zone.holders), zone.read, zone.reread] for zone in self.zones
            ],
            "seen": self.seen.to_json(self.watermark),
        }

    @classmethod
    def from_json(cls, document: Any) -> "ReaderState":
        """Parses the form that ``to_json`` made.

        Errors:
            InvalidInput: the form is another one.
        """
        try:
            watermark = int(document["settled"])
            return cls(
                watermark=watermark,
                basis=str(document["basis"]),
                zones=tuple(
                    Zone(upto=upto, holders=frozenset(holders), read=read, reread=reread)
                    for upto, holders, read, reread in document["zones"]
                ),
                seen=IdRanges.from_json(document["seen"], watermark),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("position", document, "a position of a Postgres log") from error


@dataclass(frozen=True)
class ReadResult:
    """The result of one poll: the next state, the rows to deliver, and whether there are more."""

    state: ReaderState
    rows: Sequence[Row]
    more: bool


Queries = Generator[Any, Any, ReadResult]


def poll(state: ReaderState, limit: int) -> Queries:
    """Reads at most ``limit`` rows; yields queries, and is sent their results.

    Each query must run as a statement with its own snapshot, after the previous query has returned.
    """
    rows: list[Row] = []
    if not state.zones or state.zones[0].holders:
        state = yield from _refresh_zones(state)
    for _ in range(STEPS_PER_POLL):
        index = state.unfinished
        if index is None or len(rows) >= limit:
            break
        if index == 0 and not state.zones[0].holders:
            state, found = yield from _advance_watermark(state, limit - len(rows))
        else:
            state, found = yield from _read_zone(state, index, limit - len(rows))
        rows += found
    return ReadResult(state, rows, state.unfinished is not None)


def from_now() -> Generator[Any, Any, ReaderState]:
    """Returns the state that skips committed rows and delivers later commits; yields queries."""
    low, head = 0, (yield HeadQuery())
    first: Holders = yield HoldersQuery()
    waiting = first.present
    for _ in range(PATIENCE if first.complete else 0):
        if not waiting:
            break
        yield Pause()
        now: Holders = yield HoldersQuery()
        waiting = (waiting & now.present) | _prepared(now.present)
    if not first.complete:
        low = max(0, head - LAGGED_LOOK_BACK)
    elif not waiting:
        low = head
    head = yield HeadQuery()
    last: Holders = yield HoldersQuery()
    if not last.present or head <= low:
        return ReaderState(watermark=max(head, low), basis=last.basis)
    visible: IdRanges = yield VisibleQuery(low, head, None)
    zone = Zone(upto=head, holders=last.present, read=head)
    return ReaderState(watermark=low, basis=last.basis, zones=(zone,), seen=visible)


def _refresh_zones(state: ReaderState) -> Generator[Any, Any, ReaderState]:
    # The largest id is read before the holders: then each transaction with an id up to it is among
    # the holders, or has ended.
    head: int = yield HeadQuery()
    if head < state.watermark:
        issued: int | None = yield LastIssuedQuery()
        if issued is not None and issued < state.watermark:
            raise LogWentBack(
                f"events up to id {state.watermark} were read, but the last id of its sequence "
                f"is {issued}"
            )
    if head <= state.top and not state.zones:
        return state
    answer: Holders = yield HoldersQuery()
    zones = [_shrunk(zone, answer, renamed=answer.basis != state.basis) for zone in state.zones]
    if head > state.top:
        zones.append(Zone(upto=head, holders=answer.present, read=state.top))
    return replace(state, basis=answer.basis, zones=_merged(state.watermark, zones))


def _shrunk(zone: Zone, answer: Holders, *, renamed: bool) -> Zone:
    if renamed:
        return replace(zone, holders=answer.present, reread=True)
    gone = bool(zone.holders - answer.present)
    return replace(
        zone,
        holders=(zone.holders & answer.present) | _prepared(answer.present),
        reread=zone.reread or gone or not answer.complete,
    )


def _prepared(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.startswith(_PREPARED))


def _merged(start: int, zones: Sequence[Zone]) -> tuple[Zone, ...]:
    """Starts due passes, and merges neighbors with the same holders."""
    merged: list[Zone] = []
    for zone in zones:
        below = merged[-1].upto if merged else start
        if zone.reread and zone.read == zone.upto:
            zone = replace(zone, read=below, reread=False)
        before = merged[-1] if merged else None
        if before is None or before.holders != zone.holders:
            merged.append(zone)
        elif before.read == before.upto and not zone.reread:
            merged[-1] = zone
        elif zone.read == below:
            merged[-1] = replace(before, upto=zone.upto, reread=before.reread or zone.reread)
        else:
            merged.append(zone)
    return tuple(merged)


def _advance_watermark(
    state: ReaderState, limit: int
) -> Generator[Any, Any, tuple[ReaderState, Sequence[Row]]]:
    """Reads the first zone, which is final, and moves the watermark past the read ids."""
    upto = state.zones[0].upto
    known = state.seen.last_up_to(upto)
    rows: Sequence[Row]
    if known is None:
        rows = yield RowsQuery(IdRanges([(state.watermark + 1, upto)]), limit)
        cut = rows[-1][0] if len(rows) >= limit else upto
    else:
        visible: IdRanges = yield VisibleQuery(state.watermark, known, IDS_PER_STEP)
        rows, cut = yield from _deliver(state, visible, known, limit)
    zones = tuple(zone for zone in state.zones if zone.upto > cut)
    seen = state.seen.within(cut, state.top)
    return replace(state, watermark=cut, zones=zones, seen=seen), rows


def _read_zone(
    state: ReaderState, index: int, limit: int
) -> Generator[Any, Any, tuple[ReaderState, Sequence[Row]]]:
    """Reads a part of a zone that is not final, and adds the visible ids to ``seen``."""
    zone = state.zones[index]
    visible: IdRanges = yield VisibleQuery(zone.read, zone.upto, IDS_PER_STEP)
    rows, cut = yield from _deliver(state, visible, zone.upto, limit)
    zones = list(state.zones)
    zones[index] = replace(zone, read=cut)
    seen = state.seen.union(visible.within(zone.read, cut))
    return replace(state, zones=_merged(state.watermark, zones), seen=seen), rows


def _deliver(
    state: ReaderState, visible: IdRanges, upto: int, limit: int
) -> Generator[Any, Any, tuple[Sequence[Row], int]]:
    """Returns the visible rows that are not in ``seen``, and the id up to which they are all."""
    cut = upto
    if visible.count >= IDS_PER_STEP:
        cut = max(high for _, high in visible)
    new = visible.minus(state.seen)
    if not len(new):
        return (), cut
    if len(new) > RANGES_PER_STEP:
        new = new.first(RANGES_PER_STEP)
        cut = max(high for _, high in new)
    rows: Sequence[Row] = yield RowsQuery(new, limit)
    return rows, rows[-1][0] if len(rows) >= limit else cut
