"""Plans tables and shows the plans; changes nothing that compaction acts on.

The row of a table holds the observed plan beside the planner's columns, so that a planner that
starts later plans the table as if it had not been observed. A table is planned again after a new
snapshot, a change of its properties, or an elapsed interval of waiting files.
"""

import logging
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction import catalog_binding, tables
from arctic_orchestration.compaction.planning.catalog_planner import (
    DISCOVERY,
    LONGEST_TICK,
    PlanningCounts,
)
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.scope import Scope
from arctic_orchestration.compaction.planning.table_planner import plan_loaded, state_of
from arctic_orchestration.compaction.queue import table_queues
from arctic_orchestration.compaction.table_pool import Ended, TableJobs, TablePool
from arctic_orchestration.errors import InvalidInput, described
from arctic_orchestration.lake.table_listing import list_tables
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state.database import Database

#: how long a table is skipped after a failed plan
_PAUSE = timedelta(minutes=1)
_EVER = datetime.min.replace(tzinfo=UTC)
_log = logging.getLogger("arctic.compaction.observer")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Observed:
    """A table as it was when this process last planned it."""

    snapshot_id: int | None
    fingerprint: str
    recheck_at: datetime | None
    next_look_at: datetime


class Observer:
    """Plans the tables of a scope without offering anything.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        scope: the observed tables.
        pool: the threads for several tables; none: its own.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        scope: Scope,
        *,
        pool: TablePool | None = None,
    ) -> None:
        self._jobs: TableJobs[PlanningCounts] = TableJobs(pool or TablePool())
        self._database = database
        self._catalog = catalog
        self._scope = scope
        self._discovered_at: datetime | None = None
        #: the tables that it plans, as the catalog listed them last
        self.names: frozenset[str] = frozenset()
        self._observed: dict[str, _Observed] = {}
        #: tables with a failed plan, and until when they are skipped
        self._paused: dict[str, datetime] = {}

    def tick(self, now: datetime) -> PlanningCounts:
        """Plans the tables whose plan may differ from the last one.

        Errors:
            ConfigurationError: the state database is bound to another catalog.
            CatalogUnavailable: the catalog does not list its tables.
            DatabaseUnavailable: the state database did not answer.
        """
        catalog_binding.require_same(self._database, self._catalog)
        until = time.monotonic() + LONGEST_TICK.total_seconds()
        if self._discovered_at is None or now >= self._discovered_at + DISCOVERY:
            self.names = frozenset(filter(self._scope.covers, list_tables(self._catalog)))
            self._discovered_at = now
        counts = PlanningCounts(tables=len(self.names))

        def hear(ended: Ended[PlanningCounts]) -> bool:
            nonlocal counts
            if ended.error is not None:
                _log.warning("%s could not be planned: %s", ended.table, described(ended.error))
                self._paused[ended.table] = now + _PAUSE
            counts = counts.plus(ended.result or PlanningCounts(troubled=1))
            return True

        # Longest due first: a tick may have time for some of them only.
        due = sorted(
            (name for name in self.names if self._due_at(name) <= now),
            key=lambda name: (self._due_at(name), name),
        )
        begun = self._jobs.run(
            due, lambda name: self._look(name, now), hear, until - time.monotonic()
        )
        for name in self._jobs.newly_overdue():
            _log.warning("%s could not be planned: %s", name, self._jobs.overdue_text())
            counts = counts.plus(PlanningCounts(troubled=1))
        return counts.plus(PlanningCounts(postponed=len(due) - len(begun)))

    def _due_at(self, name: str) -> datetime:
        last = self._observed.get(name)
        looked = last.next_look_at if last is not None else _EVER
        return max(looked, self._paused.get(name, _EVER))

    def _look(self, name: str, now: datetime) -> PlanningCounts:
        table = load_table(self._catalog, name)
        try:
            policy, problem = Policy.of(table.properties, name), None
        except InvalidInput as error:
            policy, problem = Policy(), str(error)
        snapshot = table.current_snapshot()
        seen = _Observed(
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            fingerprint=problem or policy.fingerprint,
            recheck_at=None,
            next_look_at=now + policy.check_interval,
        )
        last = self._observed.get(name)
        if last is not None and not _may_differ(last, seen, now):
            self._observed[name] = replace(seen, recheck_at=last.recheck_at)
            return PlanningCounts(looked=1)
        with self._database.begin() as tx:
            table_queues.see_table(tx, name, queue=policy.queue, level=policy.level, now=now)
            state = state_of(tx, name, now)
        reason, wanted = f"not compacted: {problem}", 0
        if problem is None:
            plan = plan_loaded(table, policy, state, now)
            reason, wanted = plan.gain, len(plan.tasks)
            seen = replace(seen, recheck_at=plan.recheck_at)
        with self._database.begin() as tx:
            tables.observed(tx, name, snapshot_id=seen.snapshot_id, reason=reason, now=now)
        self._observed[name] = seen
        return PlanningCounts(looked=1, planned=1, wanted=wanted)


def _may_differ(last: _Observed, seen: _Observed, now: datetime) -> bool:
    same = (last.snapshot_id, last.fingerprint) == (seen.snapshot_id, seen.fingerprint)
    return not same or (last.recheck_at is not None and last.recheck_at <= now)
