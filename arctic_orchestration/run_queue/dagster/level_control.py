"""Gives queued runs other levels."""

from datetime import datetime
from typing import TYPE_CHECKING

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.run_queue import levels
from arctic_orchestration.run_queue.census import QueuedRun
from arctic_orchestration.run_queue.dagster.open_queue import Opened
from arctic_orchestration.run_queue.explanation import Outlook
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import Actor

if TYPE_CHECKING:
    from dagster import RunRecord


def request_level(
    queue: Opened, record: "RunRecord", level: int, now: datetime, actor: Actor
) -> None:
    """Gives a queued run another level, from the next pass on, with an audit record."""
    run = record.dagster_run
    if queue.rules.are_none:
        # Without rules there are no passes that would write it.
        tags = levels.tags_of(level, run.tags, record.create_timestamp, queue.rules)
        queue.instance.add_run_tags(run.run_id, tags)
    with queue.database.begin() as tx:
        if not queue.rules.are_none:
            levels.request_level(tx, queue.cluster, run.run_id, level, now)
        details = {"job": run.job_name, "level": level}
        audit.record(tx, actor, "runs", "prioritize", run.run_id, **details)


def standing(outlook: Outlook, run_id: str) -> QueuedRun | None:
    """Returns a queued run with its tags and number, or None if it is not queued."""
    place = outlook.places.get(run_id)
    return None if place is None else outlook.order[place - 1]


def check_queued(record: "RunRecord") -> None:
    """Refuses a run that does not wait in the queue.

    Errors:
        TransitionRefused: names its status.
    """
    status = record.dagster_run.status.value
    if status != "QUEUED":
        raise TransitionRefused(
            f"run {record.dagster_run.run_id} does not wait in the queue any more: it is "
            f"{status}. Only what waits has a level"
        )
