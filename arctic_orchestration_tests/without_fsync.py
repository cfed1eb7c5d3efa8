"""SQLite that does not wait for the disk, as the tests' Postgres server does not.

What is committed survives the end of any process; only a crash of the machine could lose it.
"""

import sqlite3

import sqlalchemy as sa
from sqlalchemy.pool import Pool


def put_in_place() -> None:
    """From here on, for all engines of this process and of those that are forked from it."""
    sa.event.listen(Pool, "checkout", _turn_off)


def take_away() -> None:
    """Connections that are made from here on wait for the disk, as far as their settings say so."""
    sa.event.remove(Pool, "checkout", _turn_off)


def _turn_off(connection: object, _record: object, _proxy: object) -> None:
    # After all that is done to a new connection, which may have asked for the opposite.
    if isinstance(connection, sqlite3.Connection) and not connection.in_transaction:
        connection.execute("PRAGMA synchronous = OFF")
