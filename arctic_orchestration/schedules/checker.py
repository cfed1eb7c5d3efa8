"""Evaluates the constraints of due jobs, and admits, holds or discards them.

Only jobs whose ``next_check_at`` has come are checked: a resource they wait for was released, the
recheck time of a verdict has come, or their timeout has expired. Counted resources are locked
before they are counted, for all due jobs at once and in one order.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules import resources, timers
from arctic_orchestration.schedules.constraints import Constraint, Decision, Verdict
from arctic_orchestration.schedules.constraints.concurrency import Concurrency
from arctic_orchestration.schedules.due_work import Due
from arctic_orchestration.schedules.facts import Gathered, JobFacts, Surroundings
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.job_splitter import by_range, join, partitions_of
from arctic_orchestration.schedules.jobs import COMMON, TIMED_OUT, WAITING, Job, JobState
from arctic_orchestration.schedules.launch_requests import fail_launch
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.requested_launch import (
    problem_of_request,
    request_of,
    with_request,
)
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.targets import Problem, Targets, not_looked_up, problem_of
from arctic_orchestration.schedules.trigger_evaluation import evaluate_trigger, fired_by
from arctic_orchestration.schedules.triggers.base import NOTHING
from arctic_orchestration.state.tables import in_state, is_constrained, is_waiting, jobs

_NEXT_TICK = timedelta(seconds=1)
#: A release wakes the jobs that wait for it; this interval covers a release that was missed.
_LOOK_ANYWAY = timedelta(seconds=30)
#: Reasons that are no verdict of a constraint.
SUSPENDED = "the schedule is suspended, and launches what it collects when it is resumed"
UNREADABLE_SCHEDULE = "its schedule cannot be read"
#: Causes of jobs that no constraint holds: the schedule, and what is not there or not looked up.
BY_SUSPENSION, BY_UNREADABLE_SCHEDULE, BY_TARGET = "suspended", "unreadable_schedule", "target"


class Checker:
    """Checks the due jobs of one location, within one transaction."""

    def __init__(
        self,
        queue: JobQueue,
        location: Location,
        store: ScheduleStore,
        targets: Targets,
        surroundings: Surroundings,
        *,
        behind: bool,
    ) -> None:
        """``behind`` means that events from before now are still unread."""
        self._behind = behind
        self._queue = queue
        self._location = location
        self._store = store
        self._targets = targets
        self._now = queue.now
        self._facts = Gathered(queue.tx, location, surroundings, queue.now)
        #: by schedule: jobs that may join a range, by partition, and the range of each partition
        self._adjacent: dict[str, tuple[dict[str, Job], dict[str, Sequence[str]]]] = {}
        #: schedules of admitted jobs whose timers were restarted
        self._restarted: set[str] = set()
        #: what admitted jobs hold from now on: resource, job and time
        self._holds: list[tuple[str, str, datetime]] = []
        names = ("checked", "fired", "admitted", "held", "failed", "discarded")
        self._counts = dict.fromkeys(names, 0)

    def check(self, query: Due) -> dict[str, int]:
        """Checks the due jobs that a query returns, in its order; returns counts."""
        given = {"here": self._location.id, "now": self._now}
        due = self._queue.load(query=query, given=given)
        if not due:
            return self._counts
        stored = self._store.by_ids(self._queue.tx, {job.schedule_id for job in due})
        self._facts.gather(
            (constraint, self._target_resources(schedule), schedule.trigger_assets)
            for job in due
            if job.state is JobState.WAITING_CONSTRAINTS and job.schedule_id in stored
            for schedule in (stored[job.schedule_id].schedule,)
            for constraint in schedule.constraints
        )
        for job in due:
            self._counts["checked"] += 1
            schedule = stored.get(job.schedule_id)
            if schedule is None:
                look_at = self._now + _LOOK_ANYWAY
                why = {"reason": UNREADABLE_SCHEDULE, "cause": BY_UNREADABLE_SCHEDULE}
                self._queue.change(job, **why, next_check_at=look_at)
            elif self._queue.current(job).state in WAITING:
                # A job that was checked earlier in this pass may have ended it.
                self._check(self._queue.current(job), schedule)
        resources.acquire(self._queue.tx, self._location.id, self._holds)
        return self._counts

    def _check(self, job: Job, stored: StoredSchedule) -> None:
        # The timeout does not run while the schedule is suspended.
        timed_out = (
            job.deadline_at is not None and job.deadline_at <= self._now and not stored.suspended
        )
        drops = stored.suspended and stored.schedule.suspend_mode == "drop"
        if drops and job.forced is None:
            self._discard(job, "the schedule is suspended")
        elif job.scope == COMMON:
            # It keeps common events for other jobs and is never launched.
            self._queue.change(job, next_check_at=None)
        elif job.state is JobState.WAITING_CONSTRAINTS:
            if stored.launches or job.forced is not None:
                self._judge(job, stored, timed_out=timed_out)
            else:
                self._keep(job, SUSPENDED, BY_SUSPENSION, look_at=None)
        elif self._behind:
            # The event it waits for, or one that extends the wait, may be among the unread ones.
            self._queue.change(job, next_check_at=self._now + _NEXT_TICK)
        elif evaluate_trigger(self._queue, job, stored, job.arrivals):
            # Resources of its constraints are locked in the next round.
            self._counts["fired"] += 1
        elif timed_out:
            self._discard(
                job,
                f"its trigger was not satisfied in time: {job.reason}",
                notice=Notice.JOB_TIMED_OUT,
            )

    def _judge(self, job: Job, stored: StoredSchedule, *, timed_out: bool) -> None:
        assert job.satisfied_at is not None
        schedule, forced = stored.schedule, job.forced
        if forced is None and timed_out and schedule.on_timeout == "launch":
            forced = TIMED_OUT
        facts = self._facts_of(job, schedule)
        verdicts = [
            (constraint, self._verdict(constraint, facts)) for constraint in schedule.constraints
        ]
        # A timeout cannot override a concurrency limit: other runs rely on it.
        binding = [
            verdict
            for constraint, verdict in verdicts
            if forced is None or isinstance(constraint, Concurrency)
        ]
        job = self._queue.change(job, verdicts=_verdicts_text(verdicts))
        if (future := self._not_yet(job, schedule)) is not None:
            binding.append(future)
        canceled = [v for v in binding if v.decision is Decision.CANCEL]
        holding = [v for v in binding if v.decision is Decision.HOLD]
        if canceled:
            self._discard(job, canceled[0].reason)
        elif not holding:
            self._admit(job, stored, facts, forced=forced)
        elif timed_out and forced is None:
            self._discard(job, f"timed out: {holding[0].reason}", notice=Notice.JOB_TIMED_OUT)
        else:
            deadline = None if timed_out or stored.suspended else job.deadline_at
            cause = _cause_of(verdicts, holding[0])
            self._hold(job, holding, deadline, cause)

    def _facts_of(self, job: Job, schedule: Schedule) -> JobFacts:
        assert job.satisfied_at is not None
        return JobFacts(
            satisfied_at=job.satisfied_at,
            targets=self._target_resources(schedule),
            gathered=self._facts,
            place=self._location.place,
            partition=job.partition_start if job.partition_start == job.partition_end else None,
            trigger_assets=schedule.trigger_assets,
        )

    def _not_yet(self, job: Job, schedule: Schedule) -> Verdict | None:
        """Holds a job whose partition does not exist in Dagster yet: its window has not ended."""
        if job.partition_end is None or job.scope is None:
            return None
        try:
            partitions = self._targets.partitions(schedule.target)
            begins_at = partitions.exists_from(job.partition_end) if partitions else None
        except Exception as error:
            reason, begins_at = not_looked_up(error).text, self._now + _LOOK_ANYWAY
        else:
            if begins_at is None or begins_at <= self._now:
                return None
            reason = f"partition {job.partition_end} exists from {format_moment(begins_at)} on"
        return Verdict(decision=Decision.HOLD, reason=reason, recheck_at=begins_at)

    def _verdict(self, constraint: Constraint, facts: JobFacts) -> Verdict:
        # A broken rule of one schedule must not stop the others: its job waits and shows why.
        try:
            return constraint.decide(facts, self._now)
        except Exception as error:
            return Verdict(
                decision=Decision.HOLD,
                reason=f"{constraint.kind} could not be decided: {error!r}",
                recheck_at=self._now + _LOOK_ANYWAY,
            )

    def _admit(
        self, job: Job, stored: StoredSchedule, facts: JobFacts, *, forced: str | None
    ) -> None:
        schedule = stored.schedule
        if schedule.partitions == "range":
            try:
                job = self._ranged(job, stored)
            except Exception as error:
                self._look_later(job, not_looked_up(error))
                return
        problem = problem_of(self._targets, schedule.target, job.partition_start, job.partition_end)
        request = request_of(self._queue.tx, job) if schedule.trigger.is_one_event else None
        if request is not None and (refusal := problem_of_request(request, schedule)):
            problem = Problem(text=refusal, lasting=True)
        if problem is not None and problem.lasting:
            self._counts["failed"] += 1
            fail_launch(self._queue, job, problem.text)
            return
        if problem is not None:
            self._look_later(job, problem)
            return
        if not stored.shadowed:
            held = {name for c in schedule.constraints for name in c.resources(facts.targets)}
            held.update(facts.targets)
            self._facts.admitted(job.id, held)
            self._holds.extend((name, job.id, self._now) for name in sorted(held))
        if stored.restarted:
            self._restart(stored)
        self._counts["admitted"] += 1
        launch = self._store.launch_of(stored, fired_by(schedule, job))
        self._queue.move(
            job,
            JobState.LAUNCHING,
            f"admitted past its constraints: {forced}" if forced else "admitted",
            notice=Notice.JOB_TIMED_OUT if forced == TIMED_OUT else None,
            waiting_for=None,
            attempt=1,
            launch=launch if request is None else with_request(launch, request),
            next_check_at=None,
            held_by=None,
            forced=forced,
        )

    def _ranged(self, job: Job, stored: StoredSchedule) -> Job:
        """Returns the job for the first contiguous range; other partitions get their own jobs."""
        target = stored.schedule.target
        if job.scope is not None:
            return self._joined(job, stored)
        if job.partition_start is not None and job.waiting_for is None:
            # A range that was split from another job before, and takes no more events.
            return job
        partitions = partitions_of(self._queue, job)
        if not partitions:
            return job
        return by_range(self._queue, job, self._targets.ranges(target, partitions))

    def _joined(self, job: Job, stored: StoredSchedule) -> Job:
        """Returns the job merged with jobs of adjacent partitions that may be launched now, too."""
        if stored.id not in self._adjacent:
            self._adjacent[stored.id] = self._joinable(stored)
        others, ranges = self._adjacent[stored.id]
        scope = str(job.scope)
        keys = ranges.get(scope, ())
        if not keys or not all(map(self._waits, (others[key] for key in keys))):
            left = [key for key, other in others.items() if key != scope and self._waits(other)]
            found = self._targets.ranges(stored.schedule.target, [scope, *left])
            (keys,) = (keys for keys in found if scope in keys)
        return join(self._queue, job, [others[key] for key in keys if key != scope], keys)

    def _joinable(self, stored: StoredSchedule) -> tuple[dict[str, Job], dict[str, Sequence[str]]]:
        """Returns the jobs of a schedule that may join a range, and the range of each partition."""
        jobs_by_key = {
            str(other.scope): other
            for other in self._queue.load(
                jobs.c.schedule_id == stored.id,
                jobs.c.scope.is_not(None),
                is_waiting,
                is_constrained,
            )
            if self._waits(other)
            and other.partition_start == other.partition_end == other.scope
            and self._may_join(other, stored.schedule)
        }
        found = self._targets.ranges(stored.schedule.target, list(jobs_by_key))
        return jobs_by_key, {key: keys for keys in found for key in keys}

    def _waits(self, job: Job) -> bool:
        return self._queue.current(job).state is JobState.WAITING_CONSTRAINTS

    def _may_join(self, job: Job, schedule: Schedule) -> bool:
        """Returns whether only counting constraints could hold a job: a range counts once."""
        facts = self._facts_of(job, schedule)
        verdicts = (
            self._verdict(constraint, facts)
            for constraint in schedule.constraints
            if not constraint.resources(facts.targets)
        )
        return self._not_yet(job, schedule) is None and all(
            verdict.decision is Decision.ADMIT for verdict in verdicts
        )

    def _restart(self, stored: StoredSchedule) -> None:
        """Restarts the timers that count from a launch, and withdraws their ticks.

        A tick from before the launch that is kept in the next job no longer counts.
        """
        if stored.id in self._restarted:
            # Nothing has arrived since: this transaction holds the location.
            return
        self._restarted.add(stored.id)
        leaves = stored.restarted
        timers.restart(self._queue.tx, [(stored, leaf, self._now) for leaf in leaves])
        following = self._queue.load(
            jobs.c.schedule_id == stored.id,
            is_waiting,
            in_state("waiting_trigger"),
        )
        for other in following:
            arrivals = list(self._queue.current(other).arrivals)
            for leaf in leaves:
                arrivals[leaf] = NOTHING
            self._queue.change(other, arrivals=tuple(arrivals), next_check_at=self._now)
            if not any(leaf.events for leaf in arrivals):
                self._discard(other, "a launch restarted its time", notice=None)

    def _look_later(self, job: Job, problem: Problem) -> None:
        self._keep(job, problem.text, BY_TARGET, look_at=self._now + _LOOK_ANYWAY)

    def _keep(self, job: Job, reason: str, cause: str, *, look_at: datetime | None) -> None:
        """Holds a job without a constraint."""
        self._counts["held"] += 1
        self._queue.wait(job, reason, next_check_at=look_at, held_by=None, cause=cause)

    def _hold(
        self, job: Job, holding: Sequence[Verdict], deadline_at: datetime | None, cause: str
    ) -> None:
        self._counts["held"] += 1
        looks = [verdict.recheck_at for verdict in holding if verdict.recheck_at]
        # All constraints must admit, so nothing changes before the latest of their recheck times.
        look_at = max(looks, default=self._now + _LOOK_ANYWAY)
        if deadline_at is not None:
            look_at = min(look_at, deadline_at)
        waits_for = [name for verdict in holding for name in verdict.waits_for]
        occupied = [name for name in waits_for if self._facts.is_held(name)]
        self._queue.wait(
            job,
            "; ".join(verdict.reason for verdict in holding),
            next_check_at=look_at,
            held_by=next(iter([*occupied, *waits_for]), None),
            cause=cause,
        )

    def _discard(
        self, job: Job, reason: str, *, notice: Notice | None = Notice.JOB_DISCARDED
    ) -> None:
        self._counts["discarded"] += 1
        self._queue.move(job, JobState.DISCARDED, reason, notice=notice)

    def _target_resources(self, schedule: Schedule) -> tuple[str, ...]:
        return schedule.target.resources(self._location.cluster, self._location.name)


def _cause_of(verdicts: Sequence[tuple[Constraint, Verdict]], holding: Verdict) -> str:
    """Returns the kind of the constraint that holds a job, with the group that it counts."""
    for constraint, verdict in verdicts:
        if verdict is holding:
            # Without targets only a group is left.
            return ":".join([constraint.kind, *constraint.resources(())])
    return BY_TARGET


def _verdicts_text(verdicts: Sequence[tuple[Constraint, Verdict]]) -> str:
    return json.dumps(
        [
            {
                "constraint": constraint.kind,
                "decision": verdict.decision.value,
                "reason": verdict.reason,
                "recheck_at": verdict.recheck_at and verdict.recheck_at.isoformat(),
            }
            for constraint, verdict in verdicts
        ]
    )
