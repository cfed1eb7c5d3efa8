"""What a tick must do after it has read the events."""

from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.other_runs import VERIFY_EVERY
from arctic_orchestration.state.tables import in_state, is_launching, is_waiting, jobs, runs


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


_HERE = jobs.c.location_id == sa.bindparam("here")
_IS_DUE = jobs.c.next_check_at <= sa.bindparam("now")
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
