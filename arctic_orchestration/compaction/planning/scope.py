"""Which tables of a catalog are compacted without being asked for one by one, and whether."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from arctic_orchestration.errors import InvalidInput

_WILDCARDS = frozenset("*?[")


class Mode(StrEnum):
    """What is done with the tables."""

    #: they are planned, and the plan is shown; nothing is offered, merged, committed or removed
    OBSERVE = "observe"
    #: they are compacted
    RUN = "run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Patterns of table names, and the mode.

    In a pattern ``*`` stands for any text, dots included, ``?`` for one character and ``[ab]`` for
    one of some: ``*`` is every table, ``nyc.*`` those of one namespace.
    """

    tables: tuple[str, ...]
    mode: Mode

    @classmethod
    def of(cls, tables: Sequence[str], mode: str, *, field: str = "{}") -> "Scope":
        """The scope that a user wrote.

        Args:
            tables: patterns, one or more.
            mode: ``observe`` or ``run``.
            field: how a message names a field: ``--{}``.

        Errors:
            InvalidInput: no pattern or an empty one, or another mode.
        """
        is_list = not isinstance(tables, str) and all(isinstance(one, str) for one in tables)
        if not is_list or not tables or not all(all(one.split(".")) for one in tables):
            expected = "names or patterns of tables, one or more: nyc.flights, nyc.*, * for all"
            raise InvalidInput(field.format("tables"), tables, expected)
        if mode not in list(Mode):
            raise InvalidInput(field.format("mode"), mode, " or ".join(Mode))
        return cls(tables=tuple(dict.fromkeys(tables)), mode=Mode(mode))

    def covers(self, table: str) -> bool:
        """Whether a pattern matches the name of a table."""
        return any(fnmatchcase(table, pattern) for pattern in self.tables)

    @property
    def names(self) -> tuple[str, ...]:
        """The patterns that are the name of one table."""
        return tuple(one for one in self.tables if _WILDCARDS.isdisjoint(one))


#: every table is compacted
EVERYTHING = Scope(tables=("*",), mode=Mode.RUN)
