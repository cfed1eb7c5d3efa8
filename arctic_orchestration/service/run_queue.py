"""``/queues``, ``/groups`` and ``/runs``: the run queue of Dagster's instance, and its control.

Their rules stand in ``dagster.yaml`` and their runs in Dagster's storage: each request opens the
instance of ``DAGSTER_HOME`` as it is then.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Response

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import (
    ConfigurationError,
    InvalidInput,
    NotFound,
    RequestRefused,
    TransitionRefused,
)
from arctic_orchestration.run_queue import pauses
from arctic_orchestration.run_queue.census import ActiveRun
from arctic_orchestration.run_queue.overview import (
    PauseDocument,
    of_target,
    overview,
    pause_document,
)
from arctic_orchestration.run_queue.pauses import Pausable
from arctic_orchestration.run_queue.tags import PRIORITY, QUEUE
from arctic_orchestration.run_queue.views.run_document import RunDetailsDocument
from arctic_orchestration.service import paging, parameters
from arctic_orchestration.service import run_queue_documents as documents
from arctic_orchestration.service.access import (
    Caller,
    QueuesReader,
    QueuesWriter,
    RunsReader,
    RunsWriter,
)
from arctic_orchestration.service.bodies import JsonObject, takes
from arctic_orchestration.service.dagster_instance import instance_of_service, unusable
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.service import Service, ServiceOfApp
from arctic_orchestration.state import dialect

if TYPE_CHECKING:
    from dagster import RunRecord

    from arctic_orchestration.run_queue.dagster.open_queue import Opened

_Form = TypeVar("_Form", documents.QueueDetails, documents.GroupDetails)
router = APIRouter(tags=["run queue"])
QueueName = Annotated[str, Path(description="The queue's name in dagster.yaml.")]
GroupName = Annotated[str, Path(description="The group's name in dagster.yaml.")]
RunId = Annotated[str, Path(description="The run's id.")]
PauseAction = Literal["pause", "resume"]
Reason = Annotated[
    str, Query(max_length=1_000, description="Why; people who look at a run read it.")
]


@router.get("/queues")
def list_queues(service: ServiceOfApp, caller: QueuesReader) -> documents.QueuesDocument:
    """List queues, groups and rules, with their runs.

    A scope that is limited to queues admits these; groups and rules need one without limits.
    """
    caller.check_some("queue")
    with _opened(service) as queue:
        now = utc_now()
        outlook = queue.outlook(now)
        trouble = _trouble(queue, now)
    shown = overview(outlook)
    return documents.QueuesDocument.from_record(
        shown,
        queues=[one for one in shown.queues if caller.admits(queue=one.queue)],
        groups=shown.groups if caller.admits() else [],
        rules=shown.rules if caller.admits() else [],
        waiting=len(outlook.order),
        in_progress=len(outlook.gates.census.active),
        max_concurrent_runs=outlook.limit,
        **trouble,
    )


@router.get("/queues/{queue}", responses={200: HAS_ETAG})
def show_queue(
    service: ServiceOfApp, caller: QueuesReader, queue: QueueName, response: Response
) -> documents.QueueDetails:
    """Show a queue, and the runs that hold its slots."""
    caller.check(queue=queue)
    with _opened(service) as opened:
        return _described(opened, Pausable.QUEUE, queue, documents.QueueDetails, response)


@router.get("/groups/{group}", responses={200: HAS_ETAG})
def show_group(
    service: ServiceOfApp, caller: QueuesReader, group: GroupName, response: Response
) -> documents.GroupDetails:
    """Show a group, and the runs that hold its slots."""
    caller.check()
    with _opened(service) as opened:
        return _described(opened, Pausable.GROUP, group, documents.GroupDetails, response)


@router.post("/queues/{queue}/{pause_action}", responses={200: HAS_ETAG})
def change_queue(
    service: ServiceOfApp,
    caller: QueuesWriter,
    queue: QueueName,
    pause_action: PauseAction,
    response: Response,
    reason: Reason = "",
    if_match: parameters.IfMatch = None,
) -> documents.QueueDetails:
    """Pause a queue, or resume it; runs in progress go on."""
    caller.check(queue=queue)
    with _opened(service) as opened:
        _change(opened, caller, Pausable.QUEUE, queue, pause_action, reason, if_match)
        return _described(opened, Pausable.QUEUE, queue, documents.QueueDetails, response)


@router.post("/groups/{group}/{pause_action}", responses={200: HAS_ETAG})
def change_group(
    service: ServiceOfApp,
    caller: QueuesWriter,
    group: GroupName,
    pause_action: PauseAction,
    response: Response,
    reason: Reason = "",
    if_match: parameters.IfMatch = None,
) -> documents.GroupDetails:
    """Pause a group, or resume it; runs in progress go on."""
    caller.check()
    with _opened(service) as opened:
        _change(opened, caller, Pausable.GROUP, group, pause_action, reason, if_match)
        return _described(opened, Pausable.GROUP, group, documents.GroupDetails, response)


@router.get("/runs")
def list_runs(
    service: ServiceOfApp, caller: RunsReader, limit: Limit = 50, cursor: Cursor = None
) -> documents.QueuedRunPage:
    """List queued runs in the order in which they can start, with what holds each.

    What holds a run by its own rules is as of now; that runs before it take the slots, as of the
    daemon's last pass.
    """
    caller.check_some("queue")
    begin = paging.values(cursor, int, int)
    after = (begin[0], begin[1]) if begin else None
    with _opened(service) as queue:
        now = utc_now()
        queues = None
        if not caller.admits():
            queues = [name for name in queue.runs.queue_names() if caller.admits(queue=name)]
        page = queue.page(now, after=after, queues=queues, limit=limit)
        trouble = _trouble(queue, now)
    following = paging.cursor(*page.next_after) if page.next_after else None
    return documents.QueuedRunPage.from_record(
        page, runs=page.lines, next_cursor=following, **trouble
    )


@router.get("/runs/{run}", responses={200: HAS_ETAG})
def explain_run(
    service: ServiceOfApp, caller: RunsReader, run: RunId, response: Response
) -> RunDetailsDocument:
    """Explain why a run waits: its rules, place, age and slots."""
    caller.check_some("queue")
    with _opened(service) as queue:
        from arctic_orchestration.run_queue.dagster.run_details import run_details, run_document

        record = _record(queue, caller, run)
        found = run_details(queue, record, utc_now())
        explained = found.queued.run.tags if found.queued is not None else {}
        response.headers["ETag"] = _etag(run, found.status, explained)
    return run_document(found)


@router.post(
    "/runs/{run}/prioritize", openapi_extra=takes(documents.LevelForm), responses={200: HAS_ETAG}
)
def prioritize_run(
    service: ServiceOfApp,
    caller: RunsWriter,
    run: RunId,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> documents.LevelDocument:
    """Change the level of a queued run; the time that it has waited still counts."""
    form = documents.LevelForm.parse(body)
    caller.check_some("queue")
    with _opened(service) as queue:
        from arctic_orchestration.run_queue.dagster import level_control

        level_control.check_queued(_record(queue, caller, run))
        now = utc_now()
        before = queue.outlook(now)
        level_before = level_control.request_level(
            queue, run, form.level, now, caller.actor,
            check=lambda tags: parameters.check_etag(if_match, _etag(run, "QUEUED", tags)),
        )  # fmt: skip
        after = queue.outlook(now)
        was, then = (level_control.standing(outlook, run) for outlook in (before, after))
        if was is None or then is None:
            raise TransitionRefused(f"run {run} left the queue just now")
        response.headers["ETag"] = _etag(run, "QUEUED", then.tags)
    return documents.LevelDocument(
        run_id=run,
        job=was.job,
        level=form.level,
        level_before=level_before,
        priority=then.priority,
        place=after.places[run],
        place_before=before.places[run],
        waiting=len(after.order),
    )


@contextmanager
def _opened(service: Service) -> "Iterator[Opened]":
    """Opens the run queue of the service's instance.

    Errors:
        RequestRefused: 409, there is no instance, or its run coordinator has no rules; 503, it
            cannot be opened.
    """
    with instance_of_service() as instance, ExitStack() as stack:
        # Dagster takes seconds to import.
        from arctic_orchestration.run_queue.dagster.open_queue import NoRules, queue_of

        try:
            queue = stack.enter_context(
                queue_of(instance, service.database, service.settings.cluster)
            )
        except NoRules as error:
            detail = "The run coordinator of dagster.yaml is not that of arctic_orchestration"
            raise RequestRefused(409, f"{detail}: it has no queues and no rules") from error
        except (ConfigurationError, InvalidInput) as error:
            raise unusable(error) from error
        yield queue


def _trouble(queue: "Opened", now: datetime) -> dict[str, str | None]:
    from arctic_orchestration.run_queue.dagster.open_queue import daemon_trouble

    found = daemon_trouble(queue.coordinator, queue.last_pass(), now)
    return {"trouble": found and found[0]}


def _described(
    queue: "Opened", kind: Pausable, name: str, form: type[_Form], response: Response
) -> _Form:
    """Returns a queue or group with the runs that hold its slots."""
    pauses.check_known(queue.rules, kind, name)
    outlook = queue.outlook(utc_now())
    line = of_target(overview(outlook), kind, name)
    active = outlook.gates.census.active
    holders = documents.SlotDocument.from_records(run for run in active if _is_in(run, kind, name))
    response.headers["ETag"] = _etag_of_pause(kind, name, line.paused)
    return form.from_record(line, holders=holders)


def _is_in(run: ActiveRun, kind: Pausable, name: str) -> bool:
    standing = run.standing
    return name in standing.groups if kind is Pausable.GROUP else name == standing.queue


def _change(
    queue: "Opened",
    caller: Caller,
    kind: Pausable,
    name: str,
    action: PauseAction,
    reason: str,
    if_match: str | None,
) -> None:
    pauses.check_known(queue.rules, kind, name)
    wanted = action == "pause"
    with queue.database.begin() as tx:
        dialect.lock(tx, f"{kind} {name}")
        before = pauses.present(tx, queue.rules, queue.cluster, kind, name)
        parameters.check_etag(if_match, _etag_of_pause(kind, name, pause_document(before)))
        if (before is not None) == wanted:
            text = before.text if before is not None else f"{kind} {name} is not paused"
            raise TransitionRefused(f"{text}; nothing was changed")
        pauses.change(
            tx, queue.rules, kind, name, utc_now(), caller.actor, paused=wanted, reason=reason
        )


def _record(queue: "Opened", caller: Caller, run: str) -> "RunRecord":
    """Returns the record of a run that the caller may see.

    Errors:
        NotFound: Dagster has no such run.
        RequestRefused: 403; the caller may not.
    """
    found = queue.records([run])
    if not found:
        raise NotFound(f"Dagster has no run {run}")
    name = found[0].dagster_run.tags.get(QUEUE)
    caller.check(**({"queue": name} if name is not None else {}))
    return found[0]


def _etag_of_pause(kind: Pausable, name: str, pause: PauseDocument | None) -> str:
    return parameters.etag(kind.value, name, pause)


def _etag(run: str, status: str, tags: Mapping[str, str]) -> str:
    return parameters.etag(run, status, tags.get(PRIORITY))
