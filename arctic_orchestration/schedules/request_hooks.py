"""Asks a schedule's own function for the request of each run: its request hook.

``Schedule(request=function)`` is Python, and not part of what is stored: the function of the code
that ticks is called, by the name of a declared schedule. A deployment that changes nothing but the
function makes no new version, and discards nothing.

The function is called once a job, after its admission and before its first launch request, outside
of any transaction. The result is stored with the job, so that each attempt requests the same run.
A crash before that leads to another call. A job that the function skips is canceled with the
function's reason, and frees its slots; so is one for whose run key another job has requested a run
that is not made yet; one at which it fails has failed, and no other job waits for
that. Rates and intervals count a job that was skipped as launched.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.schedules.launch_requests import fail_launch, is_shadowed
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.state.tables import events, is_launching, job_events, jobs, schedules

#: the mark of a stored request that a hook has decided
_DECIDED = "decided"
#: how the text of such a request ends
_DECIDED_END = f', "{_DECIDED}": true}}'
#: the run key that an adopted sensor's function gave its request
ADOPTED_KEY_TAG = "adopted/run_key"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a hook receives about a job."""

    schedule: str
    job_id: str
    #: when the trigger was satisfied
    satisfied_at: datetime | None
    #: what fired, for people
    trigger: str
    partition_start: str | None
    partition_end: str | None
    properties: Mapping[str, Any]
    run_config: Mapping[str, Any]
    tags: Mapping[str, str]
    events: Sequence[Event] = ()
    #: no run is requested, whatever the answer
    shadowed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a hook decided: the request, or why there is none."""

    run_config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    #: it wants no run, for this reason
    skipped: str | None = None
    #: it failed, for this reason
    problem: str | None = None


class RequestHooks(Protocol):
    """The request hooks of a code location."""

    @property
    def names(self) -> Sequence[str]:
        """The declared schedules that have one."""
        ...

    def ask(self, question: Question) -> Answer:
        """Calls the hook of a schedule; does not raise, and ends."""
        ...


class NoHooks:
    """A code location without request hooks."""

    names: Sequence[str] = ()

    def ask(self, question: Question) -> Answer:
        raise NotImplementedError


def questions(queue: JobQueue, query: sa.Select[Any]) -> list[Question]:
    """Returns what has to be asked before the jobs of a query, all undecided, can be handed out.

    A job whose stored request cannot be read fails; no hand-out had it before.
    """
    asked = []
    for job in queue.load(query=query):
        try:
            asked.append(_question(queue.tx, job))
        except Exception as error:
            fail_launch(queue, job, f"its stored request cannot be read: {error!r}")
    queue.flush()
    return asked


def undecided(names: Sequence[str]) -> sa.ColumnElement[bool]:
    """Returns the condition of jobs whose hooks have not been asked; ``names`` are schedules."""
    if not names:
        return sa.false()
    mine = (schedules.c.origin == Origin.CODE.value) & schedules.c.name.in_(names)
    hooked = jobs.c.schedule_id.in_(sa.select(schedules.c.id).where(mine))
    return hooked & ~sa.func.coalesce(jobs.c.launch, "").endswith(_DECIDED_END)


def in_turn(names: Sequence[str], slow: list[str]) -> Iterator[Sequence[str]]:
    """Yields the schedules whose hooks are asked together, in the order in which they are asked.

    Those at which the time of a tick ended come last, one by one, longest ago first: with many
    jobs, they would keep all others waiting. ``slow`` has them, and is cleared of repeated ones.
    """
    slow[:] = [name for n, name in enumerate(slow) if name in names and name not in slow[n + 1 :]]
    for some in ([name for name in names if name not in slow], *([name] for name in slow)):
        if some:
            yield some


def decide(queue: JobQueue, job_id: str, answer: Answer) -> None:
    """Stores an answer, unless the job was canceled meanwhile."""
    job = queue.by_ids([job_id]).get(job_id)
    if job is None or job.state is not JobState.LAUNCHING:
        return
    if answer.problem is None and _is_requested_twice(queue, job, answer):
        key = answer.tags[ADOPTED_KEY_TAG]
        answer = Answer(skipped=f"another job requests a run for the run key {key}")
    if answer.problem is not None:
        fail_launch(queue, job, answer.problem)
    elif answer.skipped is not None:
        reason = f"its request hook wants no run: {answer.skipped}"
        queue.move(job, JobState.CANCELED, reason)
    else:
        launch = json.loads(job.launch or "{}")
        launch["run_config"], launch["tags"] = dict(answer.run_config), dict(answer.tags)
        queue.change(job, launch=json.dumps({**launch, _DECIDED: True}))


def _is_requested_twice(queue: JobQueue, job: Job, answer: Answer) -> bool:
    """Returns whether another job of the schedule requests a run that is not among Dagster's yet.

    A sensor of Dagster makes one run for a run key; its function cannot know of a request that was
    decided a moment before.
    """
    key = answer.tags.get(ADOPTED_KEY_TAG)
    if key is None:
        return False
    mine = is_launching & (jobs.c.schedule_id == job.schedule_id) & (jobs.c.id != job.id)
    query = sa.select(jobs.c.launch).where(mine, jobs.c.launch.contains(_DECIDED))
    stored = map(json.loads, queue.tx.execute(query).scalars())
    return any(one["tags"].get(ADOPTED_KEY_TAG) == key for one in stored)


def _question(tx: sa.Connection, job: Job) -> Question:
    launch = json.loads(job.launch or "{}")
    same = (job_events.c.location_id == events.c.location_id) & (
        job_events.c.number == events.c.number
    )
    taken = (
        sa.select(events.c.number, events.c.details)
        .join(job_events, same)
        .where(job_events.c.job_id == job.id)
        .order_by(events.c.number)
    )
    # An event that two leaves took is one event.
    details = {row.number: row.details for row in tx.execute(taken)}
    return Question(
        schedule=launch["schedule"],
        job_id=job.id,
        satisfied_at=job.satisfied_at,
        trigger=launch["trigger"],
        partition_start=job.partition_start,
        partition_end=job.partition_end,
        properties=launch["properties"],
        run_config=launch["run_config"],
        tags=launch["tags"],
        events=tuple(map(Event.parse, details.values())),
        shadowed=is_shadowed(job),
    )
