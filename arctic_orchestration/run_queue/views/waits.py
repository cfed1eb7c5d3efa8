"""The runs of a cluster that wait in Dagster's queue, as the last pass of the daemon reported them.

Dagster's storage is not read: a run that was queued since the last pass is not known yet, and how
many slots are in use stands in the reported reason only.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue import pauses, waits
from arctic_orchestration.run_queue.pauses import Pausable, Pause
from arctic_orchestration.state.run_queue_tables import queue_waits
from arctic_orchestration.state.tables import jobs, locations, schedules
from arctic_orchestration.waits import (
    CLUSTER,
    Certainty,
    Details,
    Holder,
    Until,
    WaitKind,
    WaitRow,
    WaitRows,
    WaitScope,
    command,
    describe_each,
)

#: A pass is recorded every 30 s; the interval of passes is not known here.
_SILENT = timedelta(minutes=5)
_col = queue_waits.c


@cache
def wait_rows() -> tuple[WaitRows, ...]:
    """Returns the queued runs of a cluster.

    Causes: ``window``, ``interval``, ``rate``, ``group``, ``program``, each with the name of its
    rule; ``paused:queue:NAME`` and ``paused:group:NAME``; ``tag``, a limit of Dagster's own;
    ``turn``, for a slot; ``dagster``, which holds it for its own reasons.
    """
    return (
        WaitRows(
            kind=WaitKind.RUN,
            table=queue_waits,
            where=(_col.cluster == CLUSTER,),
            keys=(_col.run_id,),
            id=_col.run_id,
            name=sa.func.coalesce(
                sa.literal("run of ") + _of_job(schedules.c.name),
                sa.literal("run of ") + sa.func.nullif(_col.program, ""),
                _col.run_id,
            ),
            location=_of_job(locations.c.name),
            since=_col.since,
            cause=_col.cause,
            reason=_col.reason,
            describe=_described,
            in_location=_in_location,
        ),
    )


def silent_daemon(tx: sa.Connection, scope: WaitScope, _: str | None) -> list[str]:
    """Returns a sentence if runs wait and the last pass over the queue was not, or had trouble."""
    cluster, now = scope.cluster, scope.now
    if tx.execute(sa.select(_col.run_id).where(_col.cluster == cluster).limit(1)).first() is None:
        return []
    last = waits.last_pass(tx, cluster)
    if last is None:
        return ["the daemon never went through the queue"]
    if now - last.at > _SILENT:
        return [f"the daemon went through the queue last at {format_moment(last.at)}"]
    return [f"the daemon has trouble: {last.problem}"] if last.problem is not None else []


def _of_job(column: sa.Column[Any]) -> sa.ColumnElement[str]:
    """Returns a value of the job that requested a run; null: no job did."""
    query = (
        sa.select(column)
        .select_from(jobs)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .join(locations, locations.c.id == jobs.c.location_id)
        .where(jobs.c.run_id == _col.run_id)
        .limit(1)
    )
    return query.scalar_subquery()


def _in_location(name: str) -> sa.ColumnElement[bool]:
    ids = sa.select(locations.c.id).where(locations.c.cluster == CLUSTER, locations.c.name == name)
    return sa.exists().where(jobs.c.run_id == _col.run_id, jobs.c.location_id.in_(ids))


def _described(
    tx: sa.Connection, rows: Sequence[WaitRow], scope: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    wanted = sa.select(_col.run_id, _col.gate).where(_col.cluster == scope.cluster)
    ids = [row.id for row in rows]
    gates = {row.run_id: row.gate for row in tx.execute(wanted.where(_col.run_id.in_(ids)))}
    manual = {(one.kind, one.name): one for one in pauses.manual_pauses(tx, scope.cluster)}
    return describe_each(rows, lambda row: _details(row, gates[row.id], manual))


def _details(row: WaitRow, gate: str, manual: Mapping[tuple[Pausable, str], Pause]) -> Details:
    explain = command("runs", "explain", row.id)
    kind, _, name = row.cause.partition(":")
    if kind == "paused":
        what, _, name = name.partition(":")
        pause = manual.get((Pausable(what), name))
        text = pause.text if pause is not None else row.reason
        options = ("--group",) if what == Pausable.GROUP else ()
        resume = command("queues", "resume", name, options=options)
        held = Holder(kind="pause", id=f"{what} {name}", text=text)
        return Details(held_by=(held,), actions=(explain, resume))
    actions = (explain, command("runs", "prioritize", row.id, "LEVEL"))
    if kind in ("group", "program"):
        held = Holder(kind="group", id=name, text=f"group {name}")
        return Details(held_by=(held,), actions=actions)
    if kind == "window":
        return Details(until=_opens(gate), actions=(explain,))
    return Details(actions=actions)


def _opens(gate: str) -> Until:
    """Returns when a window opens, by ``window:NAME:MOMENT:HELD``; a held one stays closed."""
    moment, _, held = gate.split(":", 2)[-1].rpartition(":")
    if held != "False":
        return Until()
    return Until(certainty=Certainty.KNOWN, at=datetime.fromisoformat(moment), event="opens")
