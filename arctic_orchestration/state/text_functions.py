"""Functions on text that SQLite and Postgres name differently, for conditions and groups in SQL."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

#: of the names of rules, triggers and constraints in stored JSON
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"


class position(GenericFunction[int]):
    """The place of one text in another, from 1; 0: it is not in it."""

    type = sa.Integer()
    inherit_cache = True


@compiles(position, "sqlite")
def _in_sqlite(element: position, compiler: Any, **given: Any) -> str:
    return f"instr({compiler.process(element.clauses, **given)})"


@compiles(position, "postgresql")
def _in_postgres(element: position, compiler: Any, **given: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **given)})"


def until(text: sa.ColumnElement[str], mark: str) -> sa.ColumnElement[str]:
    """Returns the part of a text before the first mark, or all of it."""
    begin = sa.func.substr(text, 1, position(text, mark) - 1, type_=sa.Text)
    return sa.case((position(text, mark) == 0, text), else_=begin)


def after(text: sa.ColumnElement[str], mark: str) -> sa.ColumnElement[str]:
    """Returns the part of a text after the first mark of one character; without one all of it."""
    return sa.func.substr(text, position(text, mark) + 1, type_=sa.Text)


def last_word(text: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Returns the small letters and underscores at the end of a text."""
    before = sa.func.length(sa.func.rtrim(text, _LETTERS))
    return sa.func.substr(text, before + 1, type_=sa.Text)
