"""The upkeep of tables that request it, once a day.

Small manifests are merged, old snapshots expired, and orphans removed, as the properties
``arctic.compaction.rewrite-manifests``, ``expire-snapshots`` and ``remove-orphans`` of a table
request. Whoever plans and commits carries it out, one table after the other, in the hours and
within the budget of the table's queue: it takes from the budget what it lasted. A process that is
killed in the middle leaves orphans; an hour later, the upkeep is repeated.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.commit.orphaned_outputs import Protected, protected_paths
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.budget import held_queues, spend
from arctic_orchestration.compaction.queue.queues import QueueState
from arctic_orchestration.compaction.table_pool import Ended, TableJobs, TablePool
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots, remove_orphans
from arctic_orchestration.lake.upkeep.manifest_rewriting import rewrite_manifests
from arctic_orchestration.quantities import counted, format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_queues,
    compaction_tables,
    compaction_upkeep,
)
from arctic_orchestration.state.database import Database

_log = logging.getLogger("arctic.compaction.upkeep")

#: how often a table has its upkeep, and when one that failed or did not end is repeated
INTERVAL = timedelta(days=1)
RETRY_AFTER = timedelta(hours=1)
#: the time limit of a tick
LONGEST_TICK = timedelta(seconds=10)
_col, _table = compaction_upkeep.c, compaction_tables.c
#: what the properties of a table request
_WANTED = (_col.expire_after_seconds, _col.orphans_after_seconds, _col.manifests_from)


@dataclass(frozen=True, kw_only=True)
class UpkeepCounts:
    """The result of a tick, in tables."""

    done: int = 0
    failed: int = 0


def want_upkeep(database: Database, table: str, policy: Policy) -> None:
    """Records the upkeep that a table's properties request; writes only what is new."""
    wanted: dict[str, float | int | None] = dict.fromkeys(column.name for column in _WANTED)
    if policy.enabled:
        wanted = {
            "expire_after_seconds": _seconds(policy.expire_snapshots),
            "orphans_after_seconds": _seconds(policy.remove_orphans),
            "manifests_from": policy.rewrite_manifests,
        }
    query = sa.select(*_WANTED).where(_col.table_name == table)
    with database.read() as tx:
        row = tx.execute(query).one_or_none()
    known = dict.fromkeys(wanted) if row is None else dict(row._mapping)
    if known == wanted:
        return
    with database.begin() as tx:
        new = dialect.insert(tx, compaction_upkeep).values(table_name=table, **wanted)
        tx.execute(new.on_conflict_do_update(index_elements=[_col.table_name], set_=wanted))


class Upkeep:
    """Does the upkeep of a catalog's tables; of several processes, one does that of a table.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        selects: whether it takes care of a table, by its name.
        pool: the threads for several tables; none: its own.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        *,
        selects: Callable[[str], bool] = lambda _: True,
        pool: TablePool | None = None,
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._selects = selects
        self._jobs: TableJobs[bool] = TableJobs(pool or TablePool())

    def tick(self, now: datetime) -> UpkeepCounts:
        """Takes care of tables whose turn it is, longest ago first; a failure concerns one table.

        Errors:
            DatabaseUnavailable: the state database did not answer.
        """
        counts = UpkeepCounts()

        def hear(ended: Ended[bool]) -> bool:
            nonlocal counts
            if ended.error is not None:
                self._note_failure(ended.table, ended.error)
                counts = UpkeepCounts(done=counts.done, failed=counts.failed + 1)
            elif ended.result:
                counts = UpkeepCounts(done=counts.done + 1, failed=counts.failed)
            return True

        until = time.monotonic() + LONGEST_TICK.total_seconds()
        self._jobs.run(
            self._due(now, until),
            lambda name: self._keep(name, now),
            hear,
            until - time.monotonic(),
        )
        return counts

    def _due(self, now: datetime, until: float) -> Iterator[str]:
        """Yields the tables whose turn it is; before each, asks the hours and budgets again."""
        query = (
            sa.select(_col.table_name, _table.queue, compaction_queues.c.state)
            .join(compaction_tables, _table.name == _col.table_name)
            .join(compaction_queues, compaction_queues.c.name == _table.queue)
            .where(_is_due(now), _table.gone_at.is_(None))
            .order_by(_col.next_at.is_not(None), _col.next_at, _col.table_name)
        )
        with self._database.read() as tx:
            rows = tx.execute(query).all()
        for name, queue, state in rows:
            if state == QueueState.PAUSED or not self._selects(name):
                continue
            if self._jobs.is_busy(name):
                # It would be waited for below, and may hang.
                continue
            with self._database.read() as tx:
                if queue in held_queues(tx, now):
                    continue
            yield name
            # One at a time: its duration is taken from the budget when it has ended.
            self._jobs.wait_for(name, max(0.0, until - time.monotonic()))

    def _keep(self, name: str, now: datetime) -> bool:
        """Takes care of a table, unless another process does; returns whether it did."""
        with self._database.begin() as tx:
            row = tx.execute(
                sa.update(compaction_upkeep)
                .where(_col.table_name == name, _is_due(now))
                .values(next_at=now + RETRY_AFTER, result="it was begun, and did not end")
                .returning(_col.table_name)
            ).one_or_none()
            if row is None:
                return False
            # Files that are being written must not seem old.
            until = dialect.not_ahead(tx, now)
        # An error here does not undo that.
        with self._database.read() as tx:
            keep = planned_from(tx, name)
        began, done, failed = time.monotonic(), list[str](), list[Exception]()
        table = load_table(self._catalog, name)
        # The planner may have read earlier properties, or the present ones may be invalid.
        policy = Policy.of(table.properties, name)
        for step in self._steps(table, name, policy, keep, until):
            try:
                done += step()
            except Exception as error:
                # One that fails keeps none from those after it.
                failed.append(error)
        text = ", ".join(done) or "there was nothing to do"
        _log.info("%s: %s", name, text)
        lasted = timedelta(seconds=time.monotonic() - began)
        with self._database.begin() as tx:
            if not failed:
                tx.execute(
                    sa.update(compaction_upkeep)
                    .where(_col.table_name == name)
                    .values(next_at=now + INTERVAL, result=text)
                )
            query = sa.select(_table.queue).where(_table.name == name)
            spend(tx, {tx.execute(query).scalar_one(): [lasted]}, now + lasted)
        if failed:
            raise failed[0]
        return True

    def _steps(
        self, table: Table, name: str, policy: Policy, keep: set[int], now: datetime
    ) -> Iterator[Callable[[], list[str]]]:
        """Yields what is requested; each step returns what it did, for people."""

        def rewrite(fewest: int) -> list[str]:
            rewritten = rewrite_manifests(table, fewest=fewest)
            if rewritten.snapshot_id is None:
                return []
            return [f"{counted(rewritten.merged, 'manifest')} merged into {rewritten.written}"]

        def expire(age: timedelta) -> list[str]:
            expired = expire_snapshots(
                table,
                older_than=now - age,
                keep=keep,
                protected=Protection(self._database, name),
                now=now,
            )
            return [
                f"{counted(len(expired.snapshot_ids), 'snapshot')} expired",
                *_files(len(expired.files), len(expired.failed), "file"),
            ]

        def remove(age: timedelta) -> list[str]:
            orphans = remove_orphans(
                table,
                older_than=now - age,
                protected=Protection(self._database, name),
                now=now,
            )
            return _files(len(orphans.files), len(orphans.failed), "orphan")

        if not policy.enabled:
            return
        if policy.rewrite_manifests is not None:
            yield partial(rewrite, policy.rewrite_manifests)
        if policy.expire_snapshots is not None:
            yield partial(expire, policy.expire_snapshots)
        if policy.remove_orphans is not None:
            yield partial(remove, policy.remove_orphans)

    def _note_failure(self, name: str, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        _log.warning("the upkeep of %s failed: %s", name, text)
        with self._database.begin() as tx:
            tx.execute(
                sa.update(compaction_upkeep)
                .where(_col.table_name == name)
                .values(result=f"failed: {text}")
            )


def upkeep_text(tx: sa.Connection, table: str) -> str | None:
    """Describes a table's upkeep for people; none: its properties request none."""
    query = sa.select(compaction_upkeep).where(_col.table_name == table)
    row = tx.execute(query.where(_is_wanted())).one_or_none()
    if row is None:
        return None
    if row.next_at is None:
        return "not done yet; once a day"
    return f"{row.result}; again at {format_moment(row.next_at)}"


class Protection:
    """The files that live tasks know, read on first use: after the files were listed.

    Files that later claims write are not in the list.
    """

    def __init__(self, database: Database, table: str) -> None:
        self._database = database
        self._table = table
        self._known: Protected | None = None

    def __call__(self, path: str) -> bool:
        if self._known is None:
            with self._database.read() as tx:
                self._known = protected_paths(tx, self._table)
        return self._known(path)


def planned_from(tx: sa.Connection, table: str) -> set[int]:
    """Returns the snapshots of live tasks: their commits are checked from there to the head."""
    return {group.snapshot_id for group in task_store.live_groups(tx, table)}


def _is_wanted() -> sa.ColumnElement[bool]:
    return sa.or_(*(column.is_not(None) for column in _WANTED))


def _is_due(now: datetime) -> sa.ColumnElement[bool]:
    return _is_wanted() & (_col.next_at.is_(None) | (_col.next_at <= now))


def _seconds(age: timedelta | None) -> float | None:
    return None if age is None else age.total_seconds()


def _files(removed: int, failed: int, noun: str) -> list[str]:
    text = f"{counted(removed, noun)} removed"
    return [text, f"{counted(failed, noun)} could not be removed"] if failed else [text]
