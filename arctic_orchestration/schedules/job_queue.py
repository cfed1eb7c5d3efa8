"""The job queue: the jobs that one transaction touches, written together at its end."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.schedules import fired_partitions, job_notices, resources
from arctic_orchestration.schedules.jobs import ACTIVE, WAITING, Job, JobMove, JobState, check_move
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.tables import job_events, job_history, jobs

_NEW_JOBS = sa.insert(jobs)
_NEW_HISTORY = sa.insert(job_history)
_UNREADABLE = "what it has counted cannot be read: another version of the package wrote it"
_EVENT_COLUMNS = ("job_id", "leaf", "number", "location_id", "partition")


@cache
def _by_ids(backend: str) -> sa.Select[Any]:
    return sa.select(jobs).where(dialect.among_given(backend, jobs.c.id, "ids"))


class JobQueue:
    """Jobs as one transaction sees and changes them.

    Changes stay in memory until :meth:`flush`, so that a thousand events for one job become one
    update, and reads in between see them.
    """

    def __init__(self, tx: sa.Connection, now: datetime, *, actor: str = "") -> None:
        """``actor`` is the person who began the transaction; empty: the scheduler."""
        self.tx = tx
        self._actor = actor
        self.now = now
        #: moves of jobs, in order; valid only once the transaction is committed
        self.moves: list[JobMove] = []
        self._jobs: dict[str, Job] = {}
        self._new: dict[str, Job] = {}
        #: the changed fields of jobs that are in the database already
        self._changed: dict[str, set[str]] = defaultdict(set)
        self._history: list[dict[str, Any]] = []
        self._events: list[tuple[str, int, int, int, str]] = []
        #: the partitions of the events of new jobs, in their order
        self._partitions: dict[str, dict[str, None]] = defaultdict(dict)
        self._notices: list[tuple[JobMove, Notice]] = []
        #: target partitions that fired: the job, the time and the last common event
        self._fired: dict[tuple[str, str], tuple[str, datetime, int]] = {}
        self._released: set[str] = set()
        #: the end status and time of the runs of released jobs
        self._ended: dict[str, tuple[str, datetime]] = {}

    def load(
        self,
        *where: sa.ColumnElement[bool],
        query: sa.Select[Any] | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> list[Job]:
        """Returns the jobs for which ``where`` holds, with the changes of this transaction.

        A ``query`` of all job columns may replace it, with its parameters ``given``. A waiting job
        whose arrivals cannot be read is discarded: it must not stop the others.
        """
        statement = sa.select(jobs).where(*where) if query is None else query
        found = []
        rows = self.tx.execute(statement, given)
        names = list(rows.keys())
        for row in rows:
            values = dict(zip(names, row, strict=False))
            job = self._jobs.get(values["id"]) or Job.from_row(values)
            self._jobs[job.id] = job
            if job.state in WAITING and not job.arrivals:
                self.move(job, JobState.DISCARDED, _UNREADABLE, notice=Notice.JOB_DISCARDED)
            else:
                found.append(job)
        return found

    def by_ids(self, ids: Iterable[str]) -> dict[str, Job]:
        """Returns the jobs with these ids; deleted jobs are left out."""
        wanted = set(ids)
        missing = wanted - self._jobs.keys()
        if missing:
            ids = {"ids": dialect.given(self.tx, sorted(missing))}
            self.load(query=_by_ids(self.tx.dialect.name), given=ids)
        return {id: self._jobs[id] for id in wanted if id in self._jobs}

    def current(self, job: Job) -> Job:
        """Returns the job with the changes of this transaction."""
        return self._jobs[job.id]

    def add(self, job: Job) -> Job:
        """Adds a new job; the next flush writes it."""
        self._jobs[job.id] = self._new[job.id] = job
        return job

    def is_new(self, job: Job) -> bool:
        """Returns whether a job was made in this transaction and is not written yet."""
        return job.id in self._new

    def change(self, job: Job, **values: Any) -> Job:
        """Changes fields of a job, but not its state."""
        changed = replace(self._jobs[job.id], **values)
        self._jobs[job.id] = changed
        if job.id in self._new:
            self._new[job.id] = changed
        else:
            self._changed[job.id].update(values)
        return changed

    def move(
        self,
        job: Job,
        to: JobState,
        reason: str,
        *,
        run_end: tuple[RunStatus, datetime] | None = None,
        notice: Notice | None = None,
        **values: Any,
    ) -> Job:
        """Moves a job to another state, with a line of history.

        A job that ends is checked no more.

        Args:
            job: the job that moves.
            to: its new state.
            reason: why, for people.
            run_end: how and when its run ended.
            notice: the kind of notice that people get.
            values: other fields of the job.

        Errors:
            TransitionRefused: the state cannot be left that way.
        """
        before = self._jobs[job.id].state
        check_move(before, to)
        self._note(job, before, to, reason)
        if before in ACTIVE and to not in ACTIVE:
            self._released.add(job.id)
            if run_end is not None:
                self._ended[job.id] = (run_end[0].value, run_end[1])
        if to not in (*WAITING, *ACTIVE):
            values |= {"next_check_at": None, "held_by": None, "ended_at": self.now}
        moved = self.change(job, state=to, reason=reason, **values)
        move = JobMove(job=moved, before=before, reason=reason)
        self.moves.append(move)
        if notice is not None:
            self._notices.append((move, notice))
        return moved

    def wait(self, job: Job, reason: str, **values: Any) -> Job:
        """Records the reason for which a job goes on waiting."""
        before = self._jobs[job.id]
        waiting = self.change(job, reason=reason, **values)
        if before.reason != reason:
            self.moves.append(JobMove(job=waiting, before=before.state, reason=reason))
        return waiting

    def remark(self, job: Job, text: str) -> None:
        """Adds a line to the job's history that is no move."""
        state = self._jobs[job.id].state
        self._note(job, state, state, text)

    def _note(self, job: Job, before: JobState, to: JobState, reason: str) -> None:
        """Adds a line to the job's history; the next flush writes it."""
        self._history.append(
            {
                "job_id": job.id,
                "at": self.now,
                "from_state": before,
                "state": to,
                "reason": reason,
                "actor": self._actor,
            }
        )

    def attach(self, job: Job, leaf: int, number: int, partition: str) -> None:
        """Adds an event, by its number, to a leaf of the job's trigger."""
        self._events.append((job.id, leaf, number, job.location_id, partition))
        if partition and job.id in self._new:
            self._partitions[job.id][partition] = None

    def partitions_of_new(self, job: Job) -> list[str] | None:
        """Returns the partitions of a job's events; None: it is not new, or was written."""
        return list(self._partitions[job.id]) if self.is_new(job) else None

    @property
    def attached(self) -> int:
        """The number of rows that the next flush adds for events of jobs."""
        return len(self._events)

    def note_fired(self, job: Job, at: datetime, number: int) -> None:
        """Records that a job's scope fired, with the number of the last common event counted."""
        if job.scope is not None:
            self._fired[job.schedule_id, job.scope] = job.id, at, number

    def flush(self) -> None:
        """Writes all changes and releases the resources of jobs that have ended."""
        # Updates come first: a job that stops taking events makes room for the next one.
        self._update()
        if self._new:
            self.tx.execute(_NEW_JOBS, [job.to_row() for job in self._new.values()])
        if self._events:
            bulk_rows.insert_rows(self.tx, job_events, _EVENT_COLUMNS, self._events)
        if self._history:
            self.tx.execute(_NEW_HISTORY, self._history)
        by_location: dict[int, list[tuple[JobMove, Notice]]] = defaultdict(list)
        for move, notice in self._notices:
            by_location[move.job.location_id].append((move, notice))
        for location_id, pairs in by_location.items():
            outbox.write(self.tx, location_id, job_notices.of_moves(self.tx, pairs), self.now)
        if self._released:
            resources.release(self.tx, self._released, self.now, self._ended)
        if self._fired:
            fired_partitions.note_fired(self.tx, self._fired)
        self._new, self._released, self._ended, self._fired = {}, set(), {}, {}
        self._changed.clear()
        self._partitions.clear()
        self._events, self._history, self._notices = [], [], []

    def _update(self) -> None:
        """Writes one statement for each set of fields that changed together."""
        rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for id, fields in sorted(self._changed.items()):
            names = tuple(sorted(fields))
            values = self._jobs[id].to_row(names)
            rows[names].append((*(values[name] for name in names), id))
        for names, changed in rows.items():
            bulk_rows.update_rows(self.tx, jobs, names, changed)
