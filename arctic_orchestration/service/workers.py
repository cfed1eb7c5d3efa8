"""``/workers``: workers of compaction that know neither the state database nor the catalog.

The protocol is docs/worker-protocol.md. Every request can be repeated: a claim by its key, a report
by its attempt. Leases, fencing tokens and reports are those of :mod:`~.compaction.work.attempts`.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from arctic_orchestration.compaction import control
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.views.documents import WorkerDocument
from arctic_orchestration.compaction.views.workers import busy_workers, with_merges
from arctic_orchestration.compaction.work import attempt_lookup, attempts, workers
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.attempts import LEASE
from arctic_orchestration.compaction.work.workers import Order, Worker, WorkerInfo
from arctic_orchestration.errors import NotFound, TransitionRefused
from arctic_orchestration.leases import RENEWALS
from arctic_orchestration.service import parameters
from arctic_orchestration.service import worker_documents as documents
from arctic_orchestration.service.access import Caller, WorkersReader, WorkersWriter
from arctic_orchestration.service.assignments import TableAway, assignment_of
from arctic_orchestration.service.bodies import JsonObject, takes
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.problems import RETRY_SECONDS
from arctic_orchestration.service.service import Service, ServiceOfApp
from arctic_orchestration.state.dialect import database_time

router = APIRouter(prefix="/workers", tags=["workers"])
WorkerId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="The worker's id, its own choice.")
]
WorkerAction = Literal["drain", "resume", "stop"]


@router.get("")
def list_workers(service: ServiceOfApp, caller: WorkersReader) -> documents.Workers:
    """List workers that were seen within two minutes, those of the state database too."""
    with service.database.read() as tx:
        listed = [
            WorkerDocument.from_record(busy)
            for busy in busy_workers(tx)
            if admits(caller, busy.worker.queues)
        ]
    return documents.Workers(workers=listed)


@router.get("/{worker}", responses={200: HAS_ETAG})
def show_worker(
    service: ServiceOfApp, caller: WorkersReader, worker: WorkerId, response: Response
) -> WorkerDocument:
    """Show a worker, and what it is to do."""
    with service.database.read() as tx:
        one = _known(tx, caller, worker)
        response.headers["ETag"] = _etag(one)
        return _described(tx, one)


@router.put("/{worker}", openapi_extra=takes(documents.RegisterForm))
def register_worker(
    service: ServiceOfApp, caller: WorkersWriter, worker: WorkerId, body: JsonObject
) -> documents.Registration:
    """Register a worker under an id of its own choice; repeated, what it reports is replaced."""
    form = documents.RegisterForm.parse(body)
    check_queues(caller, form.queues)
    about = WorkerInfo(
        id=worker, name=form.name, queues=form.queues, parallelism=form.slots,
        host=caller.actor.address, pid=0, memory=form.memory, version=form.version or "",
        labels=form.labels,
    )  # fmt: skip
    with service.database.begin() as tx:
        with suppress(NotFound):
            # The id may be that of another one, which would lose its queues.
            check_queues(caller, workers.lock_worker(tx, worker).queues)
        order = workers.record_heartbeat(tx, about)
    return documents.Registration(
        worker=worker,
        order=order,
        lease_seconds=LEASE.total_seconds(),
        beat_seconds=LEASE.total_seconds() / RENEWALS,
        longest_wait_seconds=documents.LONGEST_WAIT_SECONDS,
    )


@router.delete("/{worker}", status_code=204)
def end_worker(service: ServiceOfApp, caller: WorkersWriter, worker: WorkerId) -> None:
    """End a worker: its tasks are put back, and it claims nothing more."""
    with service.database.begin() as tx:
        with suppress(NotFound):
            check_queues(caller, workers.lock_worker(tx, worker).queues)
        held = attempt_lookup.live_attempts_of(tx, worker)
        for one in held:
            caller.check(queue=task_store.task_by_id(tx, one.task_id).queue)
        attempts.release_all(tx, [(one.id, one.token) for one in held])
        workers.forget_worker(tx, worker)


@router.post("/{worker}/claim", openapi_extra=takes(documents.ClaimForm))
async def claim(
    service: ServiceOfApp,
    caller: WorkersWriter,
    worker: WorkerId,
    body: JsonObject,
    request: Request,
) -> documents.ClaimAnswer:
    """Claim a task; waits until there is one, at most wait_seconds.

    A repeated key is the same claim: it returns the task that was claimed with it. 409 once that
    attempt has ended.
    """
    form = documents.ClaimForm.parse(body)
    began_at = time.monotonic()
    ends_at = began_at + form.wait_seconds
    tries = not (form.wait_seconds and service.waiters.has_none)
    answer, one = await run_in_threadpool(_claimed, service, caller, worker, form.key, tries)
    while not (answer.assignment or answer.retry_seconds or answer.order is Order.STOP):
        queues = one.queues if answer.order is Order.RUN else None
        left = ends_at - time.monotonic()
        if left <= 0 or not await service.waiters.wait(worker, queues, left):
            break
        if await request.is_disconnected():
            break
        answer, one = await run_in_threadpool(_claimed, service, caller, worker, form.key)
    return answer.model_copy(update={"waited_seconds": time.monotonic() - began_at})


@router.post("/{worker}/beat", openapi_extra=takes(documents.BeatForm))
def beat(
    service: ServiceOfApp, caller: WorkersWriter, worker: WorkerId, body: JsonObject
) -> documents.BeatAnswer:
    """Renew the leases of a worker's attempts, and learn what to do with each."""
    form = documents.BeatForm.parse(body)
    with service.database.begin() as tx:
        one = workers.lock_worker(tx, worker, beats=True)
        check_queues(caller, one.queues)
        own = {held.id for held in attempt_lookup.live_attempts_of(tx, worker)}
    answers = []
    for held in form.attempts:
        renewed = False
        if held.attempt in own:
            # Not in one transaction: the expiry locks tables before attempts.
            with service.database.begin() as tx:
                renewed = attempts.renew(tx, held.attempt, held.fencing_token, life=LEASE)
        answer: Literal["go on", "cancel", "lost"] = "go on" if renewed else "lost"
        if renewed and one.order is Order.STOP:
            answer = "cancel"
        answers.append(documents.AttemptAnswer(attempt=held.attempt, answer=answer))
    return documents.BeatAnswer(
        order=one.order, lease_seconds=LEASE.total_seconds(), attempts=answers
    )


@router.post("/{worker}/{worker_action}", responses={200: HAS_ETAG})
async def act_on_worker(
    service: ServiceOfApp,
    caller: WorkersWriter,
    worker: WorkerId,
    worker_action: WorkerAction,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> WorkerDocument:
    """Drain a worker (it finishes its tasks and claims nothing), resume it, or make it stop.

    One that stops puts its tasks back and ends.
    """

    def act() -> WorkerDocument:
        with service.database.begin() as tx:
            before = workers.lock_worker(tx, worker)
            check_queues(caller, before.queues)
            parameters.check_etag(if_match, _etag(before))
            after = control.order_worker(tx, worker, worker_action, caller.actor)
            response.headers["ETag"] = _etag(after)
            return _described(tx, after)

    document = await run_in_threadpool(act)
    service.waiters.wake(worker)
    return document


def _claimed(
    service: Service, caller: Caller, worker: str, key: str, tries: bool = True
) -> tuple[documents.ClaimAnswer, Worker]:
    """Claims a task if one is claimable and it ``tries``, and returns the worker, which beats.

    Errors:
        TransitionRefused: the attempt that was claimed with the key has ended.
    """
    began_at = time.monotonic()
    with service.database.begin() as tx:
        # Locked: of two requests with one key, the second finds the claim of the first.
        one = workers.lock_worker(tx, worker, beats=True)
        check_queues(caller, one.queues)
        before = attempt_lookup.attempt_by_key(tx, worker, key)
        if before is not None and before.state is not AttemptState.LIVE:
            raise TransitionRefused(
                f"Claim {key!r} is over: attempt {before.id} is {before.state}; claim with another"
            )
        found = None
        if before is not None:
            found = attempt_lookup.claim_of(tx, before)
        elif one.order is Order.RUN and tries:
            found = attempts.claim(
                tx, one.queues, one.name, life=LEASE, worker_id=worker, key=key
            )  # fmt: skip
        left = found.expires_at - database_time(tx) if found is not None else LEASE
    made, retry_seconds = None, 0.0
    if found is not None:
        try:
            made = assignment_of(service, found, began_at + left.total_seconds())
        except TableAway:
            retry_seconds = RETRY_SECONDS
    answer = documents.ClaimAnswer(
        order=one.order, waited_seconds=0, retry_seconds=retry_seconds, assignment=made
    )
    return answer, one


def check_queues(caller: Caller, queues: Sequence[str]) -> None:
    """Refuses a worker whose queues the caller may not serve; no queue is all of them.

    Errors:
        RequestRefused: 403.
    """
    for queue in queues:
        caller.check(queue=queue)
    if not queues:
        caller.check()


def admits(caller: Caller, queues: Sequence[str]) -> bool:
    """Returns whether a caller may serve all queues of a worker; no queue is all of them."""
    return all(caller.admits(queue=queue) for queue in queues) if queues else caller.admits()


def _known(tx: sa.Connection, caller: Caller, worker: str) -> Worker:
    one = workers.worker_by_id(tx, worker)
    check_queues(caller, one.queues)
    return one


def _etag(one: Worker) -> str:
    return parameters.etag(one.id, one.order)


def _described(tx: sa.Connection, one: Worker) -> WorkerDocument:
    (busy,) = with_merges(tx, [one])
    return WorkerDocument.from_record(busy)
