"""What runs did, from Dagster's records: limits are held or broken by these, not by memory.

A run holds its place from the moment in which the daemon takes it out of the queue until its end.
Moments are seconds of real time.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES, RunRecord


@dataclass(frozen=True, kw_only=True)
class Held:
    """The place that a run holds or held."""

    run_id: str
    job: str
    begun_at: float
    ended_at: float | None


def places(instance: DagsterInstance, runs: Iterable[str]) -> list[Held]:
    """The places of those of the runs that have left the queue, in the order in which they did."""
    records = instance.get_run_records(RunsFilter(run_ids=list(runs)))
    begun = [(record, _begun_at(instance, record)) for record in records]
    found = [
        Held(
            run_id=record.dagster_run.run_id,
            job=record.dagster_run.job_name,
            begun_at=at,
            ended_at=record.end_time,
        )
        for record, at in begun
        if at is not None
    ]
    return sorted(found, key=lambda held: held.begun_at)


def _begun_at(instance: DagsterInstance, record: RunRecord) -> float | None:
    status = record.dagster_run.status
    if status in (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED):
        return None
    starting = instance.get_records_for_run(
        record.dagster_run.run_id, of_type=DagsterEventType.PIPELINE_STARTING
    ).records
    # A run that was launched outside the queue never was STARTING.
    return starting[0].timestamp if starting else record.start_time


def most_together(held: Sequence[Held]) -> int:
    """The largest number of places held at one moment; one that ends frees it for the next."""
    changes = [(one.begun_at, 1) for one in held]
    changes += [(one.ended_at, -1) for one in held if one.ended_at is not None]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def most_begun_within(held: Sequence[Held], seconds: float) -> int:
    """The largest number of places taken in one span ``(t - seconds, t]``."""
    begun = sorted(one.begun_at for one in held)
    return max(sum(last - seconds < at <= last for at in begun) for last in begun)


class Sampler:
    """Looks at the runs in progress, often, while a block lasts."""

    def __init__(self, instance: DagsterInstance, *, job: str) -> None:
        self._instance = instance
        self._job = job
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.looks = 0
        self.most = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        active = RunsFilter(job_name=self._job, statuses=IN_PROGRESS_RUN_STATUSES)
        while not self._ended.wait(0.05):
            self.most = max(self.most, self._instance.get_runs_count(active))
            self.looks += 1
