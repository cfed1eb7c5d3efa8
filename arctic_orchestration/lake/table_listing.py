"""The tables that a catalog lists."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError
from pyiceberg.typedef import Identifier
from sqlalchemy import select

from arctic_orchestration.errors import CatalogUnavailable
from arctic_orchestration.lake.catalog_answers import answered, is_away
from arctic_orchestration.state.dialect import storable

_log = logging.getLogger("arctic_orchestration.lake")

#: Namespaces with a warning: catalogs are listed again and again, with another text each time.
_warned_of: set[str] = set()
#: After this many consecutive namespaces without an answer, the catalog itself is asked.
_SILENT_NAMESPACES = 3


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The tables of a catalog.

    Args:
        names: the identifiers, sorted.
        unlisted: the namespaces whose tables could not be listed, with the reason.
    """

    names: list[str]
    unlisted: Mapping[str, str]

    def may_have(self, name: str) -> bool:
        """Returns whether a table that is not listed may be there all the same."""
        return any(name.startswith(f"{namespace}.") for namespace in self.unlisted)


def list_catalog(catalog: Catalog) -> Listing:
    """Lists the tables of all namespaces.

    A namespace that cannot be listed leaves out its own tables, with a warning. Tables with a dot
    in a name of their identifier are left out, too: no identifier could tell them from tables of a
    deeper namespace; and so are those whose names no state database could hold.

    Errors:
        CatalogUnavailable: the catalog did not answer, after several tries.
    """
    found, unlisted, seen = set[str](), dict[str, str](), set[Identifier]()
    left = answered(lambda: list(catalog.list_namespaces()), catalog.name)
    silent = 0
    while left:
        namespace = left.pop()
        if namespace in seen:
            continue
        seen.add(namespace)
        tables = None
        try:
            tables = answered(partial(_listed, catalog.list_tables, namespace), catalog.name)
            found.update(filter(None, map(_identifier, tables or ())))
            below = answered(partial(_listed, catalog.list_namespaces, namespace), catalog.name)
            left.extend(below or ())
        except Exception as error:
            silent = silent + 1 if isinstance(error, CatalogUnavailable) else 0
            if silent and silent % _SILENT_NAMESPACES == 0 and is_away(catalog):
                raise
            reason = str(error)
        else:
            silent = 0
            if tables is not None and below is not None:
                continue
            reason = "the catalog refuses to list them"
        name = ".".join(namespace)
        if name not in _warned_of:
            what = "tables" if tables is None else "namespaces"
            _log.warning("the %s of %s are left out: %s", what, name, reason)
            _warned_of.add(name)
        unlisted[name] = reason
    return Listing(names=sorted(found), unlisted=unlisted)


def list_tables(catalog: Catalog) -> list[str]:
    """Returns the identifiers of :func:`list_catalog`.

    Errors:
        CatalogUnavailable: the catalog did not answer, after several tries.
    """
    return list_catalog(catalog).names


def _listed(
    listing: Callable[[Identifier], Iterable[Identifier]], namespace: Identifier
) -> list[Identifier] | None:
    """Returns what is in a namespace; None: it may not be listed."""
    try:
        return list(listing(namespace))
    except NoSuchNamespaceError:
        # It was dropped since, or the catalog has no deeper ones.
        return []
    except ForbiddenError:
        return None


def _identifier(table: Identifier) -> str | None:
    """Returns the names, joined by dots; None: one has a dot, or what no database can hold."""
    identifier = ".".join(table)
    if any("." in name for name in table):
        _warn_of(tuple(table), "without dots")
    elif storable(identifier) != identifier:
        _warn_of(tuple(table), "that a database can hold")
    else:
        return identifier
    return None


@cache
def _warn_of(table: Identifier, expected: str) -> None:
    _log.warning("the table %r is left out: expected names %s", table, expected)


def metadata_locations(catalog: Catalog) -> dict[str, str] | None:
    """Returns where the present metadata of each table is, by its name, with one query.

    Each commit changes the location, so a table with a known one has not changed.

    Returns:
        none: this kind of catalog has no such query; pyiceberg's SQL catalog has one.

    Errors:
        CatalogUnavailable: the catalog did not answer, after several tries.
    """
    if not isinstance(catalog, SqlCatalog):
        return None
    stored = IcebergTables.__table__.c
    query = select(stored.table_namespace, stored.table_name, stored.metadata_location)
    query = query.where(stored.catalog_name == catalog.name)

    def look() -> dict[str, str]:
        with catalog.engine.connect() as connection:
            return {
                f"{space}.{name}": at
                for space, name, at in connection.execute(query)
                if "." not in name
            }

    return answered(look, catalog.name)
