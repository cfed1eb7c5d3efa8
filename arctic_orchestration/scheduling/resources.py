"""What runs hold while they are active: their targets and groups.

Nothing is counted up or down. Who holds a resource is asked of the rows of jobs and runs that
live, under the lock of the resource's row, so a permit can neither leak nor be given back twice.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.database import dialect
from arctic_orchestration.database.tables import holders, jobs, resources, runs
from arctic_orchestration.scheduling.jobs import ACTIVE, JobState


def lock(tx: sa.Connection, names: Iterable[str]) -> None:
    """Locks the rows of resources until the transaction ends, in one order for everybody."""
    ordered = sorted(set(names))
    if not ordered or not dialect.has_row_locks(tx):
        return
    new = dialect.insert(tx, resources).on_conflict_do_nothing()
    tx.execute(new, [{"name": name} for name in ordered])
    wanted = dialect.among(tx, resources.c.name, ordered)
    query = sa.select(resources.c.name).where(wanted).order_by(resources.c.name)
    tx.execute(query.with_for_update())


def holders_of(tx: sa.Connection, names: Iterable[str]) -> dict[str, set[str]]:
    """The live jobs and runs that hold each of the resources."""
    live_job = jobs.c.state.in_([state.value for state in ACTIVE])
    query = (
        sa.select(holders.c.resource, holders.c.holder)
        .select_from(holders)
        .outerjoin(jobs, jobs.c.id == holders.c.holder)
        .outerjoin(
            runs,
            (runs.c.run_id == holders.c.holder) & (runs.c.location_id == holders.c.location_id),
        )
        .where(dialect.among(tx, holders.c.resource, sorted(set(names))))
        .where(live_job | runs.c.run_id.is_not(None))
    )
    held = defaultdict(set)
    for resource, holder in tx.execute(query):
        held[resource].add(holder)
    return held


def hold(tx: sa.Connection, location_id: int, rows: Iterable[tuple[str, str]]) -> None:
    """Notes that holders have resources, given as pairs of resource and holder."""
    values = [
        {"resource": resource, "holder": holder, "location_id": location_id}
        for resource, holder in rows
    ]
    if values:
        tx.execute(dialect.insert(tx, holders).on_conflict_do_nothing(), values)


def release(tx: sa.Connection, held_by: Iterable[str], now: datetime) -> int:
    """Takes all resources from holders, and wakes the jobs that wait for one of them.

    Returns how many jobs were woken.
    """
    wanted = dialect.among(tx, holders.c.holder, sorted(set(held_by)))
    freed = set(tx.execute(sa.select(holders.c.resource).where(wanted)).scalars())
    if not freed:
        return 0
    tx.execute(sa.delete(holders).where(wanted))
    # A job that another location's dispatcher is working on is left to its next look: two
    # dispatchers that wake each other's jobs would wait for each other.
    waiting = (
        sa.select(jobs.c.id)
        .where(dialect.among(tx, jobs.c.held_by, sorted(freed)))
        .where(jobs.c.state == JobState.WAITING_CONSTRAINTS.value)
        .with_for_update(skip_locked=True)
    )
    ids = list(tx.execute(waiting).scalars())
    if ids:
        woken = sa.update(jobs).where(dialect.among(tx, jobs.c.id, ids))
        tx.execute(woken.values(next_check_at=now))
    return len(ids)
