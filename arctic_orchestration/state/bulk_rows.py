"""Writes many rows by the driver's fastest way."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.state.dialect import (
    EscapedText,
    UtcTime,
    check_aware,
    storable,
    utc_text,
)


def insert_rows(
    connection: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> None:
    """Inserts many rows by the driver's fastest way: ``COPY``, or its ``executemany``.

    Values are text, numbers, moments or None, in the order of ``columns``.
    """
    if not rows:
        return
    rows = _mended(table, columns, rows)
    if connection.dialect.name == "sqlite":
        statement = _insert_text(table, tuple(columns))
        connection.exec_driver_sql(statement, _plain(table, columns, rows))
        return
    names = ", ".join(f'"{column}"' for column in columns)
    lines = io.StringIO("".join("\t".join(map(_copied, row)) + "\n" for row in rows))
    with _driver_cursor(connection) as cursor:
        cursor.copy_expert(f"copy {table.name} ({names}) from stdin", lines)


def update_rows(
    connection: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> None:
    """Updates many rows of a table by their ``id``, in few statements.

    Each row consists of the values of ``columns`` and the id.
    """
    rows = _mended(table, columns, rows)
    if connection.dialect.name == "sqlite":
        statement = _update_text(table, tuple(columns))
        connection.exec_driver_sql(statement, _plain(table, columns, rows))
        return
    from psycopg2.extras import execute_values

    names = [*columns, "id"]
    types = [table.c[name].type.compile(connection.dialect) for name in names]
    sets = ", ".join(f'"{column}" = given."{column}"' for column in columns)
    given = ", ".join(f'"{name}"' for name in names)
    statement = (
        f"update {table.name} set {sets} from (values %s) as given ({given}) "
        f"where {table.name}.id = given.id"
    )
    for row in rows:
        for value in row:
            if isinstance(value, datetime):
                check_aware(value)
    template = "(" + ", ".join(f"%s::{kind}" for kind in types) + ")"
    with _driver_cursor(connection) as cursor:
        execute_values(cursor, statement, rows, template=template, page_size=1000)


@contextmanager
def _driver_cursor(connection: sa.Connection) -> Iterator[Any]:
    """Yields a cursor of the driver itself, within the connection's transaction."""
    cursor = connection.connection.cursor()
    driver: Any = connection.dialect.dbapi
    try:
        yield cursor
    except (driver.OperationalError, driver.InterfaceError) as error:
        # As SQLAlchemy wraps it, so that a lost connection raises the same error everywhere.
        raise sa.exc.OperationalError(None, None, error) from error
    except driver.InternalError as error:
        raise sa.exc.InternalError(None, None, error) from error
    finally:
        cursor.close()


def _plain(
    table: sa.Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """Returns the rows with values for SQLite's driver: moments as text."""
    moments = _moments(table, tuple(columns))
    plain = []
    for row in rows:
        values = list(row)
        for n in moments:
            if values[n] is not None:
                values[n] = utc_text(values[n])
        plain.append(tuple(values))
    return plain


def _mended(
    table: sa.Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> Sequence[Sequence[Any]]:
    """Returns the rows with texts for people in the form of :class:`EscapedText`."""
    text_columns = _text_columns(table, tuple(columns))
    if not text_columns:
        return rows
    mended = []
    for row in rows:
        values = list(row)
        for n in text_columns:
            if values[n] is not None:
                values[n] = storable(values[n])
        mended.append(values)
    return mended


@cache
def _text_columns(table: sa.Table, columns: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the indexes of columns with text for people."""
    return tuple(n for n, name in enumerate(columns) if isinstance(table.c[name].type, EscapedText))


@cache
def _moments(table: sa.Table, columns: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the indexes of columns with moments."""
    return tuple(n for n, name in enumerate(columns) if isinstance(table.c[name].type, UtcTime))


@cache
def _insert_text(table: sa.Table, columns: tuple[str, ...]) -> str:
    names = ", ".join(f'"{column}"' for column in columns)
    return f"insert into {table.name} ({names}) values ({', '.join('?' * len(columns))})"


@cache
def _update_text(table: sa.Table, columns: tuple[str, ...]) -> str:
    sets = ", ".join(f'"{column}" = ?' for column in columns)
    return f"update {table.name} set {sets} where id = ?"


def _copied(value: Any) -> str:
    """Formats a value in the text format of ``COPY``."""
    if value is None:
        return "\\N"
    if isinstance(value, datetime):
        return f"{utc_text(value)}+00"
    return str(value).translate(_COPY_ESCAPES)


_COPY_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
