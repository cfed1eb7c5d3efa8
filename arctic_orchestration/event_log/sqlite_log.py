"""Dagster's event log in SQLite: the index database that all runs are mirrored into.

SQLite has one writer at a time and gives a new row the largest id plus one, so ids are in the
order of commits and a plain cursor misses nothing. But when the newest rows are deleted
(``wipe_asset``, ``delete_run``), their ids are reused, and a plain cursor skips the new rows under
them.

The guard. A new row always gets an id above all others. So the remaining rows are always in the
order of their arrival: first the delivered ones, then the others. A position therefore stores
fingerprints of delivered rows: of the last 256, of one among 1,024 ids for the 65,536 ids before,
and of one among 65,536 ids for four million more. If the row at the position is still the delivered
one, then so is everything below it, and reading goes on above. If it is missing or was replaced,
reading goes on above the newest stored row that is unchanged. Then

* no row under a reused id is missed;
* no row is delivered twice, as long as one of the last 256 delivered rows is left;
* otherwise, if only rows of wiped assets are gone, the delivered rows above the newest unchanged
  mark that were not wiped are delivered a second time; if no mark is left, everything in the log
  counts as new.

A restored log. It lacks its newest rows, too, and its ids are reused as well. It differs from a log
in which assets were wiped or runs deleted: those take all rows of the asset or the run. So asset,
run and moment of the last 16 delivered rows are stored. If one is gone or replaced, and its asset
has older rows and its run has rows left, then the log was restored, and reading stops with
``LogWentBack``. If a restored log has lost all rows of some runs, it looks as if the runs were
deleted: reading goes on above the newest unchanged row, which is right for both, as long as one of
the last 256 is left. If none is, and older events would come again, it stops, too.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from arctic_orchestration.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
    LogWentBack,
)
from arctic_orchestration.event_log.feed import FeedMode
from arctic_orchestration.event_log.log_rows import COLUMNS, TYPES
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.watermark import Row

#: The number of last delivered rows that a position stores one by one.
TRAIL = 256
#: Below them, one row of every ``MARK_EVERY`` ids is stored, ``MARKS`` times; then spans grow.
MARK_EVERY = 1_024
MARKS = 64
#: The number of last delivered rows whose asset, run and moment a position stores.
TAIL = 16

_LARGEST_ID = 2**63 - 1

_BUSY_SECONDS = 60
_CHUNK = 500
# Without the text of the event: Dagster's migrations may rewrite it in another form.
_MARKED = 'id, run_id, dagster_event_type, cast("timestamp" as text), asset_key, "partition"'


class SqliteSql:
    """Runs statements on one SQLite file, which is only read."""

    placeholder = "?"
    #: whether the row ``e`` is from before its asset ``k`` was wiped
    is_wiped = 'k.wipe_timestamp >= e."timestamp"'

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._watched: tuple[sqlite3.Connection, tuple[int, int]] | None = None

    def version(self) -> object:
        """Returns a value that stays equal while no process writes to the file.

        The watching connection is kept open: SQLite counts the changes by others for each
        connection (``PRAGMA data_version``).

        Errors:
            DatabaseUnavailable: the file cannot be read.
        """
        try:
            found = os.stat(self.path)
            file = (found.st_dev, found.st_ino)
            if self._watched is None or self._watched[1] != file:
                self.close()
                connection = sqlite3.connect(
                    self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
                )
                self._watched = (connection, file)
            connection = self._watched[0]
            return connection, connection.execute("pragma data_version").fetchone()[0]
        except (OSError, sqlite3.Error) as error:
            raise DatabaseUnavailable(f"Dagster's storage {self.path}: {error}") from error

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A function that runs a statement and returns its rows, all in one snapshot.

        Errors:
            DatabaseUnavailable: the file is locked for too long or cannot be read.
        """
        if not self.path.exists():
            raise ConfigurationError(f"Dagster's storage {self.path} does not exist")
        try:
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                # A text that is no UTF-8 must not stop the reading of later rows.
                connection.text_factory = _text
                connection.execute("begin")

                def run(statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
                    return connection.execute(statement, parameters).fetchall()

                yield run
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise DatabaseUnavailable(f"Dagster's storage {self.path}: {error}") from error

    def rows_in(self, statement: str, values: Sequence[str], *before: Any) -> list[Row]:
        """Returns rows of a statement whose ``{in}`` stands for a membership test in ``values``."""
        found: list[Row] = []
        with self.session() as run:
            for start in range(0, len(values), _CHUNK):
                chunk = values[start : start + _CHUNK]
                marks = ", ".join("?" * len(chunk))
                found += run(statement.replace("{in}", f"in ({marks})"), [*before, *chunk])
        return found

    @staticmethod
    def table_of(values: Sequence[Any]) -> tuple[str, Any]:
        """Returns a table ``(value)`` of some values for a statement, and its parameter."""
        return "(select value from json_each(?))", json.dumps(list(values))

    @staticmethod
    def whole_number(text: str) -> str:
        """Returns an expression for the number that a text column has; 0 if it has none."""
        digits = f"substr({text}, 2) not glob '*[^0-9]*' and length({text}) < 19"
        return (
            f"case when ({text} glob '[0-9]*' or {text} glob '[-+][0-9]*') and {digits} "
            f"then cast({text} as integer) else 0 end"
        )

    @staticmethod
    def moment_before(at: datetime) -> str:
        """Returns a moment in the form of Dagster's timestamp columns, or an earlier one."""
        return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    def close(self) -> None:
        """Closes the connection that watches for changes."""
        if self._watched is not None:
            self._watched[0].close()
        self._watched = None


class SqliteLog:
    """Reads the index database of Dagster's SQLite storage."""

    kind = "sqlite"
    mode = FeedMode.EXACT
    mode_reason = "SQLite has one writer at a time, so ids are in the order of commits"
    lag: timedelta | None = None

    def __init__(self, path: str) -> None:
        self.sql = SqliteSql(path)

    def read(self, state: Any, limit: int) -> tuple[list[Row], dict[str, Any], bool]:
        """Returns rows, next state, and whether more is there now."""
        trail = _trail_of(state)
        marks = ", ".join("?" * len(TYPES))
        with self.sql.session() as run:
            kept = _still_true(run, trail)
            tail = _tail_of(state)
            if len(kept) < len(trail):
                _check_went_back(run, tail, trail, kept)
                still = {number for number, _ in kept}
                tail = [witness for witness in tail if witness[0] in still]
            trail = kept
            after = trail[-1][0] if trail else 0
            rows = run(
                f"select {COLUMNS} from event_logs "
                f"where id > ? and dagster_event_type in ({marks}) order by id limit ?",
                (after, *TYPES, limit),
            )
        more = len(rows) >= limit
        added = [_mark(_marked(row)) for row in _remembered(rows)]
        tail = [*tail, *(_witness(_marked(row)) for row in rows[-TAIL:])][-TAIL:]
        return rows, _state_of([*trail, *added], tail), more

    def end(self) -> dict[str, Any]:
        """Returns the state "from now on"."""
        return self.before(_LARGEST_ID)

    def before(self, event_id: int) -> dict[str, Any]:
        """Returns the state whose next reading begins with the event with this id."""
        marks = ", ".join("?" * len(TYPES))
        below = f"id < {int(event_id)}"
        wanted = f"from event_logs where {below} and dagster_event_type in ({marks})"
        with self.sql.session() as run:
            spaced = run(
                f"select {_MARKED} from event_logs where id in "
                f"(select max(id) {wanted} group by id / {MARK_EVERY}) order by id",
                TYPES,
            )
            last = run(f"select {_MARKED} {wanted} order by id desc limit ?", (*TYPES, TRAIL))
        older = [row for row in spaced if row[0] < last[-1][0]] if last else []
        tail = [_witness(row) for row in reversed(last[:TAIL])]
        return _state_of([_mark(row) for row in (*older, *reversed(last))], tail)

    def delivered(self, state: Any) -> tuple[int, IdRanges]:
        """Returns the id up to which all rows were delivered, and the delivered ids above it."""
        with self.sql.session() as run:
            kept = _still_true(run, _trail_of(state))
        return (kept[-1][0] if kept else 0), IdRanges()

    def first_since(self, moment: datetime) -> int | None:
        """Returns the id of the first event that is not older than a moment, or None."""
        query = 'select min(id) from event_logs where "timestamp" >= ?'
        with self.sql.session() as run:
            found = run(query, (self.sql.moment_before(moment),))[0][0]
        return None if found is None else int(found)

    @staticmethod
    def other_zone() -> None:
        """Returns None: SQLite has no time zone, and Dagster writes UTC."""


Mark = tuple[int, int]
#: id, asset key, run id and time of a row
Witness = tuple[int, str | None, str | None, str]


def _check_went_back(
    run: Any, tail: Sequence[Witness], trail: Sequence[Mark], kept: Sequence[Mark]
) -> None:
    """Checks that missing last rows were wiped or deleted; see the module's docstring.

    Errors:
        LogWentBack: they were not.
    """
    known = dict(trail)
    there = {mark[0] for mark in kept}
    by_runs = False
    for number, asset, run_id, stamp in tail:
        if number in there or number not in known:
            continue
        is_wiped = bool(asset) and not _has_rows(run, "asset_key", asset, stamp)
        if not is_wiped and not (run_id and not _has_rows(run, "run_id", run_id, stamp)):
            raise LogWentBack(f"the event with id {number} is not the one that was read")
        by_runs |= not is_wiped
    recent = {mark[0] for mark in trail[-TRAIL:]}
    if by_runs and not recent & there and _is_old_left(run, max(there, default=0), tail[0][3]):
        raise LogWentBack(f"more than {TRAIL} of the events that were read last are gone")


def _is_old_left(run: Any, above: int, stamp: str) -> bool:
    """Returns whether there are wanted rows above an id that are not younger than a moment."""
    marks = ", ".join("?" * len(TYPES))
    query = (
        f'select 1 from event_logs where id > ? and "timestamp" <= ? '
        f"and dagster_event_type in ({marks}) limit 1"
    )
    return bool(run(query, (above, stamp, *TYPES)))


def _has_rows(run: Any, column: str, value: str | None, stamp: str) -> bool:
    """Returns whether there are rows of an asset or a run that are not younger than a moment."""
    query = f'select 1 from event_logs where {column} = ? and "timestamp" <= ? limit 1'
    return bool(run(query, (value, stamp)))


def _still_true(run: Any, trail: list[Mark]) -> list[Mark]:
    """Returns the stored marks up to the newest row that is unchanged."""
    for index in range(len(trail) - 1, -1, -1):
        number, fingerprint = trail[index]
        found = run(f"select {_MARKED} from event_logs where id = ?", (number,))
        if found and _mark(found[0])[1] == fingerprint:
            return trail[: index + 1]
    return []


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _mark(row: Row) -> Mark:
    return row[0], zlib.crc32(repr(row).encode())


def _witness(row: Row) -> Witness:
    return row[0], row[4], row[1], row[3]


def _marked(row: Row) -> Row:
    """Returns the columns by which a row of the feed is recognised again."""
    number, kind, stamp, asset, partition, run_id, _ = row
    return number, run_id, kind, stamp, asset, partition


def _remembered(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows whose fingerprints a position may need."""
    cut = max(0, len(rows) - TRAIL)
    return [*_one_in(rows[:cut], MARK_EVERY), *rows[cut:]]


def _one_in(rows: Sequence[Any], span: int) -> list[Any]:
    """Returns the last row of each span of ids."""
    return list({row[0] // span: row for row in rows}.values())


def _state_of(marks: Sequence[Mark], tail: Sequence[Witness]) -> dict[str, Any]:
    recent = marks[-TRAIL:]
    spaced = _one_in(marks[:-TRAIL], MARK_EVERY)
    sparse = _one_in(spaced[:-MARKS], MARK_EVERY * MARKS)[-MARKS:]
    return {
        "marks": [list(mark) for mark in (*sparse, *spaced[-MARKS:], *recent)],
        "tail": [list(witness) for witness in tail],
    }


def _tail_of(state: Any) -> list[Witness]:
    found = state.get("tail", ()) if state is not None else ()
    return [(int(number), asset, run_id, stamp) for number, asset, run_id, stamp in found]


def _trail_of(state: Any) -> list[Mark]:
    if state is None:
        return []
    try:
        return [(int(number), int(fingerprint)) for number, fingerprint in state["marks"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("position", state, "a position of a SQLite log") from error
