"""Whether the state database has changed in a way that pages show."""

from typing import Any

import sqlalchemy as sa

from arctic_orchestration.state import tables
from arctic_orchestration.state.compaction_tables import (
    compaction_moves,
    compaction_queues,
    compaction_records,
    compaction_tables,
    compaction_workers,
)
from arctic_orchestration.state.consumer_tables import consumer_leases, consumers
from arctic_orchestration.state.freshness_tables import task_events
from arctic_orchestration.state.run_queue_tables import queue_pauses, queue_waits


def _newest(column: sa.Column[Any]) -> sa.ScalarSelect[Any]:
    return sa.select(sa.func.max(column)).scalar_subquery()


def _count(table: sa.Table, **values: sa.ColumnElement[Any]) -> list[sa.ScalarSelect[Any]]:
    columns = [sa.func.count(), *values.values()]
    return [sa.select(one).select_from(table).scalar_subquery() for one in columns]


#: Numbers that differ after a change: the ends of histories, and the sizes of small tables.
_FINGERPRINT = sa.select(
    *(
        one.label(f"n{number}")
        for number, one in enumerate(
            (
                _newest(tables.job_history.c.id),
                _newest(tables.schedule_history.c.id),
                _newest(tables.audit.c.id),
                _newest(tables.events.c.taken_at),
                _newest(compaction_moves.c.id),
                _newest(compaction_records.c.id),
                _newest(task_events.c.id),
                *_count(compaction_queues),
                *_count(compaction_workers),
                *_count(
                    compaction_tables,
                    due=sa.func.sum(compaction_tables.c.due_number),
                    looked=sa.func.max(compaction_tables.c.looked_at),
                ),
                *_count(consumers, read=sa.func.sum(consumers.c.version)),
                *_count(consumer_leases, ended=sa.func.max(consumer_leases.c.ended_at)),
                *_count(queue_waits, since=sa.func.max(queue_waits.c.since)),
                *_count(queue_pauses, at=sa.func.max(queue_pauses.c.at)),
            )
        )
    )
)


def fingerprint(tx: sa.Connection) -> tuple[Any, ...]:
    """Returns values that differ from earlier ones after a change; costs one statement."""
    return tuple(tx.execute(_FINGERPRINT).one())
