"""Shares engines of Postgres among the parts of a process: one pool for each database.

Each sensor of a code location has its own handle of the state database, and its own reader of
Dagster's event log. With an engine each, an idle process would keep connections for each of them.
The pool keeps few connections open; those beyond are closed on their return.

SQLite is not shared: its connections cost no server anything, and a handle whose file was replaced
must not get connections to the old file.
"""

import os
import threading
from collections.abc import Callable, Hashable
from weakref import WeakSet, WeakValueDictionary

import sqlalchemy as sa


class SharedEngine:
    """An engine and its users, whose connections are closed after the last one is removed."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        #: weak, since a handle may be dropped without being closed
        self._users: WeakSet[object] = WeakSet()

    def add(self, user: object) -> None:
        """Adds a user: the pool stays until it is removed."""
        with _lock:
            self._users.add(user)

    def remove(self, user: object) -> None:
        """Removes a user, if it is one; closes all idle connections unless there are others."""
        with _lock:
            self._users.discard(user)
            if not self._users:
                self.engine.dispose()


#: an engine ends with the last object that refers to it
_engines: WeakValueDictionary[Hashable, SharedEngine] = WeakValueDictionary()
#: reentrant: the collection of garbage may close a handle at any point
_lock = threading.RLock()


def shared_engine(user: object, key: Hashable, create: Callable[[], sa.Engine]) -> SharedEngine:
    """Returns this process's engine for a key, made by ``create`` if there is none.

    Args:
        user: a new user of the engine, which has to keep the result.
        key: the URL, and all options that distinguish engines.
        create: makes an engine, and connects to nothing.
    """
    with _lock:
        found = _engines.get(key)
        if found is None:
            found = _engines[key] = SharedEngine(create())
        found.add(user)
        return found


def _leave_to_parent() -> None:
    """In a forked process: leaves all connections to the parent, which goes on to use them."""
    global _lock
    # A thread of the parent may have held it.
    _lock = threading.RLock()
    for found in list(_engines.values()):
        found.engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_to_parent)
