"""The output of a simulation: each decision of the scheduler, in order, as a line of JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules.jobs import COMMON, Job, JobMove, JobState
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG, TRIGGER_TAG, LaunchRequest
from arctic_orchestration.schedules.schedule_history import Action
from arctic_orchestration.schedules.simulator.lines import format_moment
from arctic_orchestration.schedules.simulator.world import SimulatedRun
from arctic_orchestration.state.tables import (
    is_waiting,
    job_events,
    job_history,
    jobs,
    schedule_history,
    schedules,
)

_ENDED = {
    JobState.SUCCEEDED: RunStatus.SUCCESS,
    JobState.FAILED: RunStatus.FAILURE,
    JobState.CANCELED: RunStatus.CANCELED,
}
_DONE_TO_SCHEDULES = {
    Action.SUSPENDED.value: "suspended",
    Action.ENABLED.value: "resumed",
}


_EVENTS_OF = (
    sa.select(job_events.c.number, job_events.c.partition)
    .where(job_events.c.job_id == sa.bindparam("job"))
    .order_by(job_events.c.number)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """One decision.

    Attributes:
        at: when it was made.
        schedule: its schedule; None: it concerns all.
        job: the job's name in this simulation; None: it concerns the schedule.
        decision: fired, held, launched, discarded, ended, suspended, resumed or deployed.
        reason: why, for people.
        details: more fields, by kind of decision. ``launched``: ``partitions``, ``events``,
            ``trigger``, ``run_id``; ``ended``: ``status``, ``run_id``; ``deployed``: ``action``.
        cause: of ``held``, the key of what holds the job; no part of the line.
    """

    at: datetime
    schedule: str | None
    job: str | None
    decision: str
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)
    cause: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the decision as JSON values."""
        return {
            "at": format_moment(self.at),
            "schedule": self.schedule,
            "job": self.job,
            "decision": self.decision,
            "reason": self.reason,
            **self.details,
        }


class Narrator:
    """Turns the engine's results and tables into decisions.

    Jobs are named by the order of their first decision: their ids in the database differ between
    simulations.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._schedules: dict[str, str] = {}
        #: why jobs without a run yet may be launched
        self._admitted: dict[str, str] = {}

    def moves(self, tx: sa.Connection, moves: Iterable[JobMove], at: datetime) -> list[Decision]:
        """Returns a tick's decisions about jobs, except for the runs it requests."""
        decisions = []
        for move in moves:
            if move.job.state is JobState.LAUNCHING:
                self._admitted[move.job.id] = move.reason
            elif kind := _kind(move.before, move.job.state):
                decisions.append(self._decision_of(tx, move.job, kind, move.reason, at))
        return decisions

    def launched(
        self, tx: sa.Connection, request: LaunchRequest, run: SimulatedRun, at: datetime
    ) -> Decision:
        """Returns the decision for a run that was made for a job."""
        rows = tx.execute(_EVENTS_OF, {"job": request.job_id}).all()
        arrived = list(dict.fromkeys(row.partition for row in rows if row.partition))
        details = {
            "partitions": list(run.partitions) or arrived,
            **({"arrived": arrived} if run.partitions and arrived != [*run.partitions] else {}),
            "events": len({row.number for row in rows}),
            "trigger": request.tags[TRIGGER_TAG],
            "run_id": run.run_id,
        }
        return Decision(
            at=at,
            schedule=request.tags[SCHEDULE_TAG],
            job=self._job(request.job_id),
            decision="launched",
            reason=self._admitted.pop(request.job_id, "admitted"),
            details=details,
        )

    def begin(self, tx: sa.Connection) -> "Bookmark":
        """Returns the ends of the histories before a manual change."""
        query = sa.select(
            sa.select(sa.func.max(schedule_history.c.id)).scalar_subquery(),
            sa.select(sa.func.max(job_history.c.id)).scalar_subquery(),
        )
        schedules_end, jobs_end = tx.execute(query).one()
        for row in tx.execute(sa.select(schedules.c.id, schedules.c.name)):
            self._schedules[row.id] = row.name
        rows = tx.execute(sa.select(jobs.c.id, jobs.c.schedule_id).where(is_waiting)).all()
        return Bookmark(
            schedules_end=schedules_end or 0,
            jobs_end=jobs_end or 0,
            waiting={row.id: row.schedule_id for row in rows},
        )

    def changed(self, tx: sa.Connection, since: "Bookmark", at: datetime) -> list[Decision]:
        """Returns changes of schedules since a bookmark, with the moves of their waiting jobs."""
        done = tx.execute(
            sa.select(schedule_history)
            .where(schedule_history.c.id > since.schedules_end)
            .order_by(schedule_history.c.id)
        ).all()
        moved = tx.execute(
            sa.select(job_history.c.job_id, jobs.c.schedule_id, job_history.c.reason)
            .join(jobs, jobs.c.id == job_history.c.job_id)
            .where(job_history.c.id > since.jobs_end)
            .where(job_history.c.state == JobState.DISCARDED.value)
            .order_by(job_history.c.id)
        ).all()
        discarded: dict[str, list[tuple[str, str]]] = {}
        for row in moved:
            discarded.setdefault(row.schedule_id, []).append((row.job_id, row.reason))
        decisions = []
        for row in done:
            self._schedules[row.schedule_id] = row.name
            jobs_of = discarded.pop(row.schedule_id, [])
            if row.action == Action.DELETED.value:
                jobs_of = [
                    (job, "the schedule was deleted")
                    for job, of in since.waiting.items()
                    if of == row.schedule_id
                ]
            decisions.append(self._done(row, at))
            decisions += [self._discarded(row.name, *job, at) for job in jobs_of]
        return decisions

    def _done(self, row: Any, at: datetime) -> Decision:
        decision = _DONE_TO_SCHEDULES.get(row.action, "deployed")
        details = {"action": row.action} if decision == "deployed" else {}
        reason = f"{row.action}: {row.reason}" if row.reason else row.action
        return Decision(
            at=at, schedule=row.name, job=None, decision=decision, reason=reason, details=details
        )

    def _discarded(self, schedule: str, job_id: str, reason: str, at: datetime) -> Decision:
        return Decision(
            at=at, schedule=schedule, job=self._job(job_id), decision="discarded", reason=reason
        )

    def _decision_of(
        self, tx: sa.Connection, job: Job, kind: str, reason: str, at: datetime
    ) -> Decision:
        details: dict[str, Any] = {}
        if job.scope is not None and job.scope != COMMON:
            details = {"partition": job.scope}
        if kind == "ended":
            details |= {"status": _ENDED[job.state].value, "run_id": job.run_id}
        return Decision(
            at=at,
            schedule=self._schedule(tx, job.schedule_id),
            job=self._job(job.id),
            decision=kind,
            reason=reason,
            details=details,
            cause=job.cause if kind == "held" else None,
        )

    def _job(self, id: str) -> str:
        return self._jobs.setdefault(id, f"job-{len(self._jobs) + 1}")

    def _schedule(self, tx: sa.Connection, id: str) -> str:
        if id not in self._schedules:
            query = sa.select(schedules.c.name).where(schedules.c.id == id)
            self._schedules[id] = tx.execute(query).scalar_one()
        return self._schedules[id]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bookmark:
    """The positions in the histories of schedules and jobs, and the jobs that waited."""

    schedules_end: int
    jobs_end: int
    waiting: Mapping[str, str]


def _kind(before: JobState, state: JobState) -> str | None:
    """Returns the decision for a move, or None if the move is not reported."""
    if state in _ENDED:
        return "ended"
    if state is JobState.DISCARDED:
        return "discarded"
    if state is JobState.WAITING_CONSTRAINTS:
        return "held" if before is state else "fired"
    return None
