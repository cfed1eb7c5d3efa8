"""Removes what attempts left behind that no snapshot will have."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction import leftovers
from arctic_orchestration.compaction.leftovers import GRACE
from arctic_orchestration.compaction.outputs import directory_of, remove_outputs
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import LakeError, NotFound
from arctic_orchestration.lake.tables import load_table

_log = logging.getLogger("arctic.compaction.cleaning")


@dataclass(frozen=True, kw_only=True)
class CleaningCounts:
    """What a cleaning did."""

    removed: int = 0
    #: directories that could not be removed now
    failed: int = 0


def clean(
    database: Database, catalog: Catalog, *, grace: timedelta = GRACE, limit: int = 1000
) -> CleaningCounts:
    """Removes the directories of attempts that are over, once their leases have been long enough.

    Args:
        database: the state database.
        catalog: of the tables.
        grace: how long after the end of its lease a directory is left alone.
        limit: so many directories at most.

    Errors:
        DatabaseUnavailable: the state database did not answer.
    """
    with database.read() as tx:
        found = leftovers.to_clean(tx, grace=grace, limit=limit)
    tables: dict[str, Table | None] = {}
    removed = failed = 0
    for leftover in found:
        try:
            if leftover.table not in tables:
                tables[leftover.table] = _table(catalog, leftover.table)
            table = tables[leftover.table]
            if table is not None:
                remove_outputs(table, directory_of(table, leftover.directory))
        except (LakeError, OSError) as error:
            _log.warning("%s of %s stays: %s", leftover.directory, leftover.table, error)
            failed += 1
            continue
        with database.begin() as tx:
            leftovers.cleaned(tx, leftover.attempt_id)
        removed += 1
    return CleaningCounts(removed=removed, failed=failed)


def _table(catalog: Catalog, name: str) -> Table | None:
    try:
        return load_table(catalog, name)
    except NotFound:
        # It was dropped, and its files are somebody else's business.
        return None
