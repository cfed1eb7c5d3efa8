"""The notices of jobs that ended or could not be launched."""

import json
from collections.abc import Iterable

import sqlalchemy as sa

from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.schedules.jobs import JobMove
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import schedules


def of_moves(tx: sa.Connection, moves: Iterable[tuple[JobMove, Notice]]) -> list[News]:
    """Turns moves of jobs into news with the names and tags of their schedules."""
    pairs = list(moves)
    if not pairs:
        return []
    ids = {move.job.schedule_id for move, _ in pairs}
    query = sa.select(schedules.c.id, schedules.c.name, schedules.c.spec).where(
        dialect.among(tx, schedules.c.id, sorted(ids))
    )
    known = {row.id: (row.name, _tags_of(row.spec)) for row in tx.execute(query)}
    news = []
    for move, event in pairs:
        name, tags = known.get(move.job.schedule_id, ("a schedule that was deleted", {}))
        news.append(
            News(event=event, schedule=name, reason=move.reason, job_id=move.job.id, tags=tags)
        )
    return news


def _tags_of(spec: str) -> dict[str, str]:
    form = json.loads(spec)
    return dict(form.get("tags") or {})
