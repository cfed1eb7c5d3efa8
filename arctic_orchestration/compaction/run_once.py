"""Compacts one table now, in this process: plan, offer, merge and commit.

It uses the state database like all others, so that it disturbs none: it claims tasks and takes the
table's commit lease. It only skips the commit interval.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import catalog_binding, tables
from arctic_orchestration.compaction.commit.committer import CommitCounts, Committer
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.planning.policy import DISABLED, Policy
from arctic_orchestration.compaction.planning.table_plan import TablePlan
from arctic_orchestration.compaction.planning.table_planner import plan_loaded, state_of
from arctic_orchestration.compaction.queue import queues, table_queues, task_store
from arctic_orchestration.compaction.queue.budget import held_queues
from arctic_orchestration.compaction.queue.offers import Offered, offer
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Merge, What, Worker, WorkerEvent
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.waits import command

#: how long it waits for other workers with tasks of the table, and for another committer
PATIENCE = timedelta(minutes=10)
_LOOK_SECONDS = 0.5
_A_PERSON = Actor(name="a person")


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result for a table."""

    plan: TablePlan
    #: none: nothing was offered, because the table is refused
    offered: Offered | None
    records: tuple[CompactionRecord, ...]
    counts: CommitCounts
    #: remaining live tasks: failed ones, and those claimed by others or not claimable; and those
    #: that went to quarantine
    left: tuple[Task, ...]
    #: why something could not be merged or committed; none: it could, or there was nothing
    trouble: str | None


def offer_now(
    database: Database,
    catalog: Catalog,
    table: str,
    now: datetime,
    *,
    force: bool = False,
    full: bool = False,
    by: Actor = _A_PERSON,
    action: str = "plan",
) -> tuple[TablePlan, Offered | None]:
    """Plans a table and offers the plan to its queue.

    Args:
        database: the state database.
        catalog: the catalog of the table.
        table: its name there; it is registered with compaction.
        now: the moment.
        force: everything that can be improved is, regardless of thresholds.
        full: all files are rewritten; implies ``force``.
        by: who requests it.
        action: the requesting command, for the audit log.

    Returns:
        the plan, and the result of the offer; none: the table is refused, and nothing is offered.

    Errors:
        NotFound: the catalog does not have the table.
        CatalogUnavailable: the catalog did not answer, after several tries.
        InvalidDefinition: a property of the table is invalid.
        LakeError: the catalog or a manifest cannot be read.
        DatabaseUnavailable: the state database did not answer.
        ConfigurationError: the state database is bound to another catalog.
    """
    catalog_binding.require_same(database, catalog)
    force = force or full
    loaded = load_table(catalog, table)
    policy = Policy.of(loaded.properties, table)
    with database.begin() as tx:
        row = table_queues.see_table(tx, table, queue=policy.queue, level=policy.level, now=now)
        state = replace(state_of(tx, table, now, forced=force), full=full)
    # After the row: a commit in between makes the offer stale.
    plan = plan_loaded(load_table(catalog, table), policy, state, now)
    if plan.refused is not None:
        return plan, None
    with database.begin() as tx:
        offered = offer(
            tx,
            table,
            plan.tasks,
            now,
            version=row.version,
            max_attempts=policy.attempts,
            retry_after=policy.retry_interval,
            reason=f"replaced by a plan that {by.name} requested",
            forced=force,
        )
        if offered.stale:
            return plan, offered
        counts = {"offered": len(offered.taken), "replaced": len(offered.superseded)}
        audit.record(tx, by, "compaction", action, table, force=force, **counts)
        if not policy.enabled:
            # Else the planner would find it disabled only now, and cancel the tasks.
            tables.update(tx, table, refused=DISABLED)
        # A plan without thresholds does not show what the planner would find.
        if not force:
            tables.record_check(
                tx,
                table,
                due_number=row.due_number,
                snapshot_id=plan.snapshot_id,
                reason=f"{plan.gain}, planned by {by.name}",
                now=now,
                still_due=not offered.complete,
            )
        if not offered.complete:
            tables.make_due(tx, table, f"the plan of {by.name} found not enough room", now)
    return plan, offered


def compact_now(
    database: Database,
    catalog: Catalog,
    merge: Merge,
    table: str,
    now: datetime,
    *,
    force: bool = False,
    full: bool = False,
    parallelism: int = 2,
    on_plan: Callable[[TablePlan], None] | None = None,
    on_event: Callable[[WorkerEvent], None] | None = None,
    patience: timedelta = PATIENCE,
    by: Actor = _A_PERSON,
) -> RunResult:
    """Plans, merges and commits; waits for tasks that other workers have.

    Args:
        database: the state database.
        catalog: the catalog of the table.
        merge: merges files.
        table: its name in the catalog.
        now: the moment.
        force: everything that can be improved is, regardless of thresholds.
        parallelism: how many tasks are merged at once.
        on_plan: receives the plan, before anything is merged.
        on_event: receives all events of tasks, from several threads.
        patience: how long it waits for others.
        by: who requests it.

    Errors:
        as :func:`offer_now`.
    """
    plan, offered = offer_now(
        database, catalog, table, now, force=force, full=full, by=by, action="run"
    )
    if on_plan is not None:
        on_plan(plan)
    give_up_at = time.monotonic() + patience.total_seconds()
    committer = Committer(database, catalog)
    counts, records, trouble = CommitCounts(), list[CompactionRecord](), None
    while True:
        if blocked := _blocked(database, table):
            trouble = blocked
            break
        with database.begin() as tx:
            # There may be no other process to expire the claims of a killed one.
            attempts.expire(tx)
        source = DatabaseSource(database, catalog, table=table)
        given_back = _merge_tasks(source, merge, parallelism, on_event)
        done = committer.commit(table)
        if done is not None:
            counts = counts.plus(done.counts)
            records += done.records
            trouble = done.trouble
        trouble = trouble or given_back
        waiting = _of_others(database, table)
        if trouble is not None or not waiting or time.monotonic() > give_up_at:
            break
        threading.Event().wait(_LOOK_SECONDS)
    offers = {*offered.taken, *offered.kept} if offered is not None else set()
    with database.read() as tx:
        left = task_store.tasks(
            tx,
            table=table,
            states=(TaskState.PLANNED, TaskState.FAILED, TaskState.CLAIMED, TaskState.MERGED),
        )
        quarantined = task_store.tasks(tx, table=table, states=(TaskState.QUARANTINED,))
    left += [task for task in quarantined if task.id in offers]
    return RunResult(
        plan=plan,
        offered=offered,
        records=tuple(records),
        counts=counts,
        left=tuple(left),
        trouble=trouble,
    )


def _merge_tasks(
    source: DatabaseSource,
    merge: Merge,
    parallelism: int,
    on_event: Callable[[WorkerEvent], None] | None,
) -> str | None:
    """Merges the claimable tasks; returns why one was given back, None if none was.

    What that task needs is out of order: a worker would wait for it without end.
    """
    released: list[str] = []

    def heard(event: WorkerEvent) -> None:
        if event.what is What.RELEASED:
            released.append(event.text)
            worker.drain()
        if on_event is not None:
            on_event(event)

    worker = Worker(source, merge, parallelism=parallelism, on_event=heard)
    worker.run(timedelta(0))
    return released[-1] if released else None


def _blocked(database: Database, table: str) -> str | None:
    """Returns why no task of the table may be claimed; none: they may be."""
    with database.read() as tx:
        waiting = task_store.tasks(tx, table=table, states=(TaskState.PLANNED,), limit=1)
        if not waiting:
            return None
        queue = queues.queue_by_name(tx, waiting[0].queue)
        held = held_queues(tx, utc_now()).get(queue.name)
    if queue.state is queues.QueueState.PAUSED:
        resume = command("compaction", "queues", "resume", queue.name)
        return f"queue {queue.name} is paused; end that with: {resume}"
    return None if held is None else f"queue {queue.name} waits: {held.reason}"


def _of_others(database: Database, table: str) -> bool:
    """Returns whether other workers have tasks of the table, or another committer merged ones."""
    states = (TaskState.CLAIMED, TaskState.MERGED, TaskState.PLANNED)
    with database.read() as tx:
        return bool(task_store.tasks(tx, table=table, states=states, limit=1))
