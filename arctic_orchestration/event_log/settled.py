"""The exact way to read a growing Postgres table, as a state machine that asks its own questions.

The problem. Postgres hands out ids before commit. A reader that remembers the largest id it saw
skips every row that was given a smaller id and is committed later.

The idea. An INSERT takes a lock of mode ``RowExclusiveLock`` on its table before its default
calls ``nextval``, keeps it to the end of the transaction, and a commit becomes visible before the
locks go. So let ``M`` be the largest id visible now, and ``H``, read *after* it, the
transactions that hold such a lock. Every id up to ``M`` has been handed out, because ids are
handed out in order (cache 1, increment 1). Its transaction is either still in ``H``, or it has
released its lock, and then its row is visible or gone for ever. When the last of ``H`` has ended,
what a statement that starts afterwards sees of the ids up to ``M`` is final: they are *settled*.
This needs only SELECT on the table and the part of ``pg_locks`` that every role may read.

While transactions are open, visible rows are delivered at once and their ids kept in ``seen``.
The state therefore is

* ``settled``: every row up to here is delivered, or never was one;
* ``zones``: the ids above it, in pieces. A zone ends at the ``M`` that opened it and names the
  transactions that may still fill a hole in it, ``holders``. Any later answer ``H`` shrinks all
  zones: ``holders := holders & H``. Only the commit of a holder can fill a zone's hole, so a zone
  that was read to its end needs no second reading until one of its holders is gone. The first
  zone without holders is final: it is read once more and becomes settled;
* ``seen``: the ids above ``settled`` that were visible when they were read, of *all* types of
  rows, as ranges, so that it has one number for each hole and not one for each event.

A zone opened later has at least the holders of an earlier one, because the same answers shrink
both. Neighbours with equal holders are merged, so there are never more zones than holders,
however long one transaction stays open and however much is written meanwhile.

Why nothing is lost: an id enters ``seen`` only in the step that delivers it, and ``settled``
moves over an id only by a reading that began after its zone had no holders. Why nothing is
doubled: the delivered rows are the visible ones minus ``seen``, and a final reading without
``seen`` covers only ids above all of ``seen``. Both hold for any interleaving of other transactions
between any two questions; each question is a statement with a snapshot of its own.

Four things would break it, with these remedies:

* *Prepared transactions* change their name in ``pg_locks`` to ``-1/...`` when they are prepared,
  and survive a restart. Every transaction with such a name counts as a holder of every zone.
* *A restart, a crash or a failover* gives old names to new transactions. The transactions that
  the zones waited for are ended or prepared; a reused name is waited for without need, which
  delays and never loses. When the answer shows that the naming has changed (``basis``), every
  current holder counts for every zone.
* *A savepoint that is rolled back* releases the locks that were taken inside it, together with
  the rows that were written inside it.
* *The ids begin again* (the log was restored, truncated or created again): the head lies below
  ``settled``, and the sequence has not reached it. Reading stops with ``LogWentBack``; so does
  ``postgres_log`` if ids up to ``settled`` were reused, which it detects by the last rows.

Preconditions, which ``postgres_log`` checks: a sequence with cache 1 and increment 1, and a server
that is not in recovery (a standby does not see the locks of its primary). Otherwise the same
machine gets pseudo-holders that stand for spans of time and end by the clock, every zone is read
again at each poll until then, and the mode is called lagged.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arctic_orchestration.errors import InvalidInput, LogWentBack
from arctic_orchestration.event_log.ranges import IdRanges

#: The maximum number of ids in one question about visibility.
IDS_PER_STEP = 50_000
#: The maximum number of separate ranges of new ids in one question.
RANGES_PER_STEP = 1_000
#: The maximum number of steps of one poll.
STEPS_PER_POLL = 16
#: With more holes, unsettled rows wait until they are settled: the position stays small.
HOLES_AT_MOST = 20_000
#: How often "from now" polls whether the current writers have ended.
PATIENCE = 40
#: How far back "from now" searches for late commits if there are no locks.
LAGGED_LOOK_BACK = 1_000_000

_PREPARED = "-1/"

#: A row of the table; the first column is its id.
Row = tuple[Any, ...]


@dataclass(frozen=True)
class AskHead:
    """The largest visible id, 0 when there is none: ``int``."""


@dataclass(frozen=True)
class AskHolders:
    """The transactions that may be about to commit a row: ``Holders``."""


@dataclass(frozen=True)
class AskLastIssued:
    """The last id that the sequence has handed out, if it may be read: ``int | None``."""


@dataclass(frozen=True)
class AskVisible:
    """The first ``limit`` visible ids in ``(after, upto]``, of rows of any type: ``IdRanges``."""

    after: int
    upto: int
    limit: int | None


@dataclass(frozen=True)
class AskRows:
    """The first ``limit`` visible rows of the wanted types in these ranges: ascending rows."""

    ranges: IdRanges
    limit: int


@dataclass(frozen=True)
class AskPause:
    """Wait some milliseconds: ``None``."""


@dataclass(frozen=True)
class Holders:
    """The transactions that hold a writer's lock.

    Attributes:
        basis: the scope of the names; another basis means other transactions.
        present: their names.
        complete: whether only these can still fill a hole (false: unknown).
    """

    basis: str
    present: frozenset[str]
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Zone:
    """Ids above the zone before it, up to ``upto``.

    Attributes:
        upto: the last id of the zone.
        holders: the transactions whose commit may still fill a hole in it.
        read: the last id of the present pass over the zone.
        again: whether another pass is due after this one.
    """

    upto: int
    holders: frozenset[str]
    read: int
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class SettledState:
    """The progress of a reader; see the module's docstring."""

    settled: int = 0
    basis: str = ""
    zones: tuple[Zone, ...] = ()
    seen: IdRanges = field(default_factory=IdRanges)

    @property
    def top(self) -> int:
        """The last id that belongs to a zone or is settled."""
        return self.zones[-1].upto if self.zones else self.settled

    @property
    def unfinished(self) -> int | None:
        """The index of the first zone that can be read further now, or None."""
        for index, zone in enumerate(self.zones):
            if index == 0 and not zone.holders:
                return 0
            if zone.read < zone.upto and len(self.seen) < HOLES_AT_MOST:
                return index
        return None

    def start_of(self, index: int) -> int:
        """Returns the id just below a zone."""
        return self.zones[index - 1].upto if index else self.settled

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON values."""
        return {
            "settled": self.settled,
            "basis": self.basis,
            "zones": [
                [zone.upto, sorted(zone.holders), zone.read, zone.again] for zone in self.zones
            ],
            "seen": self.seen.to_json(self.settled),
        }

    @classmethod
    def from_json(cls, document: Any) -> "SettledState":
        """Parses the form that ``to_json`` made.

        Errors:
            InvalidInput: the form is another one.
        """
        try:
            settled = int(document["settled"])
            return cls(
                settled=settled,
                basis=str(document["basis"]),
                zones=tuple(
                    Zone(upto=upto, holders=frozenset(holders), read=read, again=again)
                    for upto, holders, read, again in document["zones"]
                ),
                seen=IdRanges.from_json(document["seen"], settled),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput("position", document, "a position of a Postgres log") from error


@dataclass(frozen=True)
class ReadResult:
    """The result of one poll: the next state, the rows to deliver, and whether more are there."""

    state: SettledState
    rows: Sequence[Row]
    more: bool


Dialogue = Generator[Any, Any, ReadResult]


def poll(state: SettledState, limit: int) -> Dialogue:
    """Reads at most ``limit`` rows, as a generator of questions.

    Each question must be answered by a statement with a snapshot of its own, taken after the answer
    to the previous question.
    """
    rows: list[Row] = []
    if not state.zones or state.zones[0].holders:
        state = yield from _look_around(state)
    for _ in range(STEPS_PER_POLL):
        index = state.unfinished
        if index is None or len(rows) >= limit:
            break
        if index == 0 and not state.zones[0].holders:
            state, found = yield from _settle(state, limit - len(rows))
        else:
            state, found = yield from _read_on(state, index, limit - len(rows))
        rows += found
    return ReadResult(state, rows, state.unfinished is not None)


def from_now() -> Generator[Any, Any, SettledState]:
    """Returns the state that skips committed rows and delivers uncommitted ones, as questions."""
    low, head = 0, (yield AskHead())
    first: Holders = yield AskHolders()
    waiting = first.present
    for _ in range(PATIENCE if first.complete else 0):
        if not waiting:
            break
        yield AskPause()
        now: Holders = yield AskHolders()
        waiting = (waiting & now.present) | _prepared(now.present)
    if not first.complete:
        low = max(0, head - LAGGED_LOOK_BACK)
    elif not waiting:
        low = head
    head = yield AskHead()
    last: Holders = yield AskHolders()
    if not last.present or head <= low:
        return SettledState(settled=max(head, low), basis=last.basis)
    visible: IdRanges = yield AskVisible(low, head, None)
    zone = Zone(upto=head, holders=last.present, read=head)
    return SettledState(settled=low, basis=last.basis, zones=(zone,), seen=visible)


def _look_around(state: SettledState) -> Generator[Any, Any, SettledState]:
    # The head first, then the holders of locks: in this order, every transaction with an id up to
    # the head is either among the holders or has ended.
    head: int = yield AskHead()
    if head < state.settled:
        issued: int | None = yield AskLastIssued()
        if issued is not None and issued < state.settled:
            raise LogWentBack(
                f"events up to id {state.settled} were read, and its ids have come to {issued} only"
            )
    if head <= state.top and not state.zones:
        return state
    answer: Holders = yield AskHolders()
    zones = [_shrunk(zone, answer, renamed=answer.basis != state.basis) for zone in state.zones]
    if head > state.top:
        zones.append(Zone(upto=head, holders=answer.present, read=state.top))
    return replace(state, basis=answer.basis, zones=_tidy(state.settled, zones))


def _shrunk(zone: Zone, answer: Holders, *, renamed: bool) -> Zone:
    if renamed:
        return replace(zone, holders=answer.present, again=True)
    gone = bool(zone.holders - answer.present)
    return replace(
        zone,
        holders=(zone.holders & answer.present) | _prepared(answer.present),
        again=zone.again or gone or not answer.complete,
    )


def _prepared(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.startswith(_PREPARED))


def _tidy(start: int, zones: Sequence[Zone]) -> tuple[Zone, ...]:
    """Begins due passes, and merges neighbours that wait for the same holders."""
    tidy: list[Zone] = []
    for zone in zones:
        below = tidy[-1].upto if tidy else start
        if zone.again and zone.read == zone.upto:
            zone = replace(zone, read=below, again=False)
        before = tidy[-1] if tidy else None
        if before is None or before.holders != zone.holders:
            tidy.append(zone)
        elif before.read == before.upto and not zone.again:
            tidy[-1] = zone
        elif zone.read == below:
            tidy[-1] = replace(before, upto=zone.upto, again=before.again or zone.again)
        else:
            tidy.append(zone)
    return tuple(tidy)


def _settle(
    state: SettledState, limit: int
) -> Generator[Any, Any, tuple[SettledState, Sequence[Row]]]:
    """Reads the first zone, which is final, and moves ``settled`` over the read ids."""
    upto = state.zones[0].upto
    known = state.seen.last_up_to(upto)
    rows: Sequence[Row]
    if known is None:
        rows = yield AskRows(IdRanges([(state.settled + 1, upto)]), limit)
        cut = rows[-1][0] if len(rows) >= limit else upto
    else:
        visible: IdRanges = yield AskVisible(state.settled, known, IDS_PER_STEP)
        rows, cut = yield from _deliver(state, visible, known, limit)
    zones = tuple(zone for zone in state.zones if zone.upto > cut)
    seen = state.seen.within(cut, state.top)
    return replace(state, settled=cut, zones=zones, seen=seen), rows


def _read_on(
    state: SettledState, index: int, limit: int
) -> Generator[Any, Any, tuple[SettledState, Sequence[Row]]]:
    """Reads a piece of a zone that may still change, and adds the visible ids to ``seen``."""
    zone = state.zones[index]
    visible: IdRanges = yield AskVisible(zone.read, zone.upto, IDS_PER_STEP)
    rows, cut = yield from _deliver(state, visible, zone.upto, limit)
    zones = list(state.zones)
    zones[index] = replace(zone, read=cut)
    seen = state.seen.union(visible.within(zone.read, cut))
    return replace(state, zones=_tidy(state.settled, zones), seen=seen), rows


def _deliver(
    state: SettledState, visible: IdRanges, upto: int, limit: int
) -> Generator[Any, Any, tuple[Sequence[Row], int]]:
    """Returns the rows of newly visible ids, and the id up to which they are complete."""
    cut = upto
    if visible.count >= IDS_PER_STEP:
        cut = max(high for _, high in visible)
    new = visible.minus(state.seen)
    if not len(new):
        return (), cut
    if len(new) > RANGES_PER_STEP:
        new = new.first(RANGES_PER_STEP)
        cut = max(high for _, high in new)
    rows: Sequence[Row] = yield AskRows(new, limit)
    return rows, rows[-1][0] if len(rows) >= limit else cut
