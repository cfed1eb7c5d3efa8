"""Removes a code location that was renamed or is gone, with everything that waits for its ticks."""

from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.ownership import Time
from arctic_orchestration.freshness.run_outcomes import Outcomes, wake
from arctic_orchestration.freshness.status import LogSink, StatusSink, TableSink
from arctic_orchestration.quantities import format_duration
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import is_live, task_definitions, task_submissions

#: No notices: the location has no ticks any more to send them.
_SINKS: tuple[StatusSink, ...] = (TableSink(), LogSink())


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """What was removed, and what was ended."""

    tasks: int
    submissions: int


def forget(
    database: Database,
    location: str,
    *,
    cluster: str,
    by: Actor,
    time: Time = database_time,
) -> Forgotten:
    """Removes the definitions of a location, and ends its submissions with that reason.

    Each submission has its own transaction: no transaction may lock the rows of two tasks. A
    repeated call completes an interrupted one. A live location registers itself again.

    Errors:
        As ``to_forget``.
    """
    with database.begin() as tx:
        to_forget(tx, location, cluster=cluster, time=time)
        tasks = definitions.unregister(tx, cluster, location)
        ids = _live(tx, location, cluster)
        details = {"of_cluster": cluster, "tasks": tasks or 0, "submissions": len(ids)}
        audit.record(tx, by, "tasks", "forget", location, **details)
    outcomes = Outcomes(time=time, sinks=_SINKS)
    reason = f"location {location} of cluster {cluster} was forgotten by {by.name}"
    ended = [id for id in ids if _end(database, outcomes, id, reason)]
    return Forgotten(tasks=tasks or 0, submissions=len(ended))


def to_forget(
    tx: sa.Connection, location: str, *, cluster: str, time: Time = database_time
) -> Forgotten:
    """Returns what would be removed and ended; writes nothing.

    Errors:
        NotFound: the location is unknown; names the known ones.
        InvalidInput: its sensor ticks.
        DatabaseUnavailable: it did not answer.
    """
    place = definitions.location_of(tx, cluster, location)
    ids = _live(tx, location, cluster)
    if place is None and not ids:
        known = ", ".join(
            f"{one.location} of cluster {one.cluster}" for one in definitions.locations(tx)
        )
        text = f"location {location} of cluster {cluster} has no tasks"
        raise NotFound(f"{text}; there is {known or 'none that has'}")
    if place is not None and place.silence(time(tx)) is None:
        since = format_duration(definitions.SILENT)
        raise InvalidInput(
            "location",
            location,
            f"one whose sensor arctic_tasks does not tick: this one has within {since}, and would "
            f"register its tasks again; remove it from workspace.yaml, and retry after {since}",
        )
    col = task_definitions.c
    declared = sa.select(sa.func.count()).where(col.cluster == cluster, col.location == location)
    return Forgotten(tasks=int(tx.execute(declared).scalar_one()), submissions=len(ids))


def _live(tx: sa.Connection, location: str, cluster: str) -> list[str]:
    col = task_submissions.c
    live = sa.select(col.id).where(col.cluster == cluster, col.location == location, is_live)
    return list(tx.execute(live.order_by(col.id)).scalars())


def _end(database: Database, outcomes: Outcomes, id: str, reason: str) -> bool:
    with database.begin() as tx:
        submission = submissions.by_id(tx, id, lock=True)
        if submission is None or submission.state.ended:
            return False
        outcomes.given_up(tx, submission, reason)
    with database.begin() as tx:
        wake(tx, submission.task, submission.batch, outcomes.time(tx))
    return True
