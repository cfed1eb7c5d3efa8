"""The state database: one handle, one way to begin a transaction."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

import sqlalchemy as sa

from arctic_orchestration.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    SchemaOutdated,
    SchemaTooNew,
)
from arctic_orchestration.state import address, dialect
from arctic_orchestration.state.connections import SharedEngine, shared_engine
from arctic_orchestration.state.migrations import VERSION_TABLE, upgrade
from arctic_orchestration.state.tables import schema_upgrades

_PACKAGE = "arctic-orchestration"

#: The revision of ``migrations/versions`` that this version of the package uses.
SCHEMA_REVISION = "0035"

#: how long a process goes on with a database that a newer version of the package has upgraded
_CHECK_SECONDS = 1.0


class Database:
    """A handle of the state database; on Postgres, those of a process share a connection pool.

    ``with database.begin() as tx:`` is one transaction: the whole block or nothing.
    """

    def __init__(self, url: str, *, busy_seconds: float = dialect.BUSY_SECONDS) -> None:
        parsed = address.parse(url)
        #: none: SQLite
        self._shared: SharedEngine | None = None
        if parsed.get_backend_name() == "sqlite":
            self.engine = dialect.make_engine(parsed, busy_seconds)
        else:
            whole = dialect.with_driver(parsed).render_as_string(hide_password=False)
            key = ("state", whole, busy_seconds)
            create = partial(dialect.make_engine, parsed, busy_seconds)
            self._shared = shared_engine(self, key, create)
            self.engine = self._shared.engine
        # Made once: making it takes longer than it takes to begin a transaction.
        self._reading = self.engine.execution_options(**dialect.READS[self.engine.dialect.name])
        #: where it is, and the opened one
        self._place = dialect.absolute(parsed)
        self._file: object = None
        #: when the revision is read again; none: never
        self._check_at: float | None = None

    @property
    def shown(self) -> str:
        """Its URL for people, without secrets."""
        return address.shown(self.engine.url)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        busy_seconds: float = dialect.BUSY_SECONDS,
        outlives_upgrades: bool = False,
    ) -> "Database":
        """Connects, and checks that the schema has the package's revision.

        SQLite is migrated at once; Postgres requires ``arctic db upgrade`` before.

        Args:
            url: the URL of SQLite or Postgres.
            busy_seconds: the time limit for a server's first answer, and for another writer of
                SQLite.
            outlives_upgrades: whether it goes on when a newer version of the package upgrades the
                database meanwhile, for a run that has begun. Otherwise, it writes nothing more.

        Errors:
            InvalidInput: it is not a URL of SQLite or Postgres.
            SchemaOutdated: Postgres has an older schema; the message contains the command.
            SchemaTooNew: a newer version of the package upgraded it.
            DatabaseUnavailable: no answer.
        """
        database = cls(url, busy_seconds=busy_seconds)
        try:
            database._bring_up_to_date()
        except BaseException:
            database.close()
            raise
        database._file = dialect.file_of(database._place)
        if not outlives_upgrades:
            database._check_at = time.monotonic() + _CHECK_SECONDS
        return database

    def _bring_up_to_date(self) -> None:
        revision = self.revision()
        if revision == SCHEMA_REVISION:
            return
        self.refuse_newer(revision)
        if not dialect.migrates_on_first_use(self.engine.url):
            found = f"revision {revision}" if revision else "no tables"
            raise SchemaOutdated(
                f"The state database has {found}, this version needs {SCHEMA_REVISION}. "
                "Run: arctic db upgrade"
            )
        self.upgrade()

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Begins a transaction that may write; committed at the end of the block.

        Errors:
            DatabaseUnavailable: the database did not answer, or the connection was lost, or a
                SQLite file is not the opened one any more.
            SchemaTooNew: a newer version of the package has upgraded it since it was opened.
        """
        if self._file is not None and not self.is_in_place():
            # A removed file can be written while it is open, and ends with this process.
            raise DatabaseUnavailable(
                "The file of the state database was removed or replaced since this process opened "
                "it: restart the process"
            )
        with _translated(), self.engine.begin() as tx:
            self._refuse_upgraded(tx)
            yield tx

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Begins a read-only transaction on one snapshot, which waits for no writer."""
        with _translated(), self._reading.begin() as tx:
            yield tx

    def _refuse_upgraded(self, tx: sa.Connection) -> None:
        # What goes on would launch runs, which refuse the database when they open it, and fail.
        if self._check_at is None or time.monotonic() < self._check_at:
            return
        revision = _revision(tx)
        if _is_newer(revision):
            raise _too_new(tx, revision)
        self._check_at = time.monotonic() + _CHECK_SECONDS

    def revision(self) -> str | None:
        """Returns the schema revision of the database; none: it has none of our tables."""
        with self.read() as tx:
            return _revision(tx)

    def refuse_newer(self, revision: str | None) -> None:
        """Refuses a schema that is newer than this version of the package.

        Errors:
            SchemaTooNew: names the version of the package that upgraded it.
        """
        if _is_newer(revision):
            with self.read() as tx:
                raise _too_new(tx, revision)

    def upgrade(self) -> None:
        """Upgrades the schema to :data:`SCHEMA_REVISION`; safe for concurrent processes.

        Errors:
            SchemaOutdated: it is from before the first migration.
            SchemaTooNew: a newer version of the package upgraded it.
        """
        with self.begin() as tx:
            dialect.lock(tx, "migrations")
            # A newer version may have held the lock until now.
            revision = _revision(tx)
            if _is_newer(revision):
                raise _too_new(tx, revision)
            upgrade(tx)
            values = {"revision": SCHEMA_REVISION, "package": version(_PACKAGE)}
            new = dialect.insert(tx, schema_upgrades).on_conflict_do_nothing()
            tx.execute(new.values(at=dialect.database_time(tx), **values))

    @staticmethod
    def is_missing(url: str) -> bool:
        """Returns whether the URL names a missing SQLite file."""
        parsed = address.parse(url)
        return dialect.is_file(parsed) and dialect.file_of(parsed) is None

    def is_in_place(self) -> bool:
        """Returns whether it is still the opened one: a SQLite file may be removed or replaced."""
        return self._file == dialect.file_of(self._place)

    def close(self) -> None:
        """Closes all connections, unless another handle shares them."""
        if self._shared is None:
            self.engine.dispose()
        else:
            self._shared.remove(self)


def _revision(tx: sa.Connection) -> str | None:
    if not sa.inspect(tx).has_table(VERSION_TABLE):
        return None
    return tx.execute(sa.text(f"select version_num from {VERSION_TABLE}")).scalar()


def _is_newer(revision: str | None) -> bool:
    return revision is not None and revision > SCHEMA_REVISION


def _too_new(tx: sa.Connection, revision: str | None) -> SchemaTooNew:
    table = schema_upgrades
    query = sa.select(table.c.package).where(table.c.revision == revision)
    package = tx.execute(query).scalar() if sa.inspect(tx).has_table(table.name) else None
    by = f"{_PACKAGE} {package}" if package else f"a newer version of {_PACKAGE}"
    return SchemaTooNew(
        f"The state database has revision {revision}, written by {by}; this is "
        f"{_PACKAGE} {version(_PACKAGE)}, which knows revisions up to {SCHEMA_REVISION}. "
        "Install that version again, or restore a backup from before the upgrade"
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sa.exc.DatabaseError as error:
        if isinstance(error, sa.exc.ProgrammingError) and error.statement is None:
            # No statement was sent yet: the driver rejects the URL's options.
            raise ConfigurationError(f"{address.FIELD} cannot be used: {error.orig}") from error
        if advice := _REMEDIES.get(_code(error)):
            refusal = str(error.orig).partition("\n")[0]
            raise DatabaseUnavailable(
                f"The state database refuses this user: {refusal}. {advice}"
            ) from error
        # Its subclasses concern statements, except for these; SQLite raises it for an invalid file.
        if type(error) not in _ABOUT_THE_SERVER or _statement_failed(error):
            raise
        if isinstance(error.orig, sqlite3.Error) and _is_read_only(error.orig):
            raise DatabaseUnavailable(
                "The state database is read-only for this user. Its file and its folder have to "
                "be writable for readers, too: SQLite keeps track of them in files beside it"
            ) from error
        raise DatabaseUnavailable(f"The state database did not answer: {error.orig}") from error
    except sa.exc.TimeoutError as error:
        raise DatabaseUnavailable(
            f"No connection to the state database is free: {error}"
        ) from error
    except sa.exc.InterfaceError as error:
        raise DatabaseUnavailable(f"The state database did not answer: {error.orig}") from error
    except dialect.driver_errors() as error:
        raise DatabaseUnavailable(f"The state database did not answer: {error}") from error


def _is_read_only(error: sqlite3.Error) -> bool:
    # The lowest byte is the error, without its cause.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY


#: A server that may not write any more, as after a failover, reports an internal error.
_ABOUT_THE_SERVER = (sa.exc.DatabaseError, sa.exc.OperationalError, sa.exc.InternalError)


def _statement_failed(error: sa.exc.DatabaseError) -> bool:
    """Returns whether the statement caused it: too large, or the transaction has failed."""
    code = _code(error)
    return code == "25P02" or code.startswith("54")


#: what to do, by Postgres's code of an error
_REMEDIES = {
    "42501": "Use the role that owns the tables, or grant it to this user",
    "3F000": "Create the schema that search_path names",
}


def _code(error: sa.exc.DatabaseError) -> str:
    """Returns Postgres's code of an error; empty: there is none."""
    return str(getattr(error.orig, "pgcode", None) or "")
