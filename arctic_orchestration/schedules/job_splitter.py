"""Splits a job whose trigger is satisfied: one for each partition, or for each range of them.

Events about no partition, such as a tick of time in an ``any_of``, go to every part.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from arctic_orchestration.identifiers import new_id
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_waiting, job_events, jobs


def partitions_of(queue: JobQueue, job: Job) -> list[str]:
    """Returns the different partitions of a job's events, in the order of their first arrival."""
    queue.flush()
    return stored_partitions(queue.tx, job)


def stored_partitions(tx: sa.Connection, job: Job) -> list[str]:
    """As :func:`partitions_of`, for the events in the database."""
    query = (
        sa.select(job_events.c.partition)
        .where(job_events.c.job_id == job.id, job_events.c.partition != "")
        .group_by(job_events.c.partition)
        .order_by(sa.func.min(job_events.c.number))
    )
    return list(tx.execute(query).scalars())


def by_partition(queue: JobQueue, job: Job, *, coalesce: bool) -> None:
    """Splits a job into one for each of its partitions.

    With ``coalesce`` a partition joins an existing job that waits for it.
    """
    partitions = queue.partitions_of_new(job) if not coalesce else None
    if partitions is not None and len(partitions) <= 1:
        # One of the many jobs of a backlog, each of which has the events of one firing.
        key = partitions[0] if partitions else None
        queue.change(job, waiting_for=None, partition_start=key, partition_end=key)
        return
    partitions = partitions_of(queue, job)
    slots = {f"partition:{partition}": partition for partition in partitions or [""]}
    waiting = {}
    if coalesce:
        found = queue.load(
            jobs.c.schedule_id == job.schedule_id,
            dialect.among(queue.tx, jobs.c.waiting_for, list(slots)),
            is_waiting,
        )
        waiting = {other.waiting_for: other for other in found}
    parts: list[tuple[Job, Sequence[str]]] = []
    kept = False
    for slot, partition in slots.items():
        held_for = slot if coalesce else None
        key = partition or None
        if slot in waiting:
            parts.append((waiting[slot], [partition]))
        elif not kept:
            kept = True
            own = queue.change(job, waiting_for=held_for, partition_start=key, partition_end=key)
            parts.append((own, [partition]))
        else:
            parts.append((_part(queue, job, key, key, held_for), [partition]))
    _share(queue, job, parts)
    if not kept:
        queue.move(job, JobState.DISCARDED, "its partitions joined jobs that wait for them")


def by_range(queue: JobQueue, job: Job, ranges: Sequence[Sequence[str]]) -> Job:
    """Splits a job into one for each contiguous range; returns the job of the first range."""
    first, *others = ranges
    own = queue.change(job, partition_start=first[0], partition_end=first[-1])
    parts: list[tuple[Job, Sequence[str]]] = [(own, first)]
    parts.extend((_part(queue, job, keys[0], keys[-1], None), keys) for keys in others)
    if others:
        _share(queue, job, parts)
    return queue.current(own)


def join(queue: JobQueue, job: Job, others: Sequence[Job], keys: Sequence[str]) -> Job:
    """Merges the jobs of adjacent partitions into one; ``keys`` are all partitions, in order."""
    if not others:
        return job
    queue.flush()
    events = sa.select(job_events.c.leaf, job_events.c.number, job_events.c.partition)
    own = queue.tx.execute(events.where(job_events.c.job_id == job.id)).all()
    of_others = dialect.among(queue.tx, job_events.c.job_id, [other.id for other in others])
    found = queue.tx.execute(events.where(of_others)).all()
    taken = {(row.leaf, row.number) for row in own}
    for row in found:
        if (row.leaf, row.number) not in taken:
            taken.add((row.leaf, row.number))
            queue.attach(job, row.leaf, row.number, row.partition)
    for other in others:
        queue.move(other, JobState.DISCARDED, joined_text(keys[0], keys[-1]))
    return queue.change(job, partition_start=keys[0], partition_end=keys[-1])


def joined_text(start: str, end: str) -> str:
    """Returns the reason of a job that joined the run of a range."""
    return f"it joined the run of {start} to {end}"


def _part(queue: JobQueue, job: Job, start: str | None, end: str | None, slot: str | None) -> Job:
    """Adds a new job beside ``job`` that waits for its constraints."""
    return queue.add(
        replace(
            queue.current(job),
            id=new_id(queue.now),
            partition_start=start,
            partition_end=end,
            waiting_for=slot,
            next_check_at=queue.now,
        )
    )


def _share(queue: JobQueue, job: Job, parts: Sequence[tuple[Job, Sequence[str]]]) -> None:
    """Gives each part the events about its partitions, or about none."""
    queue.flush()
    query = sa.select(job_events.c.leaf, job_events.c.number, job_events.c.partition)
    rows = queue.tx.execute(query.where(job_events.c.job_id == job.id)).all()
    queue.tx.execute(sa.delete(job_events).where(job_events.c.job_id == job.id))
    by_key = defaultdict(list)
    for row in rows:
        by_key[row.partition].append(row)
    for part, partitions in parts:
        for partition in dict.fromkeys((*partitions, "")):
            for row in by_key[partition]:
                queue.attach(part, row.leaf, row.number, row.partition)
    queue.flush()
