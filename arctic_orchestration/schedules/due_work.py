"""What a tick must do after it has read the events."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.other_runs import VERIFY_EVERY
from arctic_orchestration.state.tables import in_state, is_launching, is_waiting, jobs, runs

#: jobs checked in one transaction
CHECKED_AT_ONCE = 500
#: Transactions of checks in one tick, which then hands out requests. The most urgent jobs may be
#: due again before all others were checked: the second half serves those that are due the longest.
CHECKS_PER_TICK = 20

Due: TypeAlias = sa.Select[Any]


class Work(NamedTuple):
    """The work that is due after the events were taken."""

    #: runs must be looked up: a job is launching, or an end event was missed
    runs: bool
    #: a waiting job is due
    jobs: bool


def has_work(tx: sa.Connection, location: Location, now: datetime) -> Work:
    """Returns the work of a locked location that is due at ``now``."""
    given = {"here": location.id, "now": now, "unheard": now - VERIFY_EVERY}
    row = tx.execute(_WORK, given).one()
    return Work(runs=bool(row.runs), jobs=bool(row.jobs))


def rounds() -> Iterator[Due]:
    """Yields the queries of the checks of one tick, one after the other."""
    for number in range(CHECKS_PER_TICK):
        yield DUE if number < CHECKS_PER_TICK // 2 else _LONGEST_DUE


_HERE = jobs.c.location_id == sa.bindparam("here")
_IS_DUE = jobs.c.next_check_at <= sa.bindparam("now")
_WAITS = sa.select(jobs).where(_HERE, _IS_DUE, is_waiting).limit(CHECKED_AT_ONCE)
_BY_URGENCY = (jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
#: the due jobs that are checked together, the most urgent first
DUE: Due = _WAITS.order_by(*_BY_URGENCY)
_LONGEST_DUE: Due = _WAITS.order_by(jobs.c.next_check_at, *_BY_URGENCY)
_WORK = sa.select(
    (
        sa.exists().where(_HERE, is_launching)
        | sa.exists().where(_HERE, _IS_DUE, in_state("launched"))
        | sa.exists().where(
            runs.c.location_id == sa.bindparam("here"), runs.c.seen_at <= sa.bindparam("unheard")
        )
    ).label("runs"),
    sa.exists().where(_HERE, _IS_DUE, is_waiting).label("jobs"),
)
