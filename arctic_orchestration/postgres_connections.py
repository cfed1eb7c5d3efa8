"""Reuses connections to Dagster's Postgres, in processes of which there are few or that are short.

Dagster's storages open a connection for each statement, so that a process holds none while it has
nothing to ask: a run of one op opens about a hundred, which costs the server more CPU time than the
run takes itself. Here the three storages of a process share an engine with a pool. A connection
that the server has closed is replaced when it is next used, and an idle one is closed.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import sqlalchemy
from dagster import DagsterInstance
from sqlalchemy.pool import NullPool

from arctic_orchestration.connection_pools import PatientPool, leave_read_only_servers
from arctic_orchestration.dagster_internals import (
    connect_postgres,
    create_postgres_engine,
    postgres_storages_of,
    replace_engine,
    replace_engine_factory,
)

#: How long an idle connection is kept: a run of hours must not hold one for hours.
_IDLE_SECONDS = 5.0

#: by their addresses
_engines: dict[str, sqlalchemy.Engine] = {}
_lock = threading.Lock()
_used = threading.Event()
_closer: threading.Thread | None = None


def reuse_in_process() -> None:
    """Lets each instance that this process creates from now on reuse connections."""
    replace_engine_factory(_create)


def reuse_in_instance(
    instance: DagsterInstance, *, statement_milliseconds: int | None = None
) -> None:
    """Lets an existing instance reuse connections; others than Postgres are left alone.

    Args:
        instance: with storages of Dagster's own.
        statement_milliseconds: after which a statement is ended, in this instance and in those that
            share its connections. None: never.
    """
    for storage in postgres_storages_of(instance):
        create = partial(connect_postgres, storage)
        replace_engine(storage, _shared(storage.postgres_url, create, statement_milliseconds))


def reuse_from_now_on() -> None:
    """Like :func:`reuse_in_process`, also where Dagster has not yet imported its storages."""
    # Without a working driver there is no such instance; Dagster says so where there should be one.
    with suppress(ImportError):
        import_module("dagster_postgres")
    reuse_in_process()


def reused(url: str) -> sqlalchemy.Engine | None:
    """Returns the engine that the storages at an address share; None if they share none."""
    return _engines.get(url)


def _create(url: str, token_provider: Any = None, **options: Any) -> sqlalchemy.Engine:
    create = partial(create_postgres_engine, url, token_provider)
    # Dagster's webserver asks for a pool of its own.
    pooled = options.get("poolclass") is not NullPool
    return create(**options) if pooled else _shared(url, create)


def _shared(
    url: str, create: Callable[..., sqlalchemy.Engine], statement_milliseconds: int | None = None
) -> sqlalchemy.Engine:
    """Returns the engine of an address, in place of one that opens a connection for each use."""
    with _lock:
        if url not in _engines:
            _engines[url] = engine = create(
                isolation_level="AUTOCOMMIT",
                poolclass=PatientPool,
                pool_size=1,
                max_overflow=-1,
            )
            sqlalchemy.event.listen(engine, "checkin", _note_use)
            leave_read_only_servers(engine)
            if statement_milliseconds is not None:
                limit = partial(_limit_statements, statement_milliseconds)
                sqlalchemy.event.listen(engine, "connect", limit)
        return _engines[url]


def _limit_statements(milliseconds: int, connection: Any, _record: object) -> None:
    # As Dagster's webserver does: a pooler refuses options of a connection.
    with connection, connection.cursor() as cursor:
        cursor.execute("set statement_timeout = %s", (milliseconds,))


def _note_use(*_: object) -> None:
    global _closer
    _used.set()
    if _closer is None:
        _closer = threading.Thread(target=_close_idle, name="idle connections", daemon=True)
        _closer.start()


def _close_idle() -> None:
    while True:
        _used.wait()
        _used.clear()
        time.sleep(_IDLE_SECONDS)
        if not _used.is_set():
            for engine in list(_engines.values()):
                # Not of the engine: it would replace the pool, and what is in use meanwhile goes
                # back to the old one, where it stays open.
                engine.pool.dispose()


def _leave_to_parent() -> None:
    """In a forked process: leaves the connections and the thread to the parent."""
    global _closer, _lock, _used
    _closer, _lock, _used = None, threading.Lock(), threading.Event()
    for engine in _engines.values():
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_to_parent)
