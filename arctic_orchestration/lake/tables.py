"""The catalog of the lake's tables: finds tables, and creates missing ones."""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

import pydantic
from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, Catalog, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
    WaitingForLockException,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config
from sqlalchemy import URL, create_engine, select
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from arctic_orchestration.connection_pools import PatientPool
from arctic_orchestration.errors import (
    CatalogUnavailable,
    ConfigurationError,
    LakeError,
    NotFound,
    StoreRefused,
    UnsupportedTable,
)
from arctic_orchestration.lake.avro_doubles import read_exactly
from arctic_orchestration.lake.metadata_writing import enable_format_3
from arctic_orchestration.lake.schema import require_supported
from arctic_orchestration.lake.store_errors import store_refusal
from arctic_orchestration.lake.supported_formats import require_supported_format
from arctic_orchestration.settings import Settings

read_exactly()

_log = logging.getLogger("arctic_orchestration.lake")

#: How long a process waits for another one's commit to the embedded catalog.
_BUSY_SECONDS = 60
_OPENING_ATTEMPTS = 20
#: How often a silent catalog is retried, in all about three seconds.
TRIES = 5
_FIRST_WAIT_SECONDS = 0.2
#: The property of pyiceberg's that names a strategy of retries.
_S3_RETRIES = "s3.retry-strategy-impl"
#: The maximum number of table names in a message.
_NAMES_SHOWN = 20

_DOWN = (OSError, DBAPIError, ServiceUnavailableError, ServerError, TooManyRequestsError)
#: The modules with the errors of other catalogs' clients: Glue's and Hive's.
_CLIENTS = ("botocore.", "thrift.", "hive_metastore.")
#: Retries do not restore a missing file of the table.
_NOT_ABOUT_THE_CATALOG = (FileNotFoundError, PermissionError)

#: The catalog's answers that say that it did not make a commit.
REFUSED_COMMIT = (
    TooManyRequestsError,
    UnauthorizedError,
    AuthorizationExpiredError,
    ForbiddenError,
    BadRequestError,
)
#: Its answers to credentials that are wrong or have expired.
_UNAUTHORIZED = (UnauthorizedError, AuthorizationExpiredError, ForbiddenError, OAuthError)

_T = TypeVar("_T")

enable_format_3()


def open_catalog(settings: Settings) -> Catalog:
    """Opens the catalog ``ARCTIC_CATALOG`` of pyiceberg's configuration, else the embedded one.

    The embedded catalog is pyiceberg's SQL catalog on a SQLite file in ``ARCTIC_LAKE``, with the
    tables beneath it. A missing directory is created. Several processes may open it and commit to
    it concurrently.

    Errors:
        LakeError: the embedded catalog cannot be opened.
        CatalogUnavailable: the catalog did not answer, after several tries.
        ConfigurationError: pyiceberg cannot use its configuration.
    """
    name = settings.catalog
    configured = Config().get_catalog_config(name)
    if configured is not None:
        # Sections, such as that of a REST catalog's authentication, stay sections.
        properties: dict[str, Any] = {
            key: value if isinstance(value, dict) else str(value)
            for key, value in configured.items()
        }
        properties.setdefault(_S3_RETRIES, f"{__package__}.s3_retries.PatientRetries")
        try:
            opened = _opener(properties)
            catalog = answered(lambda: opened(name, **properties), f"ARCTIC_CATALOG {name}")
        except (ValueError, NotImplementedError, ImportError) as error:
            raise ConfigurationError(
                f"ARCTIC_CATALOG: catalog {name} cannot be opened as pyiceberg is configured: "
                f"{error}"
            ) from error
        _limit_connections(catalog)
        return catalog
    return _embedded_catalog(settings.catalog, settings.lake.resolve())


def ensure_table(
    catalog: Catalog,
    identifier: str,
    schema: Schema,
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Loads the table, or creates it and its namespace; concurrent processes get the same table.

    An existing table is returned unchanged: its columns, partitions and properties are not compared
    with the arguments.

    Errors:
        UnsupportedTable: Spark and pyiceberg do not support a type or the format version.
    """
    chosen = dict(properties or {})
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        pass
    require_supported(schema, identifier)
    version = chosen.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION)
    require_supported_format(int(version), identifier)
    _ensure_namespace(catalog, identifier)
    try:
        return catalog.create_table(
            identifier, schema, partition_spec=partition_spec, properties=chosen
        )
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)


def load_table(catalog: Catalog, identifier: str) -> Table:
    """Returns the present state of the table.

    Errors:
        NotFound: the table does not exist; the message names the existing ones.
        CatalogUnavailable: the catalog did not answer, after several tries.
        StoreRefused: the object store refuses the credentials, so the metadata cannot be read.
        UnsupportedTable: pyiceberg does not know a type or the format version in its metadata.
        LakeError: the catalog has the table, but its metadata cannot be read.
    """
    # pyiceberg rejects a name without namespace as invalid; here it is a missing table.
    if "." in identifier and all(part.strip() for part in identifier.split(".")):
        try:
            return answered(lambda: catalog.load_table(identifier), identifier)
        except (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError):
            pass
        except (*_NOT_ABOUT_THE_CATALOG, CatalogUnavailable) as error:
            if refusal := store_refusal(load_file_io(catalog.properties), error):
                raise StoreRefused(
                    f"{identifier}: its metadata cannot be read: {refusal}"
                ) from error
            if isinstance(error, CatalogUnavailable):
                raise
            raise LakeError(f"{identifier}: its metadata cannot be read: {error}") from error
        except (ValidationError, pydantic.ValidationError) as error:
            raise UnsupportedTable(f"{identifier}: {_unsupported(error)}") from error
    known = list_tables(catalog)
    shown = ", ".join(known[:_NAMES_SHOWN]) + (", ..." if len(known) > _NAMES_SHOWN else "")
    there_are = f"there are {shown}" if known else "the catalog has no tables"
    raise NotFound(f"table {identifier!r} is not in catalog {catalog.name}; {there_are}")


def _unsupported(error: Exception) -> str:
    """Returns the line of pydantic's report that says what is unknown."""
    lines = [line.strip() for line in str(error).splitlines()]
    cause = next((line for line in lines if line.startswith("Value error, ")), lines[0])
    return cause.removeprefix("Value error, ").partition(" [type=")[0]


def list_tables(catalog: Catalog) -> list[str]:
    """Returns the identifiers of all tables, in all namespaces, sorted.

    Left out, with a warning, are namespaces that may not be listed, and tables with a dot in a name
    of their identifier: no identifier could tell them from tables of a deeper namespace.

    Errors:
        CatalogUnavailable: the catalog did not answer, after several tries.
    """

    def look() -> list[str]:
        found: set[str] = set()
        seen: set[Identifier] = set()
        left = list(catalog.list_namespaces())
        while left:
            namespace = left.pop()
            if namespace in seen:
                continue
            seen.add(namespace)
            try:
                found.update(filter(None, map(_identifier, catalog.list_tables(namespace))))
                left.extend(catalog.list_namespaces(namespace))
            except NoSuchNamespaceError:
                # It was dropped since.
                continue
            except ForbiddenError:
                _warn_of_namespace(".".join(namespace))
                continue
        return sorted(found)

    return answered(look, catalog.name)


@cache
def _warn_of_namespace(namespace: str) -> None:
    _log.warning("the tables of %s are left out: the catalog refuses to list them", namespace)


def _identifier(table: Identifier) -> str | None:
    """Returns the names, joined by dots; None: one of them contains a dot."""
    if any("." in name for name in table):
        _warn_of(tuple(table))
        return None
    return ".".join(table)


@cache
def _warn_of(table: Identifier) -> None:
    """Warns of a table that is left out, once: catalogs are listed again and again."""
    _log.warning("the table %r is left out: expected names without dots", table)


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


def answered(query: Callable[[], _T], what: str) -> _T:
    """Returns the catalog's answer; retries when it does not answer.

    Errors:
        CatalogUnavailable: it never answered; names ``what`` and the last reason.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return query()
        except _NOT_ABOUT_THE_CATALOG:
            raise
        except _UNAUTHORIZED as error:
            raise CatalogUnavailable(
                f"{what}: the catalog refuses the credentials: {error}. Check credential and token "
                "in its properties"
            ) from error
        except Exception as error:
            if not (isinstance(error, _DOWN) or type(error).__module__.startswith(_CLIENTS)):
                raise
            if attempt == TRIES:
                raise CatalogUnavailable(
                    f"{what}: the catalog did not answer, tried {TRIES} times: {error}"
                ) from error
            sleep(wait_seconds(attempt))
    raise AssertionError("unreachable")


def is_locked(error: CommitFailedException) -> bool:
    """Returns whether a commit failed as another client holds Hive's lock on the table."""
    return isinstance(error.__cause__, WaitingForLockException)


def wait_seconds(attempt: int) -> float:
    """Returns how long to wait for a silent catalog after an attempt, the first being 1."""
    return _FIRST_WAIT_SECONDS * float(2 ** (attempt - 1))


def _opener(properties: Mapping[str, Any]) -> Callable[..., Catalog]:
    """Returns what opens a catalog of these properties: pyiceberg, or a class of this package."""
    kind = _kind(properties)
    if kind == "rest":
        from arctic_orchestration.lake.rest_catalog import TimedRestCatalog

        return TimedRestCatalog
    if kind == "hive":
        try:
            from arctic_orchestration.lake.hive_catalog import SharedHiveCatalog
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'pyiceberg[hive]'") from error
        return SharedHiveCatalog
    return load_catalog


def _kind(properties: Mapping[str, Any]) -> str | None:
    """Returns the type of catalog that pyiceberg would open; None: a class of the user's."""
    if PY_CATALOG_IMPL in properties:
        return None
    if TYPE in properties:
        return str(properties[TYPE]).lower()
    scheme, _, _ = str(properties.get(URI, "")).partition(":")
    return {"http": "rest", "https": "rest", "thrift": "hive"}.get(scheme)


def _ensure_namespace(catalog: Catalog, identifier: str) -> None:
    namespace = Catalog.namespace_from(identifier)
    try:
        catalog.load_namespace_properties(namespace)
        return
    except NoSuchNamespaceError:
        pass
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:
        pass
    except IntegrityError:
        # The SQL catalog reads first and inserts then; another process was in between.
        if not catalog.namespace_exists(namespace):
            raise


def _limit_connections(catalog: Catalog) -> None:
    """Lets threads wait for a SQL catalog's connection to a server, in place of one for each."""
    if not isinstance(catalog, SqlCatalog) or catalog.engine.dialect.name == "sqlite":
        return
    found = catalog.engine
    found.dispose()
    catalog.engine = create_engine(found.url, echo=found.echo, poolclass=PatientPool, pool_size=1)


def _embedded_catalog(name: str, directory: Path) -> Catalog:
    warehouse = directory / "warehouse"
    file = directory / "catalog.db"
    uri = URL.create("sqlite", database=str(file), query={"timeout": str(_BUSY_SECONDS)})
    try:
        warehouse.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LakeError(f"ARCTIC_LAKE: {directory} cannot be made: {error}") from error
    for attempt in range(1, _OPENING_ATTEMPTS + 1):
        try:
            _use_write_ahead_log(file)
            # A plain path, not a URL: pyiceberg would cut a URL at a `?` or a `#`.
            return SqlCatalog(
                name,
                uri=uri.render_as_string(hide_password=False),
                warehouse=str(warehouse),
            )
        except (OperationalError, sqlite3.OperationalError) as error:
            # Two processes that create the same tables: the loser finds them the next time.
            if attempt == _OPENING_ATTEMPTS:
                raise LakeError(f"{file} cannot be opened: {error}") from error
            sleep(0.05 * attempt)
    raise AssertionError("unreachable")


def _use_write_ahead_log(file: Path) -> None:
    """Lets readers continue during another process's commit; the mode stays with the file."""
    connection = sqlite3.connect(file, timeout=_BUSY_SECONDS)
    try:
        connection.execute("pragma journal_mode = wal").fetchone()
    finally:
        connection.close()
