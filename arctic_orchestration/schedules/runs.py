"""Applies Dagster's runs to jobs and to the resources that runs hold.

A run requested by a job carries the job's id as a tag: it confirms the launch and ends the job.
When Dagster retries a failed run, the job goes on with the retry. When more than one run was made
for a job, it goes on with the run that began; see :mod:`.run_claims`. For any other run, see
:mod:`.other_runs`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.event_log.run_lookup import RetryLookup, RunView
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.run_tags import JOB_TAG, PARENT_TAG, RUN_KEY_TAG
from arctic_orchestration.schedules import other_runs, resources
from arctic_orchestration.schedules.clock_jumps import not_in_future
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import ACTIVE, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.other_runs import (
    VERIFY_EVERY,
    end_of,
    has_ended,
    resources_of,
)
from arctic_orchestration.state.tables import in_state, is_launching, jobs

#: Dagster's tag of a failed run that it retries itself
_WILL_RETRY_TAG = "dagster/will_retry"

#: how long Dagster gets to retry a failed run or to decline; how often this is polled
_RETRY_UNKNOWN = timedelta(minutes=10)
_RECHECK_AFTER = timedelta(seconds=15)

#: attempts to get a run beyond the queue, including the first one
LAUNCH_ATTEMPTS = 3

_ENDS = {
    RunStatus.SUCCESS: JobState.SUCCEEDED,
    RunStatus.FAILURE: JobState.FAILED,
    RunStatus.CANCELED: JobState.CANCELED,
}

_REQUESTED = sa.select(jobs).where(
    jobs.c.location_id == sa.bindparam("here"),
    is_launching,
    jobs.c.requested_at.is_not(None) | (jobs.c.attempt > 1),
)
_UNHEARD_OF = (
    sa.select(jobs)
    .where(
        jobs.c.location_id == sa.bindparam("here"),
        in_state("launched"),
        jobs.c.next_check_at <= sa.bindparam("now"),
    )
    .order_by(jobs.c.next_check_at)
)
#: launched jobs whose runs one tick looks up; all are due at once after a pause of five minutes
_VERIFIED_AT_ONCE = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """A status of a run, from an event or a look-up."""

    run_id: str
    status: RunStatus
    started: bool
    tags: Mapping[str, str]
    ended_at: datetime | None = None
    from_event: bool = False


class RunTracker:
    """Applies events and look-ups of runs to the jobs and resources of one location."""

    def __init__(self, queue: JobQueue, location: Location, lookup: RetryLookup) -> None:
        self._queue = queue
        self._location = location
        self._lookup = lookup
        #: the runs of jobs that were canceled before their run was seen
        self.unwanted: list[str] = []
        #: runs whose last event is an end event
        self.ended: set[str] = set()

    def note(self, found: Sequence[Event]) -> None:
        """Applies run events, in their order."""
        events = [event for event in found if event.kind is EventKind.RUN and event.run_id]
        if not events:
            return
        requested = {event.tags[JOB_TAG] for event in events if JOB_TAG in event.tags}
        known = {
            id: job
            for id, job in self._queue.by_ids(requested).items()
            if job.location_id == self._location.id
        }
        held: list[tuple[str, str, datetime | None]] = []
        others: dict[str, Event] = {}
        self._adopt(events, known)
        for event in events:
            if event.status is None or event.run_id is None:
                continue
            if event.status.ended:
                self.ended.add(event.run_id)
            else:
                self.ended.discard(event.run_id)
            job = known.get(event.tags.get(JOB_TAG, ""))
            job = self._queue.current(job) if job is not None else None
            if job is not None and _is_unwanted(job, event):
                self.unwanted.append(event.run_id)
            if job is not None and job.state in ACTIVE and _is_run_of(job, event):
                seen = _Seen(
                    run_id=event.run_id,
                    status=event.status,
                    started=event.started,
                    tags=event.tags,
                    ended_at=event.at if event.status.ended else None,
                    from_event=True,
                )
                self._apply(job, seen)
                if not event.status.ended:
                    # A run of a Dagster job makes assets, so it counts for their limits too.
                    names = resources_of(event, self._location.place)
                    begun_at = not_in_future(event.at, self._queue.now)
                    held.extend((name, job.id, begun_at) for name in names)
            elif event.location in (None, self._location.name):
                others[event.run_id] = event
        resources.acquire(self._queue.tx, self._location.id, held)
        other_runs.note(self._queue.tx, self._location, others.values(), self._queue.now)

    def _adopt(self, events: Sequence[Event], known: Mapping[str, Job]) -> None:
        """Transfers the resources of a deleted job to its run, which was not seen yet."""
        runs_of = {
            event.tags[JOB_TAG]: event.run_id
            for event in events
            if event.run_id and event.tags.get(JOB_TAG) not in (None, *known)
        }
        if runs_of:
            resources.hand_over(self._queue.tx, self._location.id, runs_of, self._queue.now)

    def confirm(self, just_ended: Collection[str] = ()) -> set[str]:
        """Looks up the runs of launching jobs whose request was handed out.

        Before a further attempt is requested, this also finds the run of an earlier attempt that
        was failed too early and still lives: the job goes on with that run. A job whose run began
        and was then deleted fails.

        Args:
            just_ended: runs whose end was just read. Dagster stores the event before it changes the
                run's record. If the record says that such a run lives, it may be late, or the run
                may have been enqueued after it was failed.

        Returns:
            the jobs that only the next tick can decide on: nothing is requested before.
        """
        unsure: set[str] = set()
        launching = self._queue.load(query=_REQUESTED, given={"here": self._location.id})
        if not launching:
            return unsure
        by_id = {job.id: job for job in launching}
        for job_id, found in self._lookup.runs_by_tag(JOB_TAG, sorted(by_id)).items():
            for run in found:
                job = self._queue.current(by_id[job_id])
                if job.state is JobState.LAUNCHING and run.submitted and _launches(job, run):
                    if run.run_id in just_ended and not has_ended(run):
                        unsure.add(job.id)
                    else:
                        self._apply(job, _seen(run))
        self._fail_deleted(launching, unsure)
        return unsure

    def _fail_deleted(self, launching: Iterable[Job], unsure: Collection[str]) -> None:
        """Fails launching jobs whose run began and was deleted: no other run may begin for them."""
        begun = {}
        for before in launching:
            job = self._queue.current(before)
            if job.begun_run_id and job.state is JobState.LAUNCHING and job.id not in unsure:
                begun[job.begun_run_id] = job
        if begun:
            found = self._lookup.run_statuses(sorted(begun))
            for run_id in sorted(begun.keys() - found.keys()):
                self._end_deleted(begun[run_id], run_id)

    def _end_deleted(self, job: Job, run_id: str | None) -> None:
        reason = f"its run {run_id} was deleted from Dagster"
        self._queue.move(job, JobState.FAILED, reason, notice=Notice.RUN_FAILED)

    def verify_jobs(self) -> None:
        """Looks up the runs of launched jobs that are due, in case their end event was missed."""
        given = {"here": self._location.id, "now": self._queue.now}
        due = self._queue.load(query=_UNHEARD_OF.limit(_VERIFIED_AT_ONCE), given=given)
        if not due:
            return
        ids = {id for job in due for id in (job.run_id, job.begun_run_id) if id}
        found = self._lookup.run_statuses(sorted(ids))
        for job in due:
            run = found.get(job.run_id or "")
            if job.begun_run_id and (run is None or PARENT_TAG not in run.tags):
                run = found.get(job.begun_run_id)
            if run is None:
                self._end_deleted(job, job.run_id)
            elif has_ended(run):
                self._apply(job, _seen(run))
            else:
                self._queue.change(job, next_check_at=self._queue.now + VERIFY_EVERY)

    def verify_others(self) -> None:
        """Forgets runs that ended, or were deleted, without an end event."""
        other_runs.verify(self._queue.tx, self._location, self._lookup, self._queue.now)

    def _apply(self, job: Job, seen: _Seen) -> None:
        now = self._queue.now
        if job.state not in ACTIVE:
            return
        if job.state is JobState.LAUNCHING:
            job = self._queue.move(
                job,
                JobState.LAUNCHED,
                f"run {seen.run_id}",
                run_id=seen.run_id,
                next_check_at=now + VERIFY_EVERY,
            )
        elif job.run_id != seen.run_id:
            is_retry = PARENT_TAG in seen.tags
            how = "a retry of" if is_retry else "which began, and not run"
            job = self._queue.change(
                job, run_id=seen.run_id, reason=f"run {seen.run_id}, {how} {job.run_id}"
            )
        if not seen.status.ended:
            return
        failed = seen.status is RunStatus.FAILURE
        if failed and self._waits_for_retry(job, seen):
            return
        never_ran = failed and not seen.started and seen.run_id != job.begun_run_id
        if never_ran and job.attempt < LAUNCH_ATTEMPTS:
            self._queue.move(
                job,
                JobState.LAUNCHING,
                f"run {seen.run_id} failed before it started: asking again, "
                f"attempt {job.attempt + 1} of {LAUNCH_ATTEMPTS}",
                attempt=job.attempt + 1,
                run_id=None,
                requested_at=None,
                requests=0,
                next_check_at=None,
            )
            return
        if failed and seen.from_event and self._goes_on(seen.run_id):
            self._queue.change(job, next_check_at=now + _RECHECK_AFTER)
            return
        reason = f"run {seen.run_id} ended: {seen.status.value}"
        notice = Notice.RUN_FAILED if failed else None
        if never_ran:
            notice = Notice.LAUNCH_FAILED
            reason = f"{LAUNCH_ATTEMPTS} runs failed before they started, the last {seen.run_id}"
        to, end = _ENDS[seen.status], end_of(seen, now)
        self._queue.move(job, to, reason, run_end=end, notice=notice)

    def _goes_on(self, run_id: str) -> bool:
        """Returns whether a run that was failed before it began has begun all the same.

        Run monitoring fails runs that start slowly. Its event may be read with those of the run.
        """
        run = self._lookup.run_statuses([run_id]).get(run_id)
        return run is not None and run.status is not RunStatus.FAILURE

    def _waits_for_retry(self, job: Job, seen: _Seen) -> bool:
        """Keeps a job that Dagster retries or may retry: a tag says so soon after the failure."""
        now = self._queue.now
        retried = seen.tags.get(_WILL_RETRY_TAG)
        if retried == "true":
            reason = f"run {seen.run_id} failed, and Dagster retries it"
        elif retried is None and self._lookup.retries_enabled:
            reason = f"run {seen.run_id} failed, and whether Dagster retries it is not known yet"
        else:
            return False
        if seen.ended_at is not None and now - seen.ended_at >= _RETRY_UNKNOWN:
            # Dagster gives up silently when a retry cannot be made.
            retry = self._retry_of(job, seen.run_id)
            if retry is None:
                return False
            self._queue.change(job, run_id=retry.run_id, reason=f"run {retry.run_id}, a retry")
        self._queue.change(job, reason=reason, next_check_at=now + _RECHECK_AFTER)
        return True

    def _retry_of(self, job: Job, run_id: str) -> RunView | None:
        """Returns the run with which Dagster retries another one, or None."""
        for run in self._lookup.runs_by_tag(JOB_TAG, [job.id]).get(job.id, ()):
            if run.tags.get(PARENT_TAG) == run_id:
                return run
        return None


def _seen(run: RunView) -> _Seen:
    return _Seen(
        run_id=run.run_id,
        status=run.status or RunStatus.STARTING,
        started=run.started,
        tags=run.tags,
        ended_at=run.ended_at,
    )


def _is_run_of(job: Job, event: Event) -> bool:
    """Returns whether it is the run of the job, or Dagster's retry of that run."""
    parent = event.tags.get(PARENT_TAG)
    if job.begun_run_id is not None and parent is None:
        return event.run_id == job.begun_run_id
    if job.run_id is not None:
        return job.run_id in (event.run_id, parent)
    return event.tags.get(RUN_KEY_TAG) == job.run_key


def _is_unwanted(job: Job, event: Event) -> bool:
    """Returns whether an active run was requested before its job was canceled."""
    was_canceled = job.state is JobState.CANCELED and job.run_id is None
    is_request = RUN_KEY_TAG in event.tags and PARENT_TAG not in event.tags
    is_active = event.status is not None and not event.status.ended
    return was_canceled and is_request and is_active


def _launches(job: Job, run: RunView) -> bool:
    """Returns whether a launching job goes on with the run."""
    if job.begun_run_id is not None:
        return run.run_id == job.begun_run_id
    key = run.tags.get(RUN_KEY_TAG, "")
    if key == job.run_key:
        return True
    is_earlier = key.startswith(f"{job.id}-") and PARENT_TAG not in run.tags
    return is_earlier and not has_ended(run)
