"""The partitions of a schedule's target, and the schedule's status for each of them.

=============  ==================================================================================
``waiting``    a job waits: the reason says what for
``late``       the schedule fired for the partition before, and a job waits again
``running``    a run was requested and has not ended
``done``       the last run succeeded
``failed``     the last run failed or was canceled
``discarded``  the last job ended without a run
``fired``      the schedule fired; the job was deleted since
``never``      the schedule has not fired, and nothing has arrived
=============  ==================================================================================
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.schedules.job_splitter import joined_text
from arctic_orchestration.schedules.jobs import ACTIVE, COMMON, WAITING, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.state import dialect
from arctic_orchestration.state.partition_tables import schedule_partitions
from arctic_orchestration.state.tables import is_active, is_waiting, jobs

if TYPE_CHECKING:
    from arctic_orchestration.partitioning.calendar import Calendar
    from arctic_orchestration.partitioning.key_space import KeySpace


class PartitionStatus(StrEnum):
    """The status of a schedule for a partition; see the module's docstring."""

    WAITING = "waiting"
    LATE = "late"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DISCARDED = "discarded"
    FIRED = "fired"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetPartition:
    """A target partition, or a group of upstream partitions, of a schedule."""

    key: str
    status: PartitionStatus
    reason: str = ""
    #: the last firing of the schedule for it
    fired_at: datetime | None = None
    #: the last job; None: there was none, or it was deleted
    job: Job | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "partition": self.key,
            "status": self.status.value,
            "reason": self.reason,
            "fired_at": iso(self.fired_at),
            "job": self.job and self.job.id,
            "run_id": self.job and self.job.run_id,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionPage:
    """One page of the partitions of a schedule."""

    listed: Sequence[TargetPartition]
    #: whether more follow
    more: bool
    #: whether all partitions are listed, including those without jobs
    complete: bool

    @property
    def next_after(self) -> str | None:
        """The key after which the next page begins, or None on the last page."""
        return self.listed[-1].key if self.more else None


def target_partitions(
    tx: sa.Connection,
    location: Location,
    stored: StoredSchedule,
    now: datetime,
    *,
    first: str | None = None,
    last: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> PartitionPage:
    """Returns the partitions of a schedule's target: time windows newest first, others in order.

    Windows that begin after ``now`` are listed if a job waits for them. Without the code location's
    inventory, and for dynamic partitions, only partitions with jobs are listed.

    Args:
        tx: a transaction that reads.
        location: of the schedule.
        stored: a schedule whose jobs belong to partitions or groups.
        now: an aware moment.
        first: the first partition, day or moment; None: no limit.
        last: the last one, inclusive; None: no limit.
        after: list partitions after this key.
        limit: the maximum number of listed partitions.

    Errors:
        InvalidInput: the schedule has no such jobs, or a limit is no partition and no date.
    """
    if not stored.is_scoped:
        expected = "a schedule with partitions: each or range, or a trigger with per"
        raise InvalidInput("NAME", stored.name, expected)
    space = _space(tx, location, stored)
    keys: list[str]
    if space is None:
        keys = _recorded(tx, stored, first, last, after, limit + 1)
    else:
        keys = _listed(tx, stored, space(now, first, last), after, limit + 1)
    listed = _stand(tx, stored, keys[:limit])
    return PartitionPage(listed=listed, more=len(keys) > limit, complete=space is not None)


def _space(
    tx: sa.Connection, location: Location, stored: StoredSchedule
) -> "Callable[[datetime, str | None, str | None], Calendar] | None":
    """Makes the calendar of a schedule's target, or groups; None: not all keys are known."""
    inventory = inventories(tx, location.cluster).get(location.name)
    if inventory is None:
        return None
    schedule = stored.schedule
    space: KeySpace | None
    if schedule.partitions == "none":
        leaf = next(leaf for leaf in stored.leaves if leaf.source.per is not None)
        partitioning = inventory.assets.get(leaf.asset_of_partitions or "")
        whole = partitioning.key_space() if partitioning is not None else None
        space = whole.dimensions.get(leaf.source.per or "") if whole is not None else None
    else:
        partitioning = inventory.partitioning_of(schedule.target)
        space = partitioning.key_space() if partitioning is not None else None
    if space is None:
        return None
    from arctic_orchestration.partitioning.calendar import Calendar

    found = space
    if not Calendar.lists(found):
        return None
    return lambda now, first, last: Calendar(found, now, first, last)


def _listed(
    tx: sa.Connection, stored: StoredSchedule, calendar: "Calendar", after: str | None, limit: int
) -> list[str]:
    """Returns keys of a calendar, then keys with jobs that the definition lacks."""
    query = sa.select(_KEY).where(jobs.c.schedule_id == stored.id, is_waiting | is_active)
    living = {key for key in tx.execute(query).scalars() if key not in (None, COMMON)}
    own = {key for key in living if calendar.has(key)}
    keys: list[str] = []
    if after is None or calendar.has(after):
        begin = None if after is None else calendar.rank(after)
        keys = calendar.keys(after, limit)
        later = (key for key in own if begin is None or calendar.rank(key) > begin)
        keys = sorted({*keys, *later}, key=calendar.rank)[:limit]
        after = None
    if len(keys) < limit and not calendar.is_limited:
        foreign = sorted(key for key in living - own if after is None or key > after)
        keys += foreign[: limit - len(keys)]
    return keys


def _recorded(
    tx: sa.Connection,
    stored: StoredSchedule,
    first: str | None,
    last: str | None,
    after: str | None,
    limit: int,
) -> list[str]:
    """Returns keys with a job, or for which the schedule fired, in reverse text order."""
    of_jobs = sa.select(_KEY.label("key")).where(jobs.c.schedule_id == stored.id)
    fired = sa.select(schedule_partitions.c.scope).where(
        schedule_partitions.c.schedule_id == stored.id
    )
    # Compared in Python: databases sort texts by their own collations.
    found = set(tx.execute(of_jobs.union(fired)).scalars()) - {None, COMMON}
    keys = (
        key
        for key in found
        if (first is None or key >= first)
        and (last is None or key <= last)
        and (after is None or key < after)
    )
    return sorted(keys, reverse=True)[:limit]


def _stand(tx: sa.Connection, stored: StoredSchedule, keys: Sequence[str]) -> list[TargetPartition]:
    newest = newest_jobs(tx, stored, keys)
    joined = _runs_of_ranges(tx, stored, newest.values())
    table = schedule_partitions.c
    query = sa.select(table.scope, table.fired_at).where(
        table.schedule_id == stored.id, dialect.among(tx, table.scope, keys)
    )
    fired = {row.scope: row.fired_at for row in tx.execute(query)}
    return [
        _standing(key, joined.get(job.reason, job) if job is not None else None, fired.get(key))
        for key in keys
        for job in [newest.get(key)]
    ]


def _standing(key: str, job: Job | None, fired_at: datetime | None) -> TargetPartition:
    if job is None:
        if fired_at is None:
            return TargetPartition(key=key, status=PartitionStatus.NEVER)
        reason, status = "its job is no longer kept", PartitionStatus.FIRED
        return TargetPartition(key=key, status=status, reason=reason, fired_at=fired_at)
    status = _ENDS.get(job.state, PartitionStatus.RUNNING)
    if job.state in WAITING:
        again = job.state is JobState.WAITING_TRIGGER and fired_at is not None
        late = again or any(arrivals.late for arrivals in job.arrivals)
        status = PartitionStatus.LATE if late else PartitionStatus.WAITING
    return TargetPartition(key=key, status=status, reason=job.reason, fired_at=fired_at, job=job)


def newest_jobs(
    tx: sa.Connection, stored: StoredSchedule, keys: Collection[str]
) -> Mapping[str, Job]:
    """Returns the newest job of each target partition, or group, of a schedule."""
    query = (
        sa.select(jobs)
        .where(jobs.c.schedule_id == stored.id, dialect.among(tx, _KEY, list(keys)))
        .order_by(jobs.c.created_at, jobs.c.id)
    )
    found = (Job.from_row(dict(row)) for row in tx.execute(query).mappings())
    return {str(job.scope or job.partition_start): job for job in found}


def _runs_of_ranges(tx: sa.Connection, stored: StoredSchedule, of: Iterable[Job]) -> dict[str, Job]:
    """Returns jobs whose runs others joined, by the reason of the joined jobs."""
    reasons = {job.reason for job in of if job.state is JobState.DISCARDED}
    if not reasons or stored.schedule.partitions != "range":
        return {}
    query = sa.select(jobs).where(
        jobs.c.schedule_id == stored.id, jobs.c.partition_start != jobs.c.partition_end
    )
    rows = tx.execute(query.order_by(jobs.c.created_at, jobs.c.id)).mappings()
    ranges = (Job.from_row(dict(row)) for row in rows)
    found = {joined_text(str(job.partition_start), str(job.partition_end)): job for job in ranges}
    return {reason: job for reason, job in found.items() if reason in reasons}


#: the target partition, or the group, of a job
_KEY = sa.func.coalesce(jobs.c.scope, jobs.c.partition_start, type_=sa.Text)
_ENDS = {
    **dict.fromkeys(ACTIVE, PartitionStatus.RUNNING),
    JobState.SUCCEEDED: PartitionStatus.DONE,
    JobState.FAILED: PartitionStatus.FAILED,
    JobState.CANCELED: PartitionStatus.FAILED,
    JobState.DISCARDED: PartitionStatus.DISCARDED,
}
