"""The retention of ended submissions, steps and publications."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.state import dialect
from arctic_orchestration.state.freshness_tables import (
    task_events,
    task_publications,
    task_submissions,
)

#: the retention
KEEP = timedelta(days=30)
_PRUNED_AT_ONCE = 500


def prune(tx: sa.Connection, now: datetime) -> int:
    """Deletes a batch of what ended before the retention; returns the number of rows.

    A task's row, with its token and last success, is kept forever: tokens are never reused.
    """
    before, col = now - KEEP, task_submissions.c
    ended = sa.select(col.id).where(col.ended_at < before).order_by(col.ended_at)
    ids = list(tx.execute(ended.limit(_PRUNED_AT_ONCE)).scalars())
    pruned = len(ids)
    if ids:
        tx.execute(sa.delete(task_submissions).where(dialect.among(tx, col.id, ids)))
    steps = sa.select(task_events.c.id).where(task_events.c.at < before).order_by(task_events.c.at)
    events = list(tx.execute(steps.limit(_PRUNED_AT_ONCE)).scalars())
    if events:
        pruned += len(events)
        tx.execute(sa.delete(task_events).where(dialect.among(tx, task_events.c.id, events)))
    publications = task_publications.c
    gone = tx.execute(sa.delete(task_publications).where(publications.at < before))
    return pruned + gone.rowcount
