"""Gives queued runs other levels."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.run_queue import levels
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import QueuedRun
from arctic_orchestration.run_queue.dagster.open_queue import Opened, time_of_queueing
from arctic_orchestration.run_queue.explanation import Outlook, level_of
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.audit import Actor

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord

_log = logging.getLogger("dagster.run_coordinator.arctic")


def request_level(
    queue: Opened,
    run_id: str,
    level: int,
    now: datetime,
    actor: Actor,
    *,
    check: Callable[[Mapping[str, str]], None] | None = None,
) -> int | None:
    """Gives a queued run another level, from the next pass on, with an audit record.

    Args:
        queue: the run queue.
        run_id: the run.
        level: its new level.
        now: the present moment.
        actor: who gives it.
        check: raises if the run's tags are not the expected ones. They are those that the next pass
            would see, and no other request for the run changes them until this one is stored.

    Returns:
        the level before, which may be a request that no pass has written yet.

    Errors:
        NotFound: Dagster has no such run.
        TransitionRefused: it does not wait in the queue.
    """
    with queue.database.begin() as tx:
        dialect.lock(tx, f"level of run {run_id}")
        record = queue.record(run_id)
        check_queued(record)
        run, rules = record.dagster_run, queue.rules
        requested = levels.pending_level(tx, queue.cluster, run_id)
        queued_at, before = time_of_queueing(queue.instance, record), run.tags
        if requested is not None:
            before = {**before, **levels.tags_of(requested, before, queued_at, rules)}
        if check is not None:
            check(before)
        if rules.are_none:
            # Without rules there are no passes that would write it.
            queue.instance.add_run_tags(run_id, levels.tags_of(level, before, queued_at, rules))
        else:
            levels.request_level(tx, queue.cluster, run_id, level, now)
        details = {"job": run.job_name, "level": level}
        audit.record(tx, actor, "runs", "prioritize", run_id, **details)
    return level_of(before, rules)


def take_ages(instance: "DagsterInstance") -> None:
    """Gives queued runs their levels as Dagster's priorities, after levels have ceased to age.

    With their aged numbers they would wait behind all runs that are queued later.
    """
    from dagster import DagsterRunStatus, RunsFilter

    try:
        for run in instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED])):
            if tagging.queued_at_of(run.tags) is not None:
                level = tagging.parse_level(run.tags.get(tagging.LEVEL, "")) or 0
                tags = {tagging.PRIORITY: str(level), tagging.QUEUED_AT: ""}
                instance.add_run_tags(run.run_id, tags)
    except Exception:
        # Runs start all the same.
        _log.exception("runs that were queued while levels aged wait behind later ones")


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
