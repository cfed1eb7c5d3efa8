"""A short path to SQLite for statements that are executed repeatedly.

A simulated tick executes a dozen small statements. SQLAlchemy takes many times longer to find the
compiled form of one and to wrap its result than SQLite takes to execute it; together that is a
third of the time of a simulation.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

_Process = Callable[[Any], Any] | None
#: statements seen once that are cached, in case they come again
_REMEMBERED = 500


class _Prepared:
    """A statement in the driver's form: text, and conversions of parameters and results."""

    def __init__(self, statement: Any, dialect: sa.Dialect, names: Sequence[str] | None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=names)
        self.text = str(compiled)
        #: in the order of the placeholders: parameter, default, conversion to a plain value
        self._values: list[tuple[str, Any, _Process]] = []
        for name in compiled.positiontup or ():
            bind = compiled.binds[name]
            plain = bind.type.dialect_impl(dialect).bind_processor(dialect)
            self._values.append((bind.key, bind.effective_value, plain))
        #: for returned rows: their columns, and the columns whose values need a conversion
        self._row: Any = None
        self._read: list[tuple[int, Callable[[Any], Any]]] = []
        if isinstance(statement, sa.Select):
            columns = list(statement.selected_columns)
            names_of = [str(column.key) for column in columns]
            # A column without a name of its own is read by its position.
            self._row = collections.namedtuple("Row", names_of, rename=True)  # type: ignore[misc]
            for number, column in enumerate(columns):
                read = column.type.dialect_impl(dialect).result_processor(dialect, None)
                if read is not None:
                    self._read.append((number, read))
        #: whether the text is complete: it expands no list and returns no rows from a change
        self.is_plain = "POSTCOMPILE" not in self.text and not compiled.effective_returning

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """Returns the values of one execution, in the order of the placeholders."""
        return [
            given.get(key, value) if plain is None else plain(given.get(key, value))
            for key, value, plain in self._values
        ]

    def result(self, cursor: Any) -> Any:
        """Returns the result of an execution."""
        if self._row is None:
            return _Changed(cursor.rowcount)
        rows = cursor.fetchall()
        if self._read:
            for place, row in enumerate(rows):
                values = list(row)
                for number, read in self._read:
                    values[number] = read(values[number])
                rows[place] = values
        return _Rows(map(self._row._make, rows))


class _Changed:
    """The result of a statement that returns no rows."""

    def __init__(self, rowcount: int) -> None:
        self.rowcount = rowcount


class _Found(list[Any]):
    """Results, with the reading methods of SQLAlchemy's results."""

    def all(self) -> list[Any]:
        """Returns all of them."""
        return self

    def first(self) -> Any:
        """Returns the first one, or None."""
        return self[0] if self else None

    def one_or_none(self) -> Any:
        """Returns the only one, or None."""
        if len(self) > 1:
            raise sa.exc.MultipleResultsFound("several rows where one was expected")
        return self.first()

    def one(self) -> Any:
        """Returns the only one."""
        if not self:
            raise sa.exc.NoResultFound("no row where one was expected")
        return self.one_or_none()


class _Rows(_Found):
    """Rows, which can also be read as mappings, or by their first column."""

    def keys(self) -> tuple[str, ...]:
        """Returns the names of the columns, if there are rows."""
        return self[0]._fields if self else ()

    def mappings(self) -> _Found:
        """Returns the rows as mappings from the names of their columns."""
        return _Found(row._asdict() for row in self)

    def scalars(self) -> _Found:
        """Returns the first column."""
        return _Found(row[0] for row in self)

    def scalar(self) -> Any:
        """Returns the first column of the first row, or None."""
        return self[0][0] if self else None

    def scalar_one(self) -> Any:
        """Returns the first column of the only row."""
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        """Returns the first column of the only row, or None."""
        row = self.one_or_none()
        return row[0] if row is not None else None


class Shortcut:
    """A connection to SQLite that passes known statements directly to the driver.

    A statement is known by its identity from its second execution on: those are the statements that
    the engine builds once. All others, and all other functions of a connection, go through
    SQLAlchemy.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._driver: Any = connection.connection.dbapi_connection
        self._seen: dict[int, Any] = {}
        self._known: dict[int, Any] = {}
        self._prepared: dict[tuple[int, tuple[str, ...] | None], _Prepared] = {}
        self.dialect = connection.dialect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Any:
        """Executes a text in the driver's form."""
        if isinstance(parameters, list):
            return _Changed(self._driver.executemany(statement, parameters).rowcount)
        return self._connection.exec_driver_sql(statement, parameters)

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Executes a statement, once or for each of a list of parameters."""
        if not self._knows(statement):
            return self._connection.execute(statement, parameters)
        first = parameters[0] if isinstance(parameters, list) and parameters else parameters
        # The text of an insert or update depends on the given parameters.
        names = None if isinstance(statement, sa.Select) or not first else tuple(first)
        key = (id(statement), names)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = _Prepared(statement, self.dialect, names)
        if not prepared.is_plain:
            return self._connection.execute(statement, parameters)
        if isinstance(parameters, list):
            rows = [prepared.values(given) for given in parameters]
            return prepared.result(self._driver.executemany(prepared.text, rows))
        values = prepared.values(parameters or {})
        return prepared.result(self._driver.execute(prepared.text, values))

    def _knows(self, statement: Any) -> bool:
        place = id(statement)
        if place in self._known:
            return True
        # Kept alive, so that no other statement gets the same identity.
        if self._seen.get(place) is statement:
            self._known[place] = statement
            return True
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[place] = statement
        return False
