"""The pages of the run queue, tasks, events, workers: the API's resources are made otherwise."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.views.workers import BusyWorker, busy_workers
from arctic_orchestration.errors import NotFound
from arctic_orchestration.freshness.views.task_tree import roots_of, task_trees
from arctic_orchestration.freshness.views.tasks import task_views
from arctic_orchestration.run_queue import pauses, waits
from arctic_orchestration.schedules.views.holders import holders_by_resource, waiting_by_resource
from arctic_orchestration.schedules.views.set_off import TakenEvent, newest_events, set_off
from arctic_orchestration.service import paging, parameters
from arctic_orchestration.service.access import (
    EventsReader,
    FreshnessReader,
    QueuesReader,
    WorkersReader,
)
from arctic_orchestration.service.pages.page_route import PageRoute, add_page
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.waiting.reader import waiting, waiting_by_cause
from arctic_orchestration.waiting.wait_filter import WaitFilter
from arctic_orchestration.waits import WaitKind

_HOLDERS = 500
_QUEUED = 50
router = APIRouter(include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True, kw_only=True)
class EventsPage:
    """Events that schedules took, newest first."""

    events: list[TakenEvent]
    next_cursor: str | None


def read_queue(service: ServiceOfApp, caller: QueuesReader) -> dict[str, Any]:
    """Returns what waits in the run queue, what is paused, and who holds which resource."""
    caller.check()
    cluster, now = service.settings.cluster, utc_now()
    wanted = WaitFilter.parse(kind=WaitKind.RUN, location=None, cause=None, text=None)
    with service.database.read() as tx:
        return {
            "at": now,
            "last_pass": waits.last_pass(tx, cluster),
            "causes": waiting_by_cause(tx, cluster, now, wanted),
            "queued": waiting(tx, cluster, now, wanted, limit=_QUEUED),
            "pauses": [one for one in pauses.manual_pauses(tx, cluster) if one.paused],
            "holders": holders_by_resource(tx, _HOLDERS),
            "waiting": waiting_by_resource(tx),
        }


def read_tasks(
    service: ServiceOfApp, caller: FreshnessReader, task: Text = None, limit: Limit = 50
) -> dict[str, Any]:
    """Returns tasks with their parents as trees."""
    caller.check()
    with service.database.read() as tx:
        views = {view.name: view for view in task_views(tx, database_time(tx))}
    if task is not None and task not in views:
        raise NotFound(f"no task {task}")
    roots = [task] if task is not None else roots_of(views)
    trees = task_trees(views, roots[:limit])
    return {"trees": trees, "tasks": len(views), "left_out": len(roots) - len(trees)}


def read_events(
    service: ServiceOfApp,
    caller: EventsReader,
    subject: Text = None,
    partition: Text = None,
    location: parameters.SomeLocation = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EventsPage:
    """Returns events of the locations that the caller may read."""
    begin = paging.values(cursor, str, int, int)
    after = (parameters.moment(begin[0], field="cursor"), begin[1], begin[2]) if begin else None
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        admitted = [place for place in places if caller.admits(location=place.name)]
        found = newest_events(
            tx, admitted, subject=subject, partition=partition, after=after, limit=limit + 1
        )
    shown, following = found[:limit], None
    if len(found) > limit:
        last = shown[-1]
        following = paging.cursor(last.taken_at.isoformat(), last.location_id, last.number)
    return EventsPage(events=shown, next_cursor=following)


def read_event(
    service: ServiceOfApp,
    caller: EventsReader,
    number: Annotated[int, Path(ge=0, lt=2**63)],
    location: parameters.Location = None,
) -> TakenEvent:
    """Returns an event and everything that it set off."""
    with service.reading(caller, location) as (tx, place, _):
        return set_off(tx, place, number)


def read_workers(service: ServiceOfApp, caller: WorkersReader) -> list[BusyWorker]:
    """Returns the live workers with what they do."""
    caller.check()
    with service.database.read() as tx:
        return busy_workers(tx)


_add = partial(add_page, router)
_add("/queue", "queue.html", read_queue)
_add("/tasks", "tasks.html", read_tasks)
_add("/events", "events.html", read_events)
_add("/events/{number}", "event.html", read_event)
_add("/workers", "workers.html", read_workers)
