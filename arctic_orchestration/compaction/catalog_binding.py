"""Binds a state database to one catalog.

Tables are known by their names. A second catalog with the same state database would not contain the
tables of the first: it would cancel their tasks and drop merged files. So the first user of a state
database records its catalog; users with another catalog are refused.
"""

from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import compaction_catalog
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

_THE_ONE = 1


def identity_of(catalog: Catalog) -> str:
    """Returns a text that identifies a catalog for all users, without passwords.

    It contains the name and the place. For a catalog in a database the place is that database: a
    file by its resolved path, a server without user and password. Else it is address and warehouse.
    """
    properties = catalog.properties
    uri = properties.get("uri", "")
    scheme = uri.split("://", 1)[0].split("+", 1)[0]
    if scheme == "sqlite":
        return f"{catalog.name} in {_file(uri)}"
    where = _without_user(uri) if uri else properties.get("type", "no address")
    if scheme in ("postgresql", "postgres", "mysql"):
        return f"{catalog.name} at {where}"
    warehouse = properties.get("warehouse", "").rstrip("/")
    return f"{catalog.name} at {where}" + (f", warehouse {warehouse}" if warehouse else "")


def require_same(database: Database, catalog: Catalog) -> None:
    """Requires that a state database is bound to this catalog; the first call binds it.

    Errors:
        ConfigurationError: it is bound to another one; the message names both, and what to do.
        DatabaseUnavailable: the state database did not answer.
    """
    ours = identity_of(catalog)
    with database.read() as tx:
        theirs = bound_catalog(tx)
    if theirs is None:
        with database.begin() as tx:
            new = dialect.insert(tx, compaction_catalog).values(
                id=_THE_ONE, identity=ours, since=database_time(tx)
            )
            tx.execute(new.on_conflict_do_nothing())
            theirs = bound_catalog(tx)
    _check(theirs, ours)


def refuse_other(database: Database, catalog: Catalog) -> None:
    """Like :func:`require_same`; does not bind a state database that is not bound yet."""
    with database.read() as tx:
        theirs = bound_catalog(tx)
    if theirs is not None:
        _check(theirs, identity_of(catalog))


def _check(theirs: str | None, ours: str) -> None:
    if theirs != ours:
        raise ConfigurationError(
            f"The state database is about the catalog {theirs}, and not about {ours}. Give this "
            "one a state database of its own: ARCTIC_DATABASE_URL. If it is the same catalog, and "
            "has moved: arctic compaction forget-catalog"
        )


def bound_catalog(tx: sa.Connection) -> str | None:
    """Returns the catalog that the state database is bound to; none: it is not bound yet."""
    found: str | None = tx.execute(sa.select(compaction_catalog.c.identity)).scalar()
    return found


def forget(tx: sa.Connection) -> str | None:
    """Unbinds the state database from its catalog; the next user binds it.

    Returns:
        the catalog that it was bound to; none: it was not bound.
    """
    return tx.execute(
        sa.delete(compaction_catalog).returning(compaction_catalog.c.identity)
    ).scalar()


def _file(uri: str) -> str:
    """Returns the file of a SQLite database, in whichever form its path is written."""
    database = sa.make_url(uri).database
    if not database or database == ":memory:":
        return "memory"
    return str(Path(database).expanduser().resolve())


def _without_user(uri: str) -> str:
    """Returns an address without user, password, driver and access mode."""
    parts = urlsplit(uri)
    if not parts.netloc:
        return uri
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme.split('+', 1)[0]}://{host}{parts.path.rstrip('/')}"
