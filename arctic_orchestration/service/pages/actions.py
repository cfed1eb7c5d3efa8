"""The buttons of pages: forms that call the functions of the API's routes.

The URL of a button is that of the API's action without ``/api/v1``. A dangerous action answers with
a page that says what it will do to how many; the form of that page carries it out. Each answers a
refusal as a page, and a success with the page of the object.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from anyio import from_thread
from fastapi import APIRouter, Depends, Request, Response

from arctic_orchestration.compaction.views.documents import CompactionQueueDocument, WorkerDocument
from arctic_orchestration.compaction.views.task_documents import CompactionTaskDocument
from arctic_orchestration.consumers.views.consumers import ConsumerDetails
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import counted
from arctic_orchestration.service import (
    compaction,
    compaction_actions,
    consumers,
    documents,
    job_actions,
    jobs,
    run_queue,
    run_queue_documents,
    schedule_actions,
    schedules,
    tasks,
    tasks_documents,
    workers,
)
from arctic_orchestration.service.access import FreshnessWriter
from arctic_orchestration.service.bodies import Form
from arctic_orchestration.service.bulk import Options
from arctic_orchestration.service.pages.page_route import call, redirect, with_parameters
from arctic_orchestration.service.pages.rendering import here, render
from arctic_orchestration.service.service import Service, ServiceOfApp

#: the name of an action with its object, and what it does, in sentences
Effect = Callable[[Any], Sequence[str]]
_Fields = Mapping[str, list[str]]
#: so many events are listed with a job
_LISTED_EVENTS = 100
#: as long as the API takes one
_LONGEST_REASON = 1_000
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}")
router = APIRouter(include_in_schema=False)


def add_action(
    path: str,
    act: Callable[..., Any],
    read: Callable[..., Any] | None = None,
    effect: Effect | None = None,
    body: Callable[[_Fields], dict[str, Any]] | None = None,
    reason: bool = False,
    **fixed: str,
) -> None:
    """Adds a button.

    Args:
        path: its path; the page of its object is at the path above.
        act: the function of the API's route; the button has its parameters and its scope.
        read: the function that shows the object, for a dangerous action.
        effect: what a dangerous action does to that object.
        body: makes the body of the API's route from the fields of the form.
        reason: whether the form has the reason that the API's route takes.
        fixed: parameters of the action that are part of the path.
    """

    def press(
        request: Request,
        response: Response,
        form: Annotated[_Fields, Depends(Form())],
        **given: Any,
    ) -> Response:
        given |= {"response": response, "if_match": _one(form, "if_match"), **fixed}
        if body is not None:
            given["body"] = body(form)
        if reason:
            given["reason"] = _reason(form)
        if read is not None and effect is not None and "confirmed" not in form:
            fields = {**form, "confirmed": ["yes"]}
            return _confirmation(request, fields, *effect(call(read, {**given, "form": form})))
        done = call(act, given)
        if inspect.isawaitable(done):
            from_thread.run(_awaited, done)
        above = here(request, []).rpartition("/")[0]
        query = f"?{request.url.query}" if request.url.query else ""
        return redirect(above + query, 303)

    left_out = ("if_match", "body", *fixed, *(("reason",) if reason else ()))
    route = with_parameters(press, act, left_out)
    router.add_api_route(path, route, methods=["POST"])


def add_bulk_action(path: str, act: Callable[..., Any], noun: str) -> None:
    """Adds a button for everything that a filter matches: it counts, and then changes so many."""

    def press(
        request: Request, form: Annotated[_Fields, Depends(Form())], **given: Any
    ) -> Response:
        most = _one(form, "at_most")
        if most is None:
            found = act(**given, options=Options())
            title = f"{found.action.capitalize()} {counted(found.matched, noun)}"
            fields = {"at_most": [str(found.matched)]} if found.matched else {}
            effect = _ON_ALL[found.action]
            return _confirmation(request, fields, title, effect, listed=found.first)
        if not _WHOLE.fullmatch(most) or int(most) < 0:
            raise InvalidInput("at_most", most, "the count of a dry run")
        options = Options(dry_run=False, at_most=int(most))
        found = act(**given, options=options)
        return render(request, "bulk.html", found=found, noun=noun)

    route = with_parameters(press, act, ("options",))
    router.add_api_route(path, route, methods=["POST"])


def _confirmation(
    request: Request, fields: _Fields, title: str, *effects: str, listed: Sequence[str] = ()
) -> Response:
    given = [(name, value) for name, values in fields.items() for value in values]
    return render(request, "confirm.html", text=title, effects=effects, fields=given, listed=listed)


async def _awaited(done: Awaitable[Any]) -> Any:
    return await done


def _reason(form: _Fields) -> str:
    text = _one(form, "reason") or ""
    if len(text) > _LONGEST_REASON:
        raise InvalidInput("reason", text, f"at most {_LONGEST_REASON} characters")
    return text


def _one(form: _Fields, name: str) -> str | None:
    return form.get(name, [None])[0]


_ON_ALL = {
    "enable": "They take events from now on.",
    "suspend": "What happens to their waiting jobs, and to events, is what each suspend_mode says.",
    "launch": "They are launched past their constraints except limits on concurrency.",
    "cancel": "They end without a run, and their events with them.",
}
_SUSPENDED = {
    "drop": "Its {waiting} discarded, requests without a run are canceled, and events are ignored "
    "until it is enabled.",
    "drain": "Its {waiting} launched as usual; events are ignored until it is enabled.",
    "backlog": "Its {waiting} kept, and each further firing makes one; they are launched when it "
    "is enabled.",
    "collect": "Its {waiting} kept and take all events; they are launched when it is enabled.",
}


def _suspends(found: documents.ScheduleOfLocation) -> Sequence[str]:
    mode = (found.definition or {}).get("suspend_mode", "drop")
    waiting = counted(found.jobs_waiting, "waiting job")
    verb = "is" if found.jobs_waiting == 1 else "are"
    return (
        f"Suspend {found.name}",
        _SUSPENDED[mode].format(waiting=f"{waiting} {verb}"),
        f"Active: {counted(found.jobs_active, 'job')}. Runs go on.",
    )


def _launches(found: documents.ScheduleOfLocation) -> Sequence[str]:
    which = "Its first waiting job is launched with the events it has"
    if not found.jobs_waiting:
        which = "No job of it waits: a job without events is launched"
    return f"Launch {found.name}", f"{which}, past its constraints except limits on concurrency."


def _launches_job(found: documents.JobDetails) -> Sequence[str]:
    return (
        f"Launch a job of {found.job.schedule}",
        f"Job {found.job.id} is launched past its constraints except limits on concurrency.",
    )


def _cancels_job(found: documents.JobDetails) -> Sequence[str]:
    events = counted(len(found.events), "event")
    more = "at least " if len(found.events) == _LISTED_EVENTS else ""
    return (
        f"Cancel a job of {found.job.schedule}",
        f"Job {found.job.id} ends without a run, and its {more}{events} with it.",
    )


def _stops_queue(name: str, effect: str) -> Callable[[CompactionQueueDocument], Sequence[str]]:
    def effects(found: CompactionQueueDocument) -> Sequence[str]:
        waiting, claimed = counted(found.waiting, "task"), counted(found.claimed, "merge")
        return f"{name} {found.queue}", effect, f"Waiting: {waiting}. In progress: {claimed}."

    return effects


def _cancels_task(found: CompactionTaskDocument) -> Sequence[str]:
    return (
        f"Cancel a merge of {found.table}",
        f"Its {counted(found.files, 'file')} are not planned again for a day.",
    )


def _resets(found: ConsumerDetails) -> Sequence[str]:
    return (
        f"Reset {found.consumer}",
        f"It forgets all: {found.acknowledged} acknowledged, {found.waiting} waiting, "
        f"{found.discarded} given up.",
        f"Owners of {counted(found.leased, 'leased partition')} can acknowledge nothing more.",
    )


def _pauses(
    slots: run_queue_documents.QueueDetails | run_queue_documents.GroupDetails,
) -> Sequence[str]:
    if isinstance(slots, run_queue_documents.QueueDetails):
        name = f"queue {slots.queue}"
    else:
        name = f"group {slots.group}"
    waiting, active = counted(slots.waiting, "run"), counted(slots.in_progress, "run")
    return (
        f"Pause {name}",
        "No run of it starts until it is resumed; runs in progress go on.",
        f"Waiting: {waiting}. In progress: {active}.",
    )


def _level(form: _Fields) -> dict[str, Any]:
    text = _one(form, "level") or ""
    return {"level": int(text) if _WHOLE.fullmatch(text) else text}


def _submit_task(
    service: ServiceOfApp, caller: FreshnessWriter, task: tasks.TaskName, body: dict[str, Any]
) -> tasks_documents.SubmissionsDocument:
    return tasks.submit_tasks(service, caller, {"names": [task], **body})


def _submission(form: _Fields) -> dict[str, Any]:
    return {name: name in form for name in ("with_parents", "force")}


def _submitted(
    service: Service, caller: FreshnessWriter, task: str, form: _Fields
) -> tuple[str, int, bool]:
    """Returns what is submitted: a task, how many with its ancestors, and whether it is forced."""
    graph = tasks.show_graph(service, caller, task)
    count = len(graph.tasks) if "with_parents" in form else 1
    return task, count, "force" in form


def _submits(submitted: tuple[str, int, bool]) -> Sequence[str]:
    task, count, forced = submitted
    text = f"{task} runs {'even if' if forced else 'unless'} it is fresh."
    if count == 1:
        return f"Submit {task}", text
    ancestors = counted(count - 1, "ancestor")
    return f"Submit {task} and {ancestors}", f"{text} Each ancestor runs unless it is fresh."


def _skips(details: tasks_documents.TaskDetails) -> Sequence[str]:
    needed = counted(len(details.children), "task")
    return (
        f"Skip {details.task}",
        "It is not run in any cluster until it is taken off the skip list; a run in progress goes "
        "on.",
        f"Needed by {needed}; each fails when what {details.task} made last is too old for it. "
        f"Submissions that wait: {len(details.live_submissions)}.",
    )


def _orders(effect: str) -> Callable[[WorkerDocument], Sequence[str]]:
    verb = effect.partition(":")[0]

    def effects(worker: WorkerDocument) -> Sequence[str]:
        text = effect.partition(": ")[2].format(merges=counted(worker.tasks, "merge"))
        return f"{verb} worker {worker.name}", text

    return effects


def _retried(form: _Fields) -> dict[str, Any]:
    return {"partitions": form["partition"]} if "partition" in form else {"all": True}


_SCHEDULE, _JOB, _TASK = "/schedules/{name}", "/jobs/{id}", "/compaction/tasks/{task}"
_QUEUE, _CONSUMER = "/compaction/queues/{queue}", "/consumers/{consumer}"
_show, _change = schedules.show_schedule, compaction_actions.change_queue
add_action(f"{_SCHEDULE}/enable", schedule_actions.enable_schedule)
add_action(f"{_SCHEDULE}/suspend", schedule_actions.suspend_schedule, _show, _suspends)
add_action(f"{_SCHEDULE}/launch", schedule_actions.launch_schedule, _show, _launches)
add_action(f"{_JOB}/launch", jobs.launch_job, jobs.show_job, _launches_job)
add_action(f"{_JOB}/cancel", jobs.cancel_job, jobs.show_job, _cancels_job)
add_bulk_action("/schedule-actions/{action}", schedule_actions.act_on_schedules, "schedule")
add_bulk_action("/job-actions/{action}", job_actions.act_on_jobs, "job")
add_action(f"{_QUEUE}/resume", _change, queue_action="resume")
for _name, _effect in (
    ("pause", "Workers claim no more of its tasks; merges in progress go on."),
    ("drain", "It takes no new tasks; those that it has are merged."),
):
    _effects = _stops_queue(_name.capitalize(), _effect)
    add_action(f"{_QUEUE}/{_name}", _change, compaction.show_queue, _effects, queue_action=_name)
_on_task = compaction_actions.act_on_task
add_action(f"{_TASK}/retry", _on_task, task_action="retry")
add_action(f"{_TASK}/prioritize", compaction_actions.prioritize_task, body=_level)
add_action(f"{_TASK}/cancel", _on_task, compaction.show_task, _cancels_task, task_action="cancel")
add_action("/compaction/tables/{table}/wake", compaction_actions.wake_table)
add_action(f"{_CONSUMER}/retry", consumers.retry_partitions, body=_retried)
add_action(
    f"{_CONSUMER}/reset",
    consumers.reset_consumer,
    consumers.show_consumer,
    _resets,
    body=lambda form: {"start": _one(form, "start") or ""},
)
add_action("/runs/{run}/prioritize", run_queue.prioritize_run, body=_level)
for _path, _act, _read in (
    ("/queues/{queue}", run_queue.change_queue, run_queue.show_queue),
    ("/groups/{group}", run_queue.change_group, run_queue.show_group),
):
    add_action(f"{_path}/pause", _act, _read, _pauses, reason=True, pause_action="pause")
    add_action(f"{_path}/resume", _act, reason=True, pause_action="resume")
_FRESH = "/tasks/{task:path}"
add_action(f"{_FRESH}/submit", _submit_task, _submitted, _submits, body=_submission)
add_action(
    f"{_FRESH}/skip",
    tasks.skip_task,
    tasks.show_task,
    _skips,
    body=lambda form: {"reason": _reason(form)},
)
add_action(f"{_FRESH}/unskip", tasks.unskip_task)
_order = workers.act_on_worker
add_action("/workers/{worker}/resume", _order, worker_action="resume")
for _name, _effect in (
    ("drain", "Drain: It finishes {merges}, and claims nothing until it is resumed."),
    ("stop", "Stop: It puts {merges} back, for other workers, and ends."),
):
    _path = f"/workers/{{worker}}/{_name}"
    add_action(_path, _order, workers.show_worker, _orders(_effect), worker_action=_name)
