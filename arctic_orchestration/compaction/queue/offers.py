"""Offers: a plan of a table replaces the waiting tasks of the table.

An offer is one transaction under the lock of the table's row, so a crash leaves the old plan or the
new one, and two planners take turns. Of the waiting tasks,

- a task with the same data files and kind as one of the plan stays: with its age, rank and
  attempts, and with the newer snapshot and deletes;
- a manually requested task that no worker has claimed yet stays unchanged, with its level;
- all others are superseded; in a queue that drains, only those with no file of the plan. A new
  task that shares files with one inherits its age, and of several the oldest. An age is inherited
  once, so that replanning never adds waiting tasks of an age: the bound in ``ranking`` depends on
  that.

Tasks that workers have claimed or merged are not touched, and no new task may share a file with
them.

The primary key of ``arctic_compaction_task_files``, table and path, guarantees that no file is in
two live tasks. It is also the fastest way to find taken files, without reading the groups of all
live tasks. The queue's capacity is checked by counting rows under the lock of the queue's row,
since a counter would drift with every crash.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.queue import QueueState
from arctic_orchestration.compaction.queue.queues import lock_queue, room_in
from arctic_orchestration.compaction.queue.ranking import SECONDS_PER_LEVEL, rank_of
from arctic_orchestration.compaction.queue.task import PlannedTask, TaskState
from arctic_orchestration.compaction.tables import CompactionTable, lock_table, next_version
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_task_files,
    compaction_tasks,
    is_live,
    is_waiting,
)

#: the defaults of a task
MAX_ATTEMPTS = 3
RETRY_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """The result of an offer."""

    #: ids of new tasks, and of waiting tasks that stay
    taken: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    #: ids of waiting tasks that the plan replaced
    superseded: tuple[str, ...] = ()
    #: tasks that did not fit into the queue: the table should stay due
    blocked: tuple[PlannedTask, ...] = ()
    #: tasks with files of a task that is claimed, or waits for the committer
    busy: tuple[PlannedTask, ...] = ()
    #: the plan is outdated: nothing was changed, plan again
    stale: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing has to be offered again."""
        return not (self.blocked or self.busy or self.stale)


def offer(
    tx: sa.Connection,
    table: str,
    tasks: Sequence[PlannedTask],
    now: datetime,
    *,
    version: int | None = None,
    max_attempts: int = MAX_ATTEMPTS,
    retry_after: timedelta = RETRY_AFTER,
    seconds_per_level: int = SECONDS_PER_LEVEL,
    reason: str = "replaced by a newer plan",
    forced: bool = False,
) -> Offered:
    """Offers a table's complete plan to its queue, in place of its waiting tasks.

    Args:
        tx: the transaction; it holds the table's row, then the queue's, until it ends.
        table: a table that compaction knows.
        tasks: the plan, most wanted first: what exceeds the room is cut off at the end. A task that
            stays keeps its room.
        now: the moment of the offer.
        version: :attr:`CompactionTable.version` as read before the snapshot was: the offer is stale
            after a commit or another plan. None: not checked.
        max_attempts: the number of attempts of each task.
        retry_after: how long a failed task waits.
        seconds_per_level: see ``ranking``; the same for all offers.
        reason: why the replaced tasks are superseded, for people.
        forced: a person requested it: its tasks replace all others, and automatic plans do not
            replace them before a worker has claimed them. A failed task that is also in the plan
            can be claimed at once.

    Errors:
        NotFound: compaction does not know the table.
        InvalidInput: two tasks of the plan share a file, or one has none; fewer than one attempt.
    """
    if max_attempts < 1:
        raise InvalidInput("max_attempts", max_attempts, "one attempt or more")
    _check_apart(tasks)
    found = lock_table(tx, table)
    if version is not None and version != found.version:
        return Offered(stale=True)
    queue = lock_queue(tx, found.queue)
    waiting = _waiting(tx, table)
    alike = {(row["kind"], row["digest"]): row for row in waiting}
    kept = [task for task in tasks if (task.kind.value, task.digest) in alike]
    kept_rows = [alike[task.kind.value, task.digest] for task in kept]
    kept_ids = {row["id"] for row in kept_rows}
    replaced = [row for row in waiting if row["id"] not in kept_ids and (forced or not _stays(row))]
    paths_of = _paths(tx, [row["id"] for row in replaced])
    if queue.state is QueueState.DRAINING:
        # What would replace them finds no room: those whose files are still planned are merged.
        useful = {paths_of[path] for task in tasks for path in task.paths if path in paths_of}
        replaced = [row for row in replaced if row["id"] not in useful]
    _supersede(tx, replaced, reason, now)
    rank = _Ranks(found, seconds_per_level)
    _refresh(tx, zip(kept_rows, kept, strict=True), rank, forced=forced)
    if forced:
        _request(tx, kept_rows, now)
    others = [task for task in tasks if (task.kind.value, task.digest) not in alike]
    taken_paths = task_store.live_paths(tx, table)
    free = [task for task in others if taken_paths.keys().isdisjoint(task.paths)]
    fitting = free[: room_in(tx, queue)]
    limits = {"max_attempts": max_attempts, "retry_seconds": retry_after.total_seconds(),
              "forced": forced}  # fmt: skip
    others_live = _live_count(tx, table)
    ages = _ages(fitting, replaced, paths_of, others_live, now)
    made = _make(tx, found, fitting, ages, rank, limits, now)
    next_version(tx, table)
    chosen = {id(task) for task in free}
    return Offered(
        taken=tuple(made),
        kept=tuple(row["id"] for row in kept_rows),
        superseded=tuple(row["id"] for row in replaced),
        blocked=tuple(free[len(fitting) :]),
        busy=tuple(task for task in others if id(task) not in chosen),
    )


@dataclass(frozen=True)
class _Ranks:
    """Assigns ranks to the tasks of a table."""

    table: CompactionTable
    seconds_per_level: int

    def of(
        self, task: PlannedTask, waiting_since: datetime, place: int, level: int | None = None
    ) -> int:
        return rank_of(
            waiting_since,
            self.table.level if level is None else level,
            task.small_files,
            task.decoded_bytes,
            self.seconds_per_level,
            place=place,
        )


def _check_apart(tasks: Sequence[PlannedTask]) -> None:
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks):
        if not task.paths:
            raise InvalidInput(f"tasks[{number}].group.files", (), "one file or more")
        for path in task.paths:
            if path in seen:
                raise InvalidInput(
                    f"tasks[{number}].group.files",
                    path,
                    f"a file that no other task of the plan has; tasks[{seen[path]}] has it",
                )
            seen[path] = number


def _waiting(tx: sa.Connection, table: str) -> Sequence[Mapping[Any, Any]]:
    """Returns the waiting tasks of a table, locked until the transaction ends, oldest first."""
    col = compaction_tasks.c
    query = (
        sa.select(
            col.id, col.state, col.kind, col.digest, col.waiting_since, col.place, col.forced,
            col.level,
        )
        .where(col.table_name == table, is_waiting)
        .order_by(col.waiting_since, col.id)
        .with_for_update(key_share=True)
    )  # fmt: skip
    return tx.execute(query).mappings().all()


def _stays(row: Mapping[Any, Any]) -> bool:
    """Returns whether a task was requested manually and has not been attempted yet."""
    return bool(row["forced"]) and row["state"] == TaskState.PLANNED


def _paths(tx: sa.Connection, ids: Sequence[str]) -> dict[str, str]:
    """Returns the files of some tasks: path and task."""
    col = compaction_task_files.c
    query = sa.select(col.path, col.task_id).where(dialect.among(tx, col.task_id, ids))
    return {row.path: row.task_id for row in tx.execute(query)}


def _supersede(
    tx: sa.Connection, rows: Iterable[Mapping[Any, Any]], reason: str, now: datetime
) -> None:
    waiting = [(row["id"], TaskState(row["state"])) for row in rows]
    task_store.move(tx, waiting, TaskState.SUPERSEDED, reason, now, values={"not_before": None})


def _refresh(
    tx: sa.Connection,
    pairs: Iterable[tuple[Mapping[Any, Any], PlannedTask]],
    rank: _Ranks,
    *,
    forced: bool,
) -> None:
    """Updates kept tasks with the newer snapshot, deletes and level; age and attempts stay."""
    columns = ("partition", "file_group", "delete_files", "small_files", "bytes", "rows",
               "planned_reason", "gain", "level", "rank")  # fmt: skip
    rows = []
    for row, task in pairs:
        level = row["level"] if _stays(row) and not forced else rank.table.level
        values = {**_described(task), "level": level,
                  "rank": rank.of(task, row["waiting_since"], row["place"], level)}  # fmt: skip
        rows.append((*(values[column] for column in columns), row["id"]))
    if rows:
        bulk_rows.update_rows(tx, compaction_tasks, columns, rows)


def _request(tx: sa.Connection, rows: Sequence[Mapping[Any, Any]], now: datetime) -> None:
    """Marks waiting tasks as manually requested; failed ones can be claimed at once."""
    failed = [(row["id"], TaskState.FAILED) for row in rows if row["state"] == TaskState.FAILED]
    reason = "requested manually, before its retry interval was over"
    task_store.move(tx, failed, TaskState.PLANNED, reason, now, values={"not_before": None})
    ids = [row["id"] for row in rows]
    if ids:
        chosen = dialect.among(tx, compaction_tasks.c.id, ids)
        tx.execute(sa.update(compaction_tasks).where(chosen).values(forced=True))


def _ages(
    tasks: Sequence[PlannedTask],
    replaced: Sequence[Mapping[Any, Any]],
    paths_of: Mapping[str, str],
    live: int,
    now: datetime,
) -> list[tuple[datetime, int]]:
    """Returns each task's age and place: each replaced task passes these on to at most one.

    Args:
        live: how many other live tasks the table has.
    """
    since = {row["id"]: (row["waiting_since"], row["place"]) for row in replaced}
    ages = []
    for number, task in enumerate(tasks):
        known = {paths_of[path] for path in task.paths if path in paths_of} & since.keys()
        oldest = min(known, key=lambda id: (since[id], id), default=None)
        at, place = (now, live + number) if oldest is None else since.pop(oldest)
        ages.append((min(at, now), place))
    return ages


def _live_count(tx: sa.Connection, table: str) -> int:
    """Returns how many live tasks a table has."""
    query = sa.select(sa.func.count()).where(is_live, compaction_tasks.c.table_name == table)
    return int(tx.execute(query).scalar_one())


def _make(
    tx: sa.Connection,
    table: CompactionTable,
    tasks: Sequence[PlannedTask],
    ages: Sequence[tuple[datetime, int]],
    rank: _Ranks,
    limits: Mapping[str, Any],
    now: datetime,
) -> list[str]:
    """Writes new tasks, with their files and first line of history."""
    if not tasks:
        return []
    ids = [new_id(now) for _ in tasks]
    rows: list[dict[str, Any]] = [
        {
            **_described(task),
            **limits,
            "id": id,
            "table_name": table.name,
            "queue": table.queue,
            "kind": task.kind.value,
            "state": TaskState.PLANNED.value,
            "reason": task.reason,
            "state_at": now,
            "digest": task.digest,
            "files": len(task.paths),
            "level": table.level,
            "rank": rank.of(task, age, place),
            "offered_at": now,
            "waiting_since": age,
            "place": place,
            "attempts": 0,
            "token": 0,
        }
        for id, task, (age, place) in zip(ids, tasks, ages, strict=True)
    ]
    columns = list(rows[0])
    values = [[row[column] for column in columns] for row in rows]
    bulk_rows.insert_rows(tx, compaction_tasks, columns, values)
    files = [
        (table.name, path, id) for id, task in zip(ids, tasks, strict=True) for path in task.paths
    ]
    bulk_rows.insert_rows(tx, compaction_task_files, ("table_name", "path", "task_id"), files)
    lines = [(id, None, task.reason) for id, task in zip(ids, tasks, strict=True)]
    task_store.note_moves(tx, lines, TaskState.PLANNED, now)
    return ids


def _described(task: PlannedTask) -> dict[str, Any]:
    return {
        "partition": task.partition,
        "file_group": task.group.to_json(),
        "delete_files": len(task.group.delete_files),
        "small_files": task.small_files,
        "bytes": task.bytes,
        "rows": task.group.rows,
        "planned_reason": task.reason,
        "gain": task.gain,
    }
