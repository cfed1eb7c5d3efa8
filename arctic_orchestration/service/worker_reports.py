"""``/workers/attempts``: the reports of workers, each of which can be repeated."""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Path

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.work import attempt_lookup, attempts, workers
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.errors import Refused, TransitionRefused
from arctic_orchestration.service import worker_documents as documents
from arctic_orchestration.service.access import Caller, WorkersReader, WorkersWriter
from arctic_orchestration.service.bodies import JsonObject, takes
from arctic_orchestration.service.merge_reports import checked_outputs
from arctic_orchestration.service.service import Service, ServiceOfApp
from arctic_orchestration.service.workers import admits

router = APIRouter(prefix="/workers/attempts", tags=["workers"])
AttemptId = Annotated[str, Path(description="The attempt's id.")]
#: what an accepted report makes of an attempt, and what may become of that
_MERGED = (AttemptState.MERGED, AttemptState.COMMITTED, AttemptState.DROPPED)
_FAILED = (AttemptState.FAILED,)
_RELEASED = (AttemptState.RELEASED,)


@router.get("/{attempt}")
def show_attempt(
    service: ServiceOfApp, caller: WorkersReader, attempt: AttemptId
) -> documents.AttemptDocument:
    """Show what became of an attempt."""
    with service.database.read() as tx:
        return _attempt(tx, caller, attempt)


@router.post("/{attempt}/merged", openapi_extra=takes(documents.MergedForm))
def report_merged(
    service: ServiceOfApp, caller: WorkersWriter, attempt: AttemptId, body: JsonObject
) -> documents.AttemptDocument:
    """Report the outputs of a merge; from now on they wait for the committer."""
    form = documents.MergedForm.parse(body)

    def report(tx: sa.Connection) -> None:
        tried = attempt_lookup.attempt_by_id(tx, attempt)
        outputs = checked_outputs(form, tried, task_store.group_of(tx, tried.task_id))
        if tried.outputs is not None and list(tried.outputs) != outputs:
            raise TransitionRefused(f"Attempt {attempt} has reported other outputs")
        attempts.merged(
            tx, attempt, form.fencing_token, outputs=outputs, rows_in=form.rows_in,
            rows_deleted=form.rows_deleted, rows_out=form.rows_in - form.rows_deleted, way=form.way,
            because=form.because, sort_order_id=form.sort_order_id,
        )  # fmt: skip

    return _reported(service, caller, attempt, form.fencing_token, _MERGED, report)


@router.post("/{attempt}/failed", openapi_extra=takes(documents.FailedForm))
def report_failed(
    service: ServiceOfApp, caller: WorkersWriter, attempt: AttemptId, body: JsonObject
) -> documents.AttemptDocument:
    """Report a failure; the task is tried again later, or given up."""
    form = documents.FailedForm.parse(body)

    def report(tx: sa.Connection) -> None:
        attempts.failed(
            tx, attempt, form.fencing_token, form.reason, final=form.retry == "not this table",
            bad_files=form.retry == "not these files",
        )  # fmt: skip

    return _reported(service, caller, attempt, form.fencing_token, _FAILED, report)


@router.post("/{attempt}/released", openapi_extra=takes(documents.ReleaseForm))
def report_released(
    service: ServiceOfApp, caller: WorkersWriter, attempt: AttemptId, body: JsonObject
) -> documents.AttemptDocument:
    """Put a task back for any worker to claim at once; counts as no attempt."""
    form = documents.ReleaseForm.parse(body)

    def report(tx: sa.Connection) -> None:
        attempts.release(tx, attempt, form.fencing_token, reason=form.reason)

    return _reported(service, caller, attempt, form.fencing_token, _RELEASED, report)


def _reported(
    service: Service,
    caller: Caller,
    attempt: str,
    token: int,
    accepted: Collection[AttemptState],
    report: Callable[[sa.Connection], object],
) -> documents.AttemptDocument:
    """Reports, unless this report was accepted before.

    Errors:
        NotFound: no such attempt.
        Refused: the attempt has lost the task, or has ended with another report.
        RequestRefused: 403; the caller may not serve the task's queue.
    """

    def once() -> documents.AttemptDocument:
        with service.database.begin() as tx:
            _attempt(tx, caller, attempt)
            report(tx)
            return _attempt(tx, caller, attempt)

    # The first time, it may have waited for another report after it had read the attempt.
    with suppress(Refused):
        return once()
    try:
        return once()
    except Refused:
        with service.database.read() as tx:
            found = attempt_lookup.attempt_by_id(tx, attempt)
            if found.token == token and found.state in accepted:
                return _attempt(tx, caller, attempt)
        raise


def _attempt(tx: sa.Connection, caller: Caller, id: str) -> documents.AttemptDocument:
    found = attempt_lookup.attempt_by_id(tx, id)
    task = task_store.task_by_id(tx, found.task_id)
    worker = workers.worker_of(tx, id)
    if worker is None or not admits(caller, worker.queues):
        # A task that was put back is in the present queue of its table, perhaps not the worker's.
        caller.check(queue=task.queue)
    return documents.AttemptDocument(
        attempt=found.id,
        task=task.id,
        state=found.state,
        task_state=task.state,
        reason=found.reason,
    )
