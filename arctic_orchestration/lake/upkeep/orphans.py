"""Removes orphans: files below a table's location that no metadata knows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import CatalogUnavailable, InvalidInput, LakeError
from arctic_orchestration.lake.catalog_answers import answered
from arctic_orchestration.lake.upkeep.listing import ListedFile, Store
from arctic_orchestration.lake.upkeep.reachable import Reachable, literal_key
from arctic_orchestration.lake.upkeep.removal import (
    FailedRemoval,
    FileKind,
    RemovedFile,
    name_of,
    nothing,
    read_again,
    require_aware,
    require_garbage_collection,
)

#: where a table has files outside of its location
_PATHS = (
    "write.data.path", "write.metadata.path", "write.object-storage.path",
    "write.folder-storage.path",
)  # fmt: skip
#: A younger file may belong to a commit in progress.
SAFE_AGE = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Orphans:
    """The result, or the preview, of ``remove_orphans``."""

    files: tuple[RemovedFile, ...] = ()
    failed: tuple[FailedRemoval, ...] = ()
    #: orphans that stay: too young, or of unknown age
    young: int = 0
    #: orphans that stay because the caller protects them
    protected: int = 0


def remove_orphans(
    table: Table,
    *,
    older_than: datetime,
    dry_run: bool = False,
    protected: Callable[[str], bool] = nothing,
    any_age: bool = False,
    now: datetime | None = None,
) -> Orphans:
    """Removes the orphans below the table's location; refreshes ``table``.

    Known are the files of every snapshot of the table, with or without a ref, its statistics, its
    metadata file and those in the metadata log, and the same of every other table of the catalog
    whose location, or path for files, is in this one or around it. Hidden files, those in hidden
    directories and ``version-hint.text`` stay, and so does a directory that looks like a separate
    table. Of Hadoop's checksums, those of remaining files stay.

    Args:
        older_than: files written at this moment or later stay. It must be so long ago that no
            commit with files from before can still be in progress.
        dry_run: returns what would be removed, and removes nothing.
        protected: paths, in the form of the table's location, of files that stay.
        any_age: allows an ``older_than`` less than a day ago. Only for a table without writers.
        now: the moment from which a day counts.

    Errors:
        InvalidInput: ``older_than`` is less than a day ago, or has no zone, or the table's
            ``gc.enabled`` cannot be read.
        CatalogUnavailable: the catalog did not answer, after several tries. Nothing was removed.
        LakeError: the table's ``gc.enabled`` is false, its files cannot be listed, a manifest
            cannot be read, or the table does not know all of its files and another one that may lie
            in the same place cannot be read. Nothing was removed.
    """
    require_aware(older_than)
    limit = (now or utc_now()) - SAFE_AGE
    if older_than > limit and not any_age:
        raise InvalidInput("older_than", older_than.isoformat(), f"{limit.isoformat()} or earlier")
    read_again(table)
    require_garbage_collection(table)
    store = Store(table.io, table.location())
    # Files are listed first: commits during the listing are known afterwards.
    listed = list(store.list())
    read_again(table)
    known = Reachable(table.io)
    _learn(known, table)
    # All tables of the catalog are loaded only where there is something that could be theirs.
    if _others(listed, known) or _unknown(listed, known):
        for neighbour in _neighbours(table, store.key):
            _learn(known, neighbour)
    orphans = _unknown(listed, known)
    old = [file for file in orphans if file.written_at and file.written_at < older_than]
    free = [file for file in old if not protected(file.path)]
    if free and not dry_run:
        read_again(table)
        _learn(known, table)
        free = [file for file in free if not known.files.has_key(_subject(file))]
    failed = {} if dry_run else {file: store.remove(file) for file in free}
    return Orphans(
        files=tuple(
            RemovedFile(file.path, FileKind.ORPHAN, file.size)
            for file in free
            if failed.get(file) is None
        ),
        failed=tuple(FailedRemoval(file.path, why) for file, why in failed.items() if why),
        young=len(orphans) - len(old),
        protected=sum(protected(file.path) for file in old),
    )


def _learn(known: Reachable, table: Table) -> None:
    known.files.add(table.metadata_location)
    known.add(table.metadata)


def _neighbours(table: Table, key: str) -> Iterator[Table]:
    """Yields the catalog's other tables with files in this location, in a part of it, or around it.

    A renamed table keeps its location, and the next table of the old name gets it too.
    """
    catalog = table.catalog
    for identifier in answered(lambda: _identifiers(catalog), catalog.name):
        if identifier == table.name():
            continue
        try:
            other = answered(partial(catalog.load_table, identifier), ".".join(identifier))
        except NoSuchTableError:
            continue
        except Exception as error:
            kind = CatalogUnavailable if isinstance(error, CatalogUnavailable) else LakeError
            raise kind(
                f"{name_of(table)}: {'.'.join(identifier)} cannot be loaded, and may lie in the "
                f"same place: {error}"
            ) from error
        if any(
            f"{key}/".startswith(there) or there.startswith(f"{key}/") for there in _places(other)
        ):
            yield other


def _places(table: Table) -> Iterator[str]:
    """Yields where a table has its files: its location, and the paths of its properties."""
    paths = (table.properties.get(name) for name in _PATHS)
    for path in filter(None, (table.location(), *paths)):
        yield literal_key(f"{path.rstrip('/')}/file").removesuffix("file")


def _identifiers(catalog: Catalog) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    waiting: list[Any] = list(catalog.list_namespaces())
    seen = set(waiting)
    while waiting:
        namespace = waiting.pop()
        try:
            found.update(tuple(one) for one in catalog.list_tables(namespace))
            below = set(catalog.list_namespaces(namespace)) - seen
        except NoSuchNamespaceError:
            continue
        seen |= below
        waiting.extend(below)
    return found


def _subject(file: ListedFile) -> str:
    """Returns the key of the deciding file: for a checksum of Hadoop's, the file it is for."""
    directory, _, name = file.key.rpartition("/")
    return f"{directory}/{_checked(name) or name}"


def _checked(name: str) -> str | None:
    is_checksum = name.startswith(".") and name.endswith(".crc")
    return name[1 : -len(".crc")] if is_checksum else None


def _unknown(listed: list[ListedFile], known: Reachable) -> list[ListedFile]:
    visible = _visible(listed, _others(listed, known))
    return [file for file in visible if not known.files.has_key(_subject(file))]


def _others(listed: list[ListedFile], known: Reachable) -> set[str]:
    """Returns the directories that look like those of tables that are not known."""
    return {
        file.below.rsplit("/", 2)[0] + "/"
        for file in listed
        if file.below.endswith(".metadata.json")
        and file.below.count("/") > 1
        and not known.files.has_key(file.key)
    }


def _visible(listed: list[ListedFile], others: set[str]) -> Iterator[ListedFile]:
    """Yields the files without hidden and hint files, and without other tables' directories."""
    for file in listed:
        *directories, name = file.below.split("/")
        name = _checked(name) or name
        if any(_is_hidden(part) for part in (*directories, name)):
            continue
        if name.startswith("version-hint") or any(file.below.startswith(one) for one in others):
            continue
        yield file


def _is_hidden(name: str) -> bool:
    # A partition's directory may be called `_day=1`.
    return name.startswith(("_", ".")) and "=" not in name
