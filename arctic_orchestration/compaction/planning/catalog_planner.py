"""Checks the tables of a catalog, and offers what is worth merging in them.

A table is checked when an event reports a change (:func:`mark_due`), and at each
``check-interval``, due or not, unless it has not changed: see ``unchanged_tables``. A check reads
only its metadata. A plan, which reads its manifests, is made only if it may differ from the last
one: after a new snapshot, a change of its properties or its tasks, or an elapsed interval of
waiting files. So a plan without gain is made once. A resting table is not checked. A table with
tasks that did not fit into their queue comes first as soon as there is room: see ``waitlist``.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.catalog_binding import require_same
from arctic_orchestration.compaction.commit.commit_leases import shorten_wait
from arctic_orchestration.compaction.planning.plan_cache import Memory, why_planned
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.planning.policy import DISABLED, Policy
from arctic_orchestration.compaction.planning.table_plan import TablePlan
from arctic_orchestration.compaction.planning.table_planner import (
    live_tasks,
    plan_loaded,
    plan_table,
    state_of,
)
from arctic_orchestration.compaction.planning.unchanged_tables import find_unchanged
from arctic_orchestration.compaction.queue import backoff, table_queues, waitlist
from arctic_orchestration.compaction.queue.offers import Offered, offer
from arctic_orchestration.compaction.table_pool import Ended, TableJobs, TablePool
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.tables import make_due as mark_due
from arctic_orchestration.compaction.upkeep import want_upkeep
from arctic_orchestration.errors import CatalogUnavailable, InvalidInput, NotFound, described
from arctic_orchestration.lake.catalog_answers import is_away
from arctic_orchestration.lake.table_listing import Listing, list_catalog
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.quantities import counted
from arctic_orchestration.state.database import Database

__all__ = ["Planner", "PlanningCounts", "mark_due", "plan_table"]

_log = logging.getLogger("arctic.compaction.planner")

#: how often the catalog's tables are listed
DISCOVERY = timedelta(minutes=3)
#: the time limit of a tick
LONGEST_TICK = timedelta(seconds=30)
#: how long a table is skipped after a failed check, at first and at most
_FIRST_PAUSE = timedelta(seconds=30)
_LONGEST_PAUSE = timedelta(minutes=10)
#: After this many consecutive tables without an answer, the catalog itself is asked.
_SILENT_TABLES = 3
#: tables that one transaction changes: it keeps other writers waiting
_AT_ONCE = 500
_EVER = datetime.min.replace(tzinfo=UTC)


class Planner:
    """Plans the tables of a catalog. Several planners may run: they see each other's offers.

    Keep it from tick to tick: its cache avoids reading manifests again.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        discovery: how often the catalog's tables are listed.
        selects: whether it plans a table, by its name.
        pool: the threads for several tables; none: its own.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        *,
        discovery: timedelta = DISCOVERY,
        selects: Callable[[str], bool] = lambda _: True,
        pool: TablePool | None = None,
    ) -> None:
        self._jobs: TableJobs[PlanningCounts] = TableJobs(pool or TablePool())
        self._selects = selects
        self._database = database
        self._catalog = catalog
        self._discovery = discovery
        #: the tables that it plans, as the catalog listed them last
        self.names: frozenset[str] = frozenset()
        self._discovered_at: datetime | None = None
        self._memories: dict[str, Memory] = {}
        self._lock = threading.Lock()

    def discover(self) -> None:
        """Makes the next tick list the catalog's tables."""
        self._discovered_at = None

    def tick(self, now: datetime, *, at_most: timedelta = LONGEST_TICK) -> PlanningCounts:
        """Checks tables that wait for room, then due ones, longest unchecked first; in parallel.

        A table with a failed check is postponed, with the reason in its row, and the others go on.
        The next tick continues with what did not fit into this one.

        Args:
            now: the moment.
            at_most: the time limit after which no further table is started or waited for.

        Errors:
            ConfigurationError: the state database is bound to another catalog.
            DatabaseUnavailable: the state database did not answer.
        """
        require_same(self._database, self._catalog)
        until = time.monotonic() + at_most.total_seconds()
        at = self._discovered_at
        if at is None or not at <= now < at + self._discovery:
            try:
                found = list_catalog(self._catalog)
            except Exception as error:
                return PlanningCounts(troubled=self._report_to_all(described(error), now))
            self._take(found, now)
        with self._database.read() as tx:
            rows = {row.name: row for row in tables.all_tables(tx)}
        turn, unchanged = self._turn(rows, now)
        counts, silent = PlanningCounts(tables=len(self.names), unchanged=unchanged), 0

        def hear(ended: Ended[PlanningCounts]) -> bool:
            nonlocal counts, silent
            if ended.error is None:
                counts, silent = counts.plus(ended.result or PlanningCounts()), 0
            else:
                silent = silent + 1 if isinstance(ended.error, CatalogUnavailable) else 0
                self._report(ended.table, described(ended.error), now)
                counts = counts.plus(PlanningCounts(troubled=1))
            return silent == 0 or silent % _SILENT_TABLES > 0 or not is_away(self._catalog)

        begun = self._jobs.run(
            self._upcoming(turn, now, until),
            lambda name: self._look(name, now),
            hear,
            until - time.monotonic(),
        )
        for name in self._jobs.newly_overdue():
            if self._row(name) is None:
                self._see(name, Policy(), now)
            self._report(name, self._jobs.overdue_text(), now)
            counts = counts.plus(PlanningCounts(troubled=1))
        return counts.plus(PlanningCounts(postponed=len(set(turn) - set(begun))))

    def _take(self, found: Listing, now: datetime) -> None:
        """Records which tables the catalog has, and which it no longer has."""
        with self._database.read() as tx:
            # A task that was claimed when its table went away may have been given back since.
            known = tables.to_check(tx)
        missing = set(known) - set(found.names)
        kept = {name for name in missing if found.may_have(name)}
        self.names = frozenset(name for name in (*found.names, *kept) if self._selects(name))
        self._discovered_at = now
        for name in missing - kept:
            self._forget(name, now)

    def _forget(self, name: str, now: datetime) -> None:
        with self._database.begin() as tx:
            canceled = tables.table_gone(tx, name, now)
        self._memories.pop(name, None)
        _log.info("%s is gone, %s canceled", name, counted(canceled, "waiting task"))

    def _turn(self, rows: Mapping[str, CompactionTable], now: datetime) -> tuple[list[str], int]:
        """Returns the tables to check, longest unchecked first, and how many have not changed."""
        found, known = [], dict[str, Memory]()
        for name in self.names:
            row, memory = rows.get(name), self._memories.get(name)
            if row is not None and row.rests(now):
                continue
            if memory is None:
                found.append(((row.looked_at if row is not None else None) or _EVER, name))
            elif not memory.waits(row, now):
                known[name] = memory
        unchanged = find_unchanged(self._catalog, self._database, known, rows, now)
        self._memories |= unchanged
        found += [(known[name].looked_at, name) for name in known.keys() - unchanged.keys()]
        return [name for _, name in sorted(found)], len(unchanged)

    def _upcoming(self, turn: Iterable[str], now: datetime, until: float) -> Iterator[str]:
        """Yields the tables of a tick; before each, tables that wait for room come first."""
        rest, done = iter(turn), set[str]()
        while True:
            while (name := self._first_in_line(done, now)) is not None:
                done.add(name)
                yield name
                # One at a time: two that are planned at once would not take room in turn.
                self._jobs.wait_for(name, max(0.0, until - time.monotonic()))
            name = next((name for name in rest if name not in done), None)
            if name is None:
                return
            done.add(name)
            yield name

    def _first_in_line(self, done: Collection[str], now: datetime) -> str | None:
        """Returns the table that has waited longest for room in its queue, where there is some."""
        with self._database.read() as tx:
            waiting = waitlist.waiting_for_room(tx, now)
        for row in waiting:
            if self._jobs.is_busy(row.name):
                # It is reconsidered when that work has ended, which may hang.
                continue
            memory = self._memories.get(row.name)
            paused = memory is not None and memory.failures > 0 and memory.waits(row, now)
            if row.name in self.names and row.name not in done and not paused:
                return row.name
        return None

    def _look(self, name: str, now: datetime) -> PlanningCounts:
        # The row is read before the table is: a commit in between makes the offer stale.
        row = self._row(name)
        try:
            table = load_table(self._catalog, name)
        except NotFound:
            if row is not None:
                self._forget(name, now)
            with self._lock:
                self.names -= {name}
            return PlanningCounts()
        looked = PlanningCounts(looked=1)
        try:
            policy = Policy.of(table.properties, name)
        except InvalidInput as error:
            if row is None or row.gone_at is not None:
                row = self._see(name, Policy(), now)
            return looked.plus(self._refuse(row, table, str(error), Policy(), now))
        if row is None or _differs(row, policy):
            row = self._see(name, policy, now)
        want_upkeep(self._database, name, policy)
        shorten_wait(self._database, row, policy.commit_interval, now)
        if not policy.enabled:
            return looked.plus(self._refuse(row, table, DISABLED, policy, now))
        with self._database.read() as tx:
            live = live_tasks(tx, name)
            since = row.looked_at or _EVER
            rested = backoff.has_rested(tx, name, since, now)
        memory = self._memories.get(name)
        why = why_planned(row, table, policy, memory, live, now, rested=rested)
        if why is None:
            self._memories[name] = Memory.of_check(memory, row, table, policy, live, now)
            return looked
        _log.debug("%s is planned: %s", name, why)
        return looked.plus(self._plan(row, table, policy, now))

    def _plan(
        self, row: CompactionTable, table: Table, policy: Policy, now: datetime
    ) -> PlanningCounts:
        with self._database.read() as tx:
            state = state_of(tx, row.name, now)
        plan = plan_loaded(table, policy, state, now)
        planned = PlanningCounts(planned=1)
        if plan.refused is not None:
            fingerprint = policy.fingerprint
            return planned.plus(
                self._refuse(row, table, plan.refused, policy, now, fingerprint=fingerprint)
            )
        with self._database.begin() as tx:
            offered = offer(
                tx,
                row.name,
                plan.tasks,
                now,
                version=row.version,
                max_attempts=policy.attempts,
                retry_after=policy.retry_interval,
            )
            if not offered.stale:
                tables.record_check(
                    tx,
                    row.name,
                    due_number=row.due_number,
                    snapshot_id=plan.snapshot_id,
                    reason=_outcome(plan, offered, row),
                    now=now,
                    still_due=not offered.complete,
                    got_room=len(offered.taken) > len(offered.superseded),
                )
                if not offered.complete:
                    tables.stay_due(tx, row.name, _outcome(plan, offered, row), now)
            live = live_tasks(tx, row.name)
        if not offered.stale:
            self._memories[row.name] = Memory(
                looked_at=now,
                next_look_at=now + policy.check_interval,
                due_number=row.due_number,
                fingerprint=policy.fingerprint,
                tasks=live,
                recheck_at=plan.recheck_at,
                location=table.metadata_location,
            )
        return planned.plus(
            PlanningCounts(
                offered=len(offered.taken),
                kept=len(offered.kept),
                superseded=len(offered.superseded),
                blocked=len(offered.blocked),
            )
        )

    def _row(self, name: str) -> CompactionTable | None:
        with self._database.read() as tx:
            return tables.find_table(tx, name)

    def _see(self, name: str, policy: Policy, now: datetime) -> CompactionTable:
        with self._database.begin() as tx:
            return table_queues.see_table(tx, name, queue=policy.queue, level=policy.level, now=now)

    def _refuse(
        self,
        row: CompactionTable,
        table: Table,
        reason: str,
        policy: Policy,
        now: datetime,
        *,
        fingerprint: str = "not planned",
    ) -> PlanningCounts:
        """Records why a table is not compacted, and cancels its waiting tasks."""
        snapshot = table.current_snapshot()
        with self._database.begin() as tx:
            tables.lock_table(tx, row.name)
            # What is requested of a table that is disabled stays.
            known, text = row.refused == reason == DISABLED, f"not compacted: {reason}"
            tables.cancel_waiting(tx, row.name, text, now, also_requested=not known)
            live = live_tasks(tx, row.name)
            news = row.refused != reason or row.due_since is not None
            if news:
                tables.record_check(
                    tx,
                    row.name,
                    due_number=row.due_number,
                    snapshot_id=snapshot.snapshot_id if snapshot else None,
                    reason=text,
                    now=now,
                    refused=reason,
                )
        self._memories[row.name] = Memory(
            looked_at=now,
            next_look_at=now + policy.check_interval,
            due_number=row.due_number,
            fingerprint=fingerprint,
            tasks=live,
            # A task that a worker has may be given back: the next check cancels it.
            location=None if live else table.metadata_location,
        )
        return PlanningCounts(refused=int(news))

    def _report(self, name: str, problem: str, now: datetime) -> None:
        """Records a failed check; the table stays due, and is retried later."""
        _log.warning("%s could not be planned: %s", name, problem)
        row = self._row(name)
        if row is not None:
            with self._database.begin() as tx:
                tables.record_failed_check(tx, row, problem, now)
        self._postpone(name, 0 if row is None else row.due_number, now)

    def _postpone(self, name: str, due_number: int, now: datetime) -> None:
        failures = (self._memories[name].failures if name in self._memories else 0) + 1
        pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
        self._memories[name] = Memory(
            looked_at=now, next_look_at=now + pause, due_number=due_number, failures=failures
        )

    def _report_to_all(self, problem: str, now: datetime) -> int:
        """Records the same for every table: the catalog cannot list its tables."""
        _log.warning("no table could be planned: %s", problem)
        with self._database.read() as tx:
            rows = [row for row in tables.all_tables(tx) if row.gone_at is None]
        news = [row for row in rows if row.looked_reason != f"{tables.NOT_PLANNED}{problem}"]
        for begin in range(0, len(news), _AT_ONCE):
            with self._database.begin() as tx:
                for row in news[begin : begin + _AT_ONCE]:
                    tables.record_failed_check(tx, row, problem, now)
                    self._postpone(row.name, row.due_number, now)
        return len(rows) or 1


def _differs(row: CompactionTable, policy: Policy) -> bool:
    """Returns whether the row differs from the properties, or its queue may exist by now."""
    wanted = row.mapped_to is None and policy.queue not in (None, row.queue)
    seen = (row.property_queue, row.level) == (policy.queue, policy.level)
    return row.gone_at is not None or wanted or not seen


def _outcome(plan: TablePlan, offered: Offered, row: CompactionTable) -> str:
    parts = [plan.gain]
    if offered.blocked:
        tasks = counted(len(offered.blocked), "task")
        parts.append(f"{tasks} without room in queue {row.queue}")
    if offered.busy:
        parts.append(f"{counted(len(offered.busy), 'task')} with files of tasks under way")
    return ", ".join(parts)
