"""The pages: each shows what the API answers at its URL."""

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from arctic_orchestration.compaction.views.documents import WorkerDocument
from arctic_orchestration.event_log.event import EventKind
from arctic_orchestration.schedules.views.decisions import decisions
from arctic_orchestration.service import (
    audit,
    compaction,
    consumers,
    events,
    jobs,
    resources,
    run_queue,
    schedules,
    tasks,
    ticks,
    waiting,
    workers,
)
from arctic_orchestration.service.access import Caller, needs
from arctic_orchestration.service.documents import ScheduleOfLocation
from arctic_orchestration.service.pages.page_route import PageRoute, add_page, redirect
from arctic_orchestration.service.pages.rendering import root_of
from arctic_orchestration.service.pages.sizes import size_chart
from arctic_orchestration.service.pages.task_trees import trees_of
from arctic_orchestration.service.service import Service
from arctic_orchestration.waits import WaitKind

_TICKS = 10
_CHANGES = 50
_DECISIONS = 50
_MEMBERS = 50
#: Not in the description of the API.
router = APIRouter(include_in_schema=False, route_class=PageRoute)
first = APIRouter(include_in_schema=False)


@first.get("/", dependencies=[needs("waiting", "read")])
def first_page(request: Request) -> Response:
    """Redirects to what waits, by cause."""
    return redirect(f"{root_of(request)}/waiting?group_by=cause")


def _explained(found: ScheduleOfLocation, service: Service, caller: Caller) -> Any:
    # What another version of the package wrote cannot be explained.
    if found.definition is None:
        return None
    return schedules.explanation(service, caller, found.name, found.location)


def _ticks(found: ScheduleOfLocation, service: Service, caller: Caller) -> list[datetime]:
    if found.definition is None:
        return []
    return ticks.show_ticks(service, caller, found.name, found.location, _TICKS, 0).next


def _changes(found: ScheduleOfLocation, service: Service, caller: Caller) -> Any:
    shown = schedules.schedule_history(service, caller, found.name, found.location, _CHANGES)
    return shown.history[::-1]


def _decisions(found: ScheduleOfLocation, service: Service, caller: Caller) -> Any:
    reading = service.reading(caller, found.location, schedules=[found.name])
    with reading as (tx, place, _):
        return decisions(tx, place, found.name, _DECISIONS)


def _records(service: Service, caller: Caller, table: str) -> Any:
    shown = compaction.list_records(service, caller, table, _MEMBERS).records
    return {"records": shown, "chart": size_chart(shown)}


def _tasks(service: Service, caller: Caller, **of: str) -> Any:
    return compaction.list_merge_tasks(service, caller, state=["all"], limit=_MEMBERS, **of).tasks


def _trees(service: Service, caller: Caller, task: str) -> Any:
    return trees_of(tasks.show_graph(service, caller, task), task)


def _on_skip_list(service: Service, caller: Caller, task: str) -> bool:
    return any(skip.task == task for skip in tasks.list_skipped(service, caller).skipped)


def _may_order(found: WorkerDocument, caller: Caller) -> bool:
    return workers.admits(replace(caller, verb="write"), found.queues)


_add = partial(add_page, router)
_add("/waiting", "waiting.html", waiting.list_waiting, kinds=[kind.value for kind in WaitKind])
_add("/schedules", "schedules.html", schedules.list_schedules)
_add(
    "/schedules/{name}",
    "schedule.html",
    schedules.show_schedule,
    also={"explained": _explained, "ticks": _ticks, "changes": _changes, "decisions": _decisions},
)
_add("/jobs", "jobs.html", jobs.list_jobs)
_add("/jobs/{id}", "job.html", jobs.show_job, also={"explained": jobs.explain_job})
_add("/queues", "queues.html", run_queue.list_queues, without="no_rules.html")
_add("/queues/{queue}", "slots.html", run_queue.show_queue, kind="queue")
_add("/groups/{group}", "slots.html", run_queue.show_group, kind="group")
_add("/runs", "runs.html", run_queue.list_runs, without="no_rules.html")
_add("/runs/{run}", "run.html", run_queue.explain_run)
_add("/resources", "resources.html", resources.list_resources)
_add("/tasks", "tasks.html", tasks.list_tasks)
_add(
    "/tasks/{task:path}",
    "task.html",
    tasks.show_task,
    also={"trees": _trees, "on_skip_list": _on_skip_list},
)
_add("/task-graph", "task_graph.html", tasks.show_graph, also={"trees": trees_of})
_add("/skip-list", "skip_list.html", tasks.list_skipped)
_add("/consumers", "consumers.html", consumers.list_consumers)
_add(
    "/consumers/{consumer}",
    "consumer.html",
    consumers.show_consumer,
    also={
        "partitions": lambda service, caller, consumer: (
            consumers.list_partitions(service, caller, consumer, None, _MEMBERS).partitions
        )
    },
)
_add("/compaction/tables", "compaction_tables.html", compaction.list_tables)
_add(
    "/compaction/tables/{table}",
    "compaction_table.html",
    compaction.show_table,
    also={
        "commits": _records,
        "tasks": lambda service, caller, table: _tasks(service, caller, table=table),
    },
)
_add("/compaction/queues", "compaction_queues.html", compaction.list_queues)
_add(
    "/compaction/queues/{queue}",
    "compaction_queue.html",
    compaction.show_queue,
    also={"tasks": lambda service, caller, queue: _tasks(service, caller, queue=queue)},
)
_add("/compaction/tasks", "compaction_tasks.html", compaction.list_merge_tasks)
_add("/compaction/tasks/{task}", "compaction_task.html", compaction.show_task)
_add("/events", "events.html", events.list_events, kinds=[kind.value for kind in EventKind])
_add("/events/{number}", "event.html", events.show_event)
_add("/workers", "workers.html", workers.list_workers)
_add("/workers/{worker}", "worker.html", workers.show_worker, also={"may_order": _may_order})
_add("/audit", "audit.html", audit.list_changes)
