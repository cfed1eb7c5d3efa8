"""Statements of SQLAlchemy that are compiled once in a process, not once for each engine.

Each test has databases, and so engines, of its own: compiling the same statements again costs more
than a tenth of what the tests cost.
"""

from collections.abc import Hashable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.util import LRUCache

_STATEMENTS = 10_000
_compiled: "LRUCache[Hashable, Any]" = LRUCache(_STATEMENTS)


class _Shared:
    """The cache of one engine: it has the statements of all engines with a like dialect."""

    @staticmethod
    def get(key: tuple[Any, ...]) -> Any:
        return _compiled.get((_likeness(key[0]), *key[1:]))

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        _compiled[_likeness(key[0]), *key[1:]] = value

    @staticmethod
    def clear() -> None:
        """The statements stay: other engines have them, too."""


def _likeness(dialect: Dialect) -> Hashable:
    version = dialect.server_version_info
    options: Any = dialect
    return (
        type(dialect), dialect.driver, version, dialect.paramstyle,
        options._json_serializer, options._json_deserializer,
    )  # fmt: skip


def put_in_place() -> None:
    """From here on, for all engines of this process."""
    shared = _Shared()
    # A property and no new constructor: SQLAlchemy reads the arguments of the one it has.
    sa.Engine._compiled_cache = property(  # type: ignore[assignment]
        lambda self: shared, lambda self, cache: None
    )
