"""Which tables of a catalog are compacted automatically, and whether they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from arctic_orchestration.errors import InvalidInput

_WILDCARDS = frozenset("*?[")


class Mode(StrEnum):
    """What happens to the tables."""

    #: they are planned, and the plans are shown; nothing is offered, merged, committed or removed
    OBSERVE = "observe"
    #: they are compacted
    RUN = "run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Patterns of table names, and the mode.

    In a pattern ``*`` matches any text, dots included, ``?`` one character and ``[ab]`` one of
    several: ``*`` is every table, ``nyc.*`` the tables of one namespace.
    """

    tables: tuple[str, ...]
    mode: Mode

    @classmethod
    def of(cls, tables: Sequence[str], mode: str, *, field: str = "{}") -> "Scope":
        """Returns the scope from a user's values.

        Args:
            tables: patterns, one or more.
            mode: ``observe`` or ``run``.
            field: the form of a field's name in messages: ``--{}``.

        Errors:
            InvalidInput: no pattern, an empty pattern, or an unknown mode.
        """
        is_list = not isinstance(tables, str) and all(isinstance(one, str) for one in tables)
        if not is_list or not tables or not all(all(one.split(".")) for one in tables):
            expected = "names or patterns of tables, one or more: nyc.flights, nyc.*, * for all"
            raise InvalidInput(field.format("tables"), tables, expected)
        if mode not in list(Mode):
            raise InvalidInput(field.format("mode"), mode, " or ".join(Mode))
        return cls(tables=tuple(dict.fromkeys(tables)), mode=Mode(mode))

    def covers(self, table: str) -> bool:
        """Returns whether a pattern is or matches the name of a table."""
        return table in self.tables or any(fnmatchcase(table, one) for one in self.tables)

    def unmatched(self, tables: frozenset[str]) -> tuple[str, ...]:
        """Returns the patterns that match none of some tables; none without tables."""
        return _unmatched(self.tables, tables) if tables else ()

    @property
    def names(self) -> tuple[str, ...]:
        """The patterns that are full table names."""
        return tuple(one for one in self.tables if _WILDCARDS.isdisjoint(one))


@lru_cache(maxsize=4)
def _unmatched(patterns: tuple[str, ...], tables: frozenset[str]) -> tuple[str, ...]:
    # Cached, because each round asks, and a catalog may have 50,000 tables.
    return tuple(
        one
        for one in patterns
        if one not in tables and not any(fnmatchcase(table, one) for table in tables)
    )


#: every table is compacted
EVERYTHING = Scope(tables=("*",), mode=Mode.RUN)
