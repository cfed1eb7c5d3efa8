"""The notices of jobs that ended or could not be launched.

Jobs of a schedule in shadow get none, but for those that were launched before.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.schedules.jobs import JobMove, JobState
from arctic_orchestration.schedules.schedule import form_of
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import schedules


def of_moves(tx: sa.Connection, moves: Iterable[tuple[JobMove, Notice]]) -> list[News]:
    """Turns moves of jobs into news with the names and tags of their schedules."""
    pairs = list(moves)
    if not pairs:
        return []
    ids = {move.job.schedule_id for move, _ in pairs}
    col = schedules.c
    query = sa.select(col.id, col.name, col.spec, col.status)
    rows = tx.execute(query.where(dialect.among(tx, col.id, sorted(ids)))).all()
    known = {row.id: (row.name, _tags_of(row.spec)) for row in rows}
    shadowed = {row.id for row in rows if row.status == ScheduleStatus.SHADOWED.value}
    news = []
    for move, event in pairs:
        if move.job.schedule_id in shadowed and move.before is not JobState.LAUNCHED:
            continue
        name, tags = known.get(move.job.schedule_id, ("a schedule that was deleted", {}))
        news.append(
            News(event=event, schedule=name, reason=move.reason, job_id=move.job.id, tags=tags)
        )
    return news


def _tags_of(spec: str) -> dict[str, str]:
    form = form_of(spec)
    return dict(form.get("tags") or {})
