"""The catalog of the lake's tables: finds tables, and creates missing ones."""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from time import sleep
from typing import Any

import pydantic
from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    WaitingForLockException,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.config import Config
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import IntegrityError, OperationalError

from arctic_orchestration.connection_pools import PatientPool, leave_read_only_servers
from arctic_orchestration.errors import (
    CatalogUnavailable,
    ConfigurationError,
    LakeError,
    NotFound,
    StoreRefused,
    UnsupportedTable,
)
from arctic_orchestration.lake.avro_doubles import read_exactly
from arctic_orchestration.lake.catalog_answers import NOT_ABOUT_THE_CATALOG, answered
from arctic_orchestration.lake.metadata_writing import enable_format_3
from arctic_orchestration.lake.schema import require_supported
from arctic_orchestration.lake.store_errors import store_refusal
from arctic_orchestration.lake.supported_formats import require_supported_format
from arctic_orchestration.lake.table_listing import list_tables
from arctic_orchestration.settings import Settings

read_exactly()


#: How long a process waits for another one's commit to the embedded catalog.
_BUSY_SECONDS = 60
_OPENING_ATTEMPTS = 20
#: The property of pyiceberg's that names a strategy of retries.
_S3_RETRIES = "s3.retry-strategy-impl"
#: The maximum number of table names in a message.
_NAMES_SHOWN = 20

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
        UnsupportedTable: pyiceberg does not know a type, the format version, or a default value in
            its metadata.
        LakeError: the catalog has the table, but its metadata cannot be read.
    """
    # pyiceberg rejects a name without namespace as invalid; here it is a missing table.
    if "." in identifier and all(part.strip() for part in identifier.split(".")):
        try:
            return answered(lambda: catalog.load_table(identifier), identifier)
        except (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError):
            pass
        except (*NOT_ABOUT_THE_CATALOG, CatalogUnavailable) as error:
            if refusal := store_refusal(load_file_io(catalog.properties), error):
                raise StoreRefused(
                    f"{identifier}: its metadata cannot be read: {refusal}"
                ) from error
            if isinstance(error, CatalogUnavailable):
                raise
            raise LakeError(f"{identifier}: its metadata cannot be read: {error}") from error
        except (ValidationError, pydantic.ValidationError, TypeError) as error:
            # The last one: a default value of a type of which pyiceberg knows none.
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


def is_locked(error: CommitFailedException) -> bool:
    """Returns whether a commit failed as another client holds Hive's lock on the table."""
    return isinstance(error.__cause__, WaitingForLockException)


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
    leave_read_only_servers(catalog.engine)


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
