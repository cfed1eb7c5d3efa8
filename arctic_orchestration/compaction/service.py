"""The rounds of compaction: everything but the merging itself.

A Dagster sensor, ``arctic compaction serve`` and tests call the same ``CompactionService.tick``.
Several processes may do so at once: each step locks or leases what it works on.
"""

import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.commit.cleaner import CleaningCounts, clean
from arctic_orchestration.compaction.commit.committer import CommitCounts, Committer
from arctic_orchestration.compaction.commit.records import RETENTION, SHORTEST_RETENTION
from arctic_orchestration.compaction.planning.catalog_planner import Planner, PlanningCounts
from arctic_orchestration.compaction.planning.observer import Observer
from arctic_orchestration.compaction.planning.scope import EVERYTHING, Mode, Scope
from arctic_orchestration.compaction.table_pool import TableJobs, TablePool
from arctic_orchestration.compaction.upkeep import Upkeep, UpkeepCounts
from arctic_orchestration.compaction.work import attempts, workers
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import not_ahead

#: the interval at which directories are cleaned and records pruned
_HOUSEKEEPING = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class CompactionCounts:
    """The result of a round."""

    #: attempts with an expired lease
    lost: int
    committed: CommitCounts
    planned: PlanningCounts
    cleaned: CleaningCounts
    upkeep: UpkeepCounts
    #: patterns of names that match no table of the catalog
    unmatched: tuple[str, ...] = ()


class CompactionService:
    """The planner, the committer and the housekeeping of one state database and catalog.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        retention: how long records and ended tasks are kept; at least a day.
        scope: which tables are planned, and whether they are only observed. Other offers, such as
            by ``arctic compaction plan``, are committed for every table.

    Errors:
        InvalidInput: ``retention`` is shorter than a day.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        *,
        retention: timedelta = RETENTION,
        scope: Scope = EVERYTHING,
    ) -> None:
        if retention < SHORTEST_RETENTION:
            raise InvalidInput("retention", retention, "a timedelta of at least a day")
        self._database = database
        self._catalog = catalog
        self._scope = scope
        pool = TablePool()
        self._observer = (
            Observer(database, catalog, scope, pool=pool) if scope.mode is Mode.OBSERVE else None
        )
        self._planner = Planner(database, catalog, selects=scope.covers, pool=pool)
        self._committer = Committer(database, catalog, pool=pool)
        self._cleaning: TableJobs[CleaningCounts] = TableJobs(pool)
        self._upkeep = Upkeep(database, catalog, selects=scope.covers, pool=pool)
        self._retention = retention
        self._kept_house_at: float | None = None

    def discover(self) -> None:
        """Makes the next round list the catalog's tables."""
        self._planner.discover()

    def tick(self, now: datetime) -> CompactionCounts:
        """Performs one round: lost attempts, commits, plans, and periodically the housekeeping.

        Several tables are processed at once. A slow table delays the round by at most the wait of
        each step; the work on it continues beside the next rounds.

        For tables that are only observed, a round only makes the plans.

        Errors:
            DatabaseUnavailable: the state database did not answer.
        """
        if self._observer is not None:
            observed = self._observer.tick(now)
            return CompactionCounts(
                lost=0,
                committed=CommitCounts(),
                planned=observed,
                cleaned=CleaningCounts(),
                upkeep=UpkeepCounts(),
                unmatched=self._scope.unmatched(self._observer.names),
            )
        with self._database.begin() as tx:
            lost = attempts.expire(tx)
            # On a host whose clock is ahead, rests would be over, and history old enough to prune.
            now = not_ahead(tx, now)
        # Merged tasks first: a plan that is made afterwards sees the table as it is then.
        committed = self._committer.tick()
        planned = self._planner.tick(now)
        at, since = time.monotonic(), self._kept_house_at
        counts = CompactionCounts(
            lost=lost,
            committed=committed,
            planned=planned,
            cleaned=CleaningCounts(),
            upkeep=UpkeepCounts(),
            unmatched=self._scope.unmatched(self._planner.names),
        )
        if since is not None and at < since + _HOUSEKEEPING.total_seconds():
            return counts
        self._kept_house_at = at
        cleaned = self._keep_house(now)
        return replace(counts, cleaned=cleaned, upkeep=self._upkeep.tick(now))

    def _keep_house(self, now: datetime) -> CleaningCounts:
        with self._database.begin() as tx:
            records.prune(tx, now - self._retention)
            workers.forget_silent_workers(tx)
        return clean(self._database, self._catalog, jobs=self._cleaning)
