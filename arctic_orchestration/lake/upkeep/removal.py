"""The records of removed files, and the checks before a removal."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake.catalog_answers import answered
from arctic_orchestration.lake.table_properties import bool_property


class FileKind(StrEnum):
    """The role of a file in its table."""

    DATA = "data"
    DELETES = "deletes"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    STATISTICS = "statistics"
    #: no metadata knows it
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A removed file, or one to remove; the size in bytes, None if it was already gone."""

    path: str
    kind: FileKind
    size: int | None


@dataclass(frozen=True, slots=True)
class FailedRemoval:
    """A file whose removal failed."""

    path: str
    reason: str


def nothing(_path: str) -> bool:
    """Protects nothing."""
    return False


def checksums_of(path: str) -> tuple[str, ...]:
    """Returns where Hadoop's local file system has the checksum of a file; none in other stores."""
    if not path.startswith(("/", "file:")):
        return ()
    directory, _, name = path.rpartition("/")
    return (f"{directory}/.{name}.crc",)


def name_of(table: Table) -> str:
    return ".".join(table.name())


def read_again(table: Table) -> None:
    """Refreshes ``table``; retries when the catalog does not answer.

    Errors:
        CatalogUnavailable: it never answered.
        LakeError: the table was dropped, or its metadata cannot be read.
    """
    try:
        answered(table.refresh, name_of(table))
    except NoSuchTableError as error:
        raise LakeError(f"{name_of(table)}: the table was dropped meanwhile") from error
    except OSError as error:
        raise LakeError(f"{name_of(table)}: its metadata cannot be read: {error}") from error


def require_aware(older_than: datetime | None) -> None:
    if older_than is not None and older_than.tzinfo is None:
        raise InvalidInput("older_than", older_than, "a moment with its zone")


def require_garbage_collection(table: Table) -> None:
    if not bool_property(table.properties, "gc.enabled", True):
        raise LakeError(f"{name_of(table)}: gc.enabled is false; other tables may need its files")
