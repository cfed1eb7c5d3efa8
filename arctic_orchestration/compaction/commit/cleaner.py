"""Removes outputs of attempts that no snapshot will contain.

The state database lists orphaned directories. It may be wrong: a database restored from a backup
lacks later commits. Therefore the table decides: a directory with a file that any snapshot contains
stays, with a warning.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction import catalog_binding
from arctic_orchestration.compaction.commit import orphaned_outputs
from arctic_orchestration.compaction.commit.orphaned_outputs import GRACE, Leftover
from arctic_orchestration.compaction.table_pool import Counts, Ended, TableJobs, TablePool
from arctic_orchestration.compaction.work.output_paths import remove_outputs
from arctic_orchestration.errors import CatalogUnavailable, NotFound, described
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.lake.upkeep.known_files import KnownFiles
from arctic_orchestration.state.database import Database

_log = logging.getLogger("arctic.compaction.cleaning")

#: the time limit for starting tables and waiting for them
LONGEST_TICK = timedelta(seconds=30)
#: directories of one cleaning
_MOST_AT_ONCE = 200
#: how long a directory is skipped after a failed removal
_RETRY_AFTER = timedelta(hours=1)
#: After this many consecutive tables without an answer, the catalog is considered down.
_SILENT_TABLES = 3


@dataclass(frozen=True, kw_only=True)
class CleaningCounts(Counts):
    """The result of a cleaning, in directories."""

    removed: int = 0
    #: a snapshot contains a file of it, against the state database
    kept: int = 0
    #: it could not be removed now
    failed: int = 0


def clean(
    database: Database,
    catalog: Catalog,
    *,
    grace: timedelta = GRACE,
    jobs: TableJobs[CleaningCounts] | None = None,
) -> CleaningCounts:
    """Removes the directories of ended attempts, after a grace time.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        grace: how long after its end an attempt's directory is kept.
        jobs: the jobs of a shared pool; none: its own.

    Errors:
        DatabaseUnavailable: the state database did not answer.
        ConfigurationError: the state database is bound to another catalog.
    """
    catalog_binding.require_same(database, catalog)
    with database.read() as tx:
        found = orphaned_outputs.to_clean(tx, grace=grace, limit=_MOST_AT_ONCE)
    by_table: dict[str, list[Leftover]] = {}
    for leftover in found:
        by_table.setdefault(leftover.table, []).append(leftover)
    counts, silent = CleaningCounts(), 0

    def work(name: str) -> CleaningCounts:
        known = _known_files(catalog, name)
        done = CleaningCounts()
        for leftover in by_table[name]:
            done = done.plus(_cleaned(database, known, leftover))
        return done

    def hear(ended: Ended[CleaningCounts]) -> bool:
        nonlocal counts, silent
        if ended.error is None:
            counts, silent = counts.plus(ended.result or CleaningCounts()), 0
        else:
            ours = by_table.get(ended.table, [])
            counts = counts.plus(_postponed(database, ours, ended.error))
            silent = silent + 1 if isinstance(ended.error, CatalogUnavailable) else 0
        return silent < _SILENT_TABLES

    jobs = jobs or TableJobs(TablePool())
    jobs.run(by_table, work, hear, LONGEST_TICK.total_seconds())
    for name in jobs.newly_overdue():
        _log.warning("outputs of attempts at %s stay for now: %s", name, jobs.overdue_text())
    return counts


def _known_files(catalog: Catalog, name: str) -> KnownFiles | None:
    """Returns the files of the table's snapshots; none: it was dropped, its files are not ours."""
    try:
        return KnownFiles(load_table(catalog, name))
    except NotFound:
        return None


def _cleaned(database: Database, known: KnownFiles | None, leftover: Leftover) -> CleaningCounts:
    location = leftover.location
    try:
        if known is not None and location is not None:
            if (path := known.below(location)) is not None:
                return _kept(database, leftover, path)
            remove_outputs(known.table, location)
    except Exception as error:
        return _postponed(database, [leftover], error)
    with database.begin() as tx:
        orphaned_outputs.cleaned(tx, leftover.attempt_id)
    return CleaningCounts(removed=1)


def _kept(database: Database, leftover: Leftover, path: str) -> CleaningCounts:
    reason = f"a snapshot of {leftover.table} knows {path}"
    _log.error(
        "%s stays, though its attempt is %s: %s. Was the state database restored from a backup?",
        leftover.location,
        leftover.reason,
        reason,
    )
    with database.begin() as tx:
        orphaned_outputs.kept(tx, leftover.attempt_id, reason)
    return CleaningCounts(kept=1)


def _postponed(
    database: Database, directories: Sequence[Leftover], error: BaseException
) -> CleaningCounts:
    reason = described(error)
    _log.warning("%d directories of attempts stay for now: %s", len(directories), reason)
    with database.begin() as tx:
        for leftover in directories:
            orphaned_outputs.not_cleaned(tx, leftover.attempt_id, reason, retry_after=_RETRY_AFTER)
    return CleaningCounts(failed=len(directories))
