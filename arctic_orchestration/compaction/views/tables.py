"""Tables of the lake in compaction: their state, for people and programs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue import backoff
from arctic_orchestration.compaction.queue.backoff import Rest
from arctic_orchestration.compaction.queue.task import WAITING, TaskState
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.quantities import counted, format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_records,
    compaction_tasks,
    is_live,
)

if TYPE_CHECKING:
    from arctic_orchestration.lake.manifests import TableNumbers


@dataclass(frozen=True, kw_only=True)
class TableView:
    """The state of a table: of its files, and in compaction."""

    name: str
    #: none: its files could not be counted, see ``trouble``
    numbers: "TableNumbers | None"
    trouble: str | None
    #: none: the planner has not found it yet
    row: CompactionTable | None
    #: live tasks by state
    tasks: Mapping[TaskState, int]
    committed_at: datetime | None
    enabled: bool
    #: resting files, earliest wake first
    resting: Sequence[Rest] = ()

    @property
    def waiting(self) -> int:
        """The number of tasks that can be claimed, now or after their retry interval."""
        return sum(self.tasks.get(state, 0) for state in WAITING)

    def reasons(self, now: datetime) -> list[str]:
        """Returns the messages about it, most urgent first."""
        row = self.row
        refused = row is not None and row.refused is not None and self.enabled
        # The reason for a refusal is often why its files cannot be counted, too.
        found = [self.trouble] if self.trouble and not refused else []
        if not self.enabled:
            found.append(f"not compacted: {DISABLED}")
        if row is None:
            return found or ["not planned yet"]
        if row.gone_at is not None:
            found.append(f"the catalog has it no more since {format_moment(row.gone_at)}")
        if row.refused is not None and self.enabled:
            found.append(f"refused: {row.refused}")
        if row.rests(now) and row.rests_until is not None:
            found.append(f"rests until {format_moment(row.rests_until)}: {row.rest_reason}")
        if row.commit_trouble is not None:
            found.append(f"not committed to: {row.commit_trouble}")
        if row.mapped_to is None and row.property_queue not in (None, row.queue):
            found.append(f"in queue {row.queue}: {row.queue_reason}")
        if self.resting:
            first, files = self.resting[0], counted(len(self.resting), "file")
            found.append(f"{files} at rest until {format_moment(first.until)}: {first.reason}")
        if row.due_since is not None:
            found.append(f"due since {format_moment(row.due_since)}: {row.due_reason}")
        if row.observed_at is not None:
            found.append(
                f"only observed, at {format_moment(row.observed_at)}: {row.observed_reason}"
            )
        if found:
            return found
        if row.looked_at is None:
            return ["not planned yet"]
        return [f"planned last at {format_moment(row.looked_at)}: {row.looked_reason}"]


def table_view(
    tx: sa.Connection,
    name: str,
    now: datetime,
    *,
    numbers: "TableNumbers | None" = None,
    trouble: str | None = None,
    enabled: bool = True,
) -> TableView:
    """Returns the view of a table.

    Args:
        tx: the transaction.
        name: the table.
        now: the moment.
        numbers: see :class:`TableView`.
        trouble: see :class:`TableView`.
        enabled: whether its properties enable compaction.
    """
    (seen,) = _views(tx, {name: tables.find_table(tx, name)}, now)
    return replace(seen, numbers=numbers, trouble=trouble, enabled=enabled)


def stored_table(tx: sa.Connection, row: CompactionTable, now: datetime) -> TableView:
    """Returns the view of a table by the state database alone."""
    (found,) = stored_tables(tx, [row], now)
    return found


def stored_tables(
    tx: sa.Connection, rows: Sequence[CompactionTable], now: datetime
) -> list[TableView]:
    """Returns the views of tables by the state database alone; three statements for all of them."""
    return _views(tx, {row.name: row for row in rows}, now)


def _views(
    tx: sa.Connection, rows: Mapping[str, CompactionTable | None], now: datetime
) -> list[TableView]:
    task, record = compaction_tasks.c, compaction_records.c
    live: dict[str, dict[TaskState, int]] = defaultdict(dict)
    counts = (
        sa.select(task.table_name, task.state, sa.func.count())
        .where(dialect.among(tx, task.table_name, rows), is_live)
        .group_by(task.table_name, task.state)
    )
    for name, state, count in tx.execute(counts):
        live[name][TaskState(state)] = count
    last = (
        sa.select(record.table_name, sa.func.max(record.at).label("at"))
        .where(dialect.among(tx, record.table_name, rows))
        .group_by(record.table_name)
    )
    committed = {row.table_name: row.at for row in tx.execute(last)}
    resting = backoff.resting_of(tx, list(rows), now)
    return [
        TableView(
            name=name,
            numbers=None,
            trouble=None,
            row=row,
            tasks=live.get(name, {}),
            committed_at=committed.get(name),
            enabled=row is None or row.refused != DISABLED,
            resting=sorted(resting.get(name, {}).values(), key=lambda one: (one.until, one.path)),
        )
        for name, row in rows.items()
    ]
