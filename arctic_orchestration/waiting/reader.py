"""Reads what waits: grouped by cause, or one by one, over all features, oldest first."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable, InvalidInput
from arctic_orchestration.waiting.rooms import ROOMS, Room
from arctic_orchestration.waiting.views import (
    CauseGroup,
    Example,
    Trouble,
    WaitingByCause,
    WaitPage,
)
from arctic_orchestration.waiting.wait_filter import Cursor, WaitFilter
from arctic_orchestration.waits import Details, Wait, WaitRow, WaitRows, WaitScope

_log = logging.getLogger("arctic.waiting")
#: the longest page
MOST = 1_000
#: statements that are kept, by rows and filter
_KEPT = 200
#: rows of one feature that have a place in a cursor
_PLACES = 10
_T = TypeVar("_T")


def waiting_by_cause(
    tx: sa.Connection,
    cluster: str,
    now: datetime,
    wanted: WaitFilter | None = None,
    *,
    rooms: Sequence[Room] = ROOMS,
) -> WaitingByCause:
    """Groups what waits by kind and cause, the oldest first; the database counts.

    A feature that fails is among the troubles, and hides no other.
    """
    reader = _Reader(tx, cluster, now, wanted or WaitFilter(), rooms)
    groups = reader.of_each_room(reader.groups)
    groups.sort(key=lambda group: (group.since, group.kind, group.cause))
    return WaitingByCause(at=now, groups=tuple(groups), troubles=tuple(reader.troubles))


def waiting(
    tx: sa.Connection,
    cluster: str,
    now: datetime,
    wanted: WaitFilter | None = None,
    *,
    after: str | None = None,
    limit: int = 50,
    rooms: Sequence[Room] = ROOMS,
) -> WaitPage:
    """Returns a page of what waits, oldest first, each with its holders, its end and actions.

    Errors:
        InvalidInput: ``after`` is no cursor, or the limit is not in 1 to 1000.
    """
    if not 1 <= limit <= MOST:
        raise InvalidInput("limit", limit, f"a number from 1 to {MOST}")
    cursor = Cursor.parse(after) if after else None
    reader = _Reader(tx, cluster, now, wanted or WaitFilter(), rooms)
    found = reader.of_each_room(lambda rows, place: reader.page(rows, place, cursor, limit))
    # Stable: the database has sorted the keys of each place.
    found.sort(key=lambda one: (one.row.since, one.place))
    page, last = found[:limit], found[limit - 1] if len(found) > limit else None
    return WaitPage(
        at=now,
        waits=tuple(reader.described(page)),
        troubles=tuple(reader.troubles),
        next_after=_cursor(last).to_text() if last is not None else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placed:
    """A row, and the place of its rows among those of all features."""

    place: int
    rows: WaitRows
    row: WaitRow


class _Reader:
    def __init__(
        self,
        tx: sa.Connection,
        cluster: str,
        now: datetime,
        wanted: WaitFilter,
        rooms: Sequence[Room],
    ) -> None:
        self._tx = tx
        self._scope = WaitScope(cluster=cluster, now=now)
        self._wanted = wanted
        self._rooms = rooms
        #: of the features that were read
        self.troubles: list[Trouble] = []

    def of_each_room(self, read: Callable[[WaitRows, int], Sequence[_T]]) -> list[_T]:
        """Returns what is read of the rows of each feature that does not fail."""
        found: list[_T] = []
        for number, room in enumerate(self._rooms):
            try:
                # After a failed statement Postgres accepts no other one outside of it.
                with self._tx.begin_nested():
                    rows = room.wait_rows()
                    places = enumerate(rows, start=number * _PLACES)
                    of_room = [one for place, some in places for one in read(some, place)]
                    texts = room.trouble and room.trouble(
                        self._tx, self._scope, self._wanted.location
                    )
            except (DatabaseUnavailable, InvalidInput):
                raise
            except Exception as error:
                _log.warning("what waits in %s cannot be read", room.name, exc_info=error)
                texts = [f"what waits in {room.name} cannot be read: {type(error).__name__}"]
                of_room = []
            found += of_room
            self.troubles += [Trouble(room=room.name, text=text) for text in texts or ()]
        return found

    def groups(self, rows: WaitRows, _: int) -> list[CauseGroup]:
        """Returns the causes of some rows with their oldest examples."""
        query = _grouped(rows, self._wanted)
        if query is None:
            return []
        totals = {row.cause: row for row in self._execute(query)}
        if not totals:
            return []
        keys = {key for row in totals.values() for key in _keys_of(row, len(rows.keys))}
        examples: dict[str, list[Example]] = defaultdict(list)
        for row in self._read(rows, [_among(rows, sorted(keys))]):
            examples[row.cause].append(_example(row))
        return [
            CauseGroup(
                kind=rows.kind,
                cause=cause,
                count=row.total,
                since=row.oldest,
                examples=tuple(examples[cause]),
            )
            for cause, row in totals.items()
        ]

    def _execute(self, query: sa.Select[Any]) -> Sequence[Any]:
        return self._tx.execute(query, self._scope.parameters).all()

    def page(self, rows: WaitRows, place: int, cursor: Cursor | None, limit: int) -> list[_Placed]:
        """Returns the first rows after a cursor, one more than the limit."""
        where = self._wanted.conditions(rows)
        if where is None:
            return []
        if cursor is not None:
            where.append(cursor.follows(rows, place))
        # Names are subqueries: only those of the page are looked up.
        query = sa.select(*_labeled(rows.keys)).select_from(rows.table).where(*where)
        query = query.order_by(rows.since, *rows.keys).limit(limit + 1)
        keys = [tuple(row) for row in self._execute(query)]
        found = self._read(rows, [_among(rows, keys)]) if keys else []
        return [_Placed(place=place, rows=rows, row=row) for row in found]

    def _read(self, rows: WaitRows, where: Sequence[sa.ColumnElement[bool]]) -> list[WaitRow]:
        location = sa.null() if rows.location is None else rows.location
        query = (
            sa.select(rows.id, rows.name, location, rows.since, rows.cause, rows.reason, *rows.keys)
            .select_from(rows.table)
            .where(*rows.where, *where)
            .order_by(rows.since, *rows.keys)
        )
        return [
            WaitRow(
                id=row[0], name=row[1], location=row[2], since=row[3], cause=row[4],
                reason=row[5], keys=tuple(row[6:]),
            )
            for row in self._execute(query)
        ]  # fmt: skip

    def described(self, page: Sequence[_Placed]) -> list[Wait]:
        """Returns the waits of a page, in its order."""
        of_place: dict[int, list[_Placed]] = defaultdict(list)
        for one in page:
            of_place[one.place].append(one)
        details: dict[tuple[int, tuple[Any, ...]], Details | Exception] = {}
        for place, placed in of_place.items():
            rows = [one.row for one in placed]
            try:
                with self._tx.begin_nested():
                    found = placed[0].rows.describe(self._tx, rows, self._scope)
            except Exception as error:
                if isinstance(error, DatabaseUnavailable):
                    raise
                found = {row.keys: error for row in rows}
            details |= {(place, keys): one for keys, one in found.items()}
        return [
            Wait.of_row(one.rows.kind, one.row, details.get((one.place, one.row.keys)))
            for one in page
        ]


@lru_cache(maxsize=_KEPT)
def _grouped(rows: WaitRows, wanted: WaitFilter) -> sa.Select[Any] | None:
    """Returns the statement for causes: how many, since when, and the keys of up to three.

    None: the filter admits none of the rows. To build it takes longer than to execute a small one.

    These are the first and the last of the oldest, and the last of all. To rank all rows of a cause
    costs five times as much.
    """
    where = wanted.conditions(rows)
    if where is None:
        return None
    *same, last = _labeled(rows.keys)
    columns: list[sa.ColumnElement[Any]] = [
        rows.cause.label("cause"),
        rows.since.label("since"),
        *same,
        last,
    ]
    query = sa.select(*columns).select_from(rows.table).where(*where)
    every, waits = query.subquery("every"), query.subquery("waits")
    groups = (
        sa.select(
            every.c.cause,
            sa.func.count().label("total"),
            sa.func.min(every.c.since, type_=rows.since.type).label("oldest"),
            sa.func.max(every.c[last.name], type_=last.type).label("newest"),
        )
        .group_by(every.c.cause)
        .cte("groups")
        # Else SQLite sorts the rows of both together.
        .prefix_with("MATERIALIZED")
    )
    key = waits.c[last.name]
    first = [
        sa.func.min(waits.c[column.name], type_=column.type).label(column.name) for column in same
    ]
    return (
        sa.select(
            groups.c.cause,
            groups.c.total,
            groups.c.oldest,
            *first,
            sa.func.min(key, type_=key.type).label("first"),
            sa.func.max(key, type_=key.type).label("last"),
            groups.c.newest,
        )
        .join(waits, (waits.c.cause == groups.c.cause) & (waits.c.since == groups.c.oldest))
        .group_by(groups.c.cause, groups.c.total, groups.c.oldest, groups.c.newest)
    )


def _keys_of(row: Any, number: int) -> list[tuple[Any, ...]]:
    same = tuple(row[3 : 2 + number])
    return [(*same, key) for key in (row.first, row.last, row.newest)]


def _labeled(keys: Sequence[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
    return [key.label(f"key_{number}") for number, key in enumerate(keys)]


def _among(rows: WaitRows, keys: Sequence[Sequence[Any]]) -> sa.ColumnElement[bool]:
    *same, last = rows.keys
    lasts: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for *first, key in keys:
        lasts[tuple(first)].append(key)
    # A term for each key would be too deep for SQLite in a long page.
    return sa.or_(
        *(
            sa.and_(
                *(column == value for column, value in zip(same, first, strict=True)),
                last.in_(found),
            )
            for first, found in lasts.items()
        )
    )


def _cursor(last: _Placed) -> Cursor:
    return Cursor(since=last.row.since, place=last.place, keys=last.row.keys)


def _example(row: WaitRow) -> Example:
    return Example(
        id=row.id, name=row.name, location=row.location, since=row.since, reason=row.reason
    )
