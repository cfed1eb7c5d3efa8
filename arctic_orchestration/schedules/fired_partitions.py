"""The target partitions, and groups of partitions, for which schedules have fired."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.state import dialect
from arctic_orchestration.state.partition_tables import schedule_partitions
from arctic_orchestration.state.tables import is_waiting, jobs, schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class Fired:
    """The last firing of a schedule for a target partition."""

    at: datetime
    #: the number of the last common event counted for it
    common_number: int


def fired(tx: sa.Connection, scopes: Collection[tuple[str, str]]) -> dict[tuple[str, str], Fired]:
    """Returns the firings of scopes, each given with its schedule; some may never have fired."""
    if not scopes:
        return {}
    given = {
        "schedules": dialect.given(tx, sorted({schedule_id for schedule_id, _ in scopes})),
        "scopes": dialect.given(tx, sorted({scope for _, scope in scopes})),
    }
    return {
        (row.schedule_id, row.scope): Fired(at=row.fired_at, common_number=row.common_number)
        for row in tx.execute(_fired(tx.dialect.name), given)
    }


def note_fired(tx: sa.Connection, of: Mapping[tuple[str, str], tuple[str, datetime, int]]) -> None:
    """Records for schedules and scopes the job that fired, the time and the last common event."""
    rows = [
        {
            "schedule_id": schedule_id,
            "scope": scope,
            "fired_at": at,
            "job_id": job_id,
            "common_number": number,
        }
        for (schedule_id, scope), (job_id, at, number) in of.items()
    ]
    new = dialect.insert(tx, schedule_partitions)
    # A job that fired without common events keeps the number of those already used.
    used, used_before = new.excluded.common_number, schedule_partitions.c.common_number
    changed = {
        "fired_at": new.excluded.fired_at,
        "job_id": new.excluded.job_id,
        "common_number": sa.case((used > used_before, used), else_=used_before),
    }
    upsert = new.on_conflict_do_update(index_elements=["schedule_id", "scope"], set_=changed)
    tx.execute(upsert, rows)


def forget_waiting(
    tx: sa.Connection, schedule_ids: Sequence[str], *, of_ignoring: bool = False
) -> None:
    """Forgets the firings of schedules whose jobs still wait and are about to be discarded.

    ``of_ignoring``: only of schedules that ignore late arrivals. They would never run a partition
    whose job had no run.
    """
    waiting = sa.select(jobs.c.id).where(
        dialect.among(tx, jobs.c.schedule_id, schedule_ids), is_waiting
    )
    fired = schedule_partitions.c
    these = dialect.among(tx, fired.schedule_id, schedule_ids) & fired.job_id.in_(waiting)
    if of_ignoring:
        ignores = schedules.c.spec.contains('"late": "ignore"')
        these &= fired.schedule_id.in_(sa.select(schedules.c.id).where(ignores))
    tx.execute(sa.delete(schedule_partitions).where(these))


@cache
def _fired(backend: str) -> sa.Select[Any]:
    table = schedule_partitions.c
    return sa.select(table.schedule_id, table.scope, table.fired_at, table.common_number).where(
        dialect.among_given(backend, table.schedule_id, "schedules"),
        dialect.among_given(backend, table.scope, "scopes"),
    )
