"""The pages. Each has the URL and the parameters of a resource below ``/api/v1``, and its scope.

A page calls the functions of the API's routes, so it shows what they answer and nothing else. A
client that prefers JSON is redirected to the resource.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse

from arctic_orchestration.clock import utc_now
from arctic_orchestration.quantities import iso
from arctic_orchestration.service import audit, jobs, parameters, schedules, ticks, waiting
from arctic_orchestration.service.access import (
    AuditReader,
    JobsReader,
    Open,
    SchedulesReader,
    WaitingReader,
    needs,
)
from arctic_orchestration.service.job_lists import JobFilter, job_filter
from arctic_orchestration.service.pages.accepting import prefers_json
from arctic_orchestration.service.pages.rendering import api_url, page_url, render
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.schedule_lists import Wanted, wanted
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.waits import WaitKind

_FOLDER = Path(__file__).parent
_CACHED = {"Cache-Control": "max-age=300"}
_BY_CAUSE = "/waiting?group_by=cause"
_TICKS = 10
_CHANGES = 50


class PageRoute(APIRoute):
    """A route whose URL is one of the API without ``/api/v1``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Redirects to JSON, and to a URL without the fields that a form left empty."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if prefers_json(request):
                return _to(api_url(request))
            given = request.query_params.multi_items()
            filled = [(name, value) for name, value in given if value]
            if filled != given:
                return _to(page_url(request, filled))
            return await answer(request)

        return handler


#: Not in the description of the API.
router = APIRouter(include_in_schema=False, route_class=PageRoute)
files = APIRouter(include_in_schema=False)


def _to(url: str) -> Response:
    return RedirectResponse(url, 307, headers={"Vary": "Accept"})


# Open: the page of a refusal needs them.
@files.get("/page.css", dependencies=[Depends(Open())])
def style() -> FileResponse:
    """The style of all pages."""
    return FileResponse(_FOLDER / "page.css", media_type="text/css", headers=_CACHED)


@files.get("/icon.svg", dependencies=[Depends(Open())])
def icon() -> FileResponse:
    """The icon of all pages."""
    return FileResponse(_FOLDER / "icon.svg", media_type="image/svg+xml", headers=_CACHED)


@files.get("/", dependencies=[needs("waiting", "read")])
def first_page() -> Response:
    """Redirects to what waits."""
    return _to(_BY_CAUSE)


@router.get("/waiting")
def waiting_page(
    request: Request,
    service: ServiceOfApp,
    caller: WaitingReader,
    group_by: Literal["cause"] | None = None,
    kind: WaitKind | None = None,
    location: parameters.SomeLocation = None,
    cause: Text = None,
    text: Text = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """What waits, by cause or one by one."""
    if not request.query_params:
        return _to(_BY_CAUSE)
    found = waiting.list_waiting(
        service, caller, group_by, kind, location, cause, text, limit, cursor
    )
    template = "waiting.html" if group_by is None else "causes.html"
    return render(request, template, found=found, kinds=[kind.value for kind in WaitKind])


@router.get("/schedules")
def schedules_page(
    request: Request,
    service: ServiceOfApp,
    caller: SchedulesReader,
    filters: Annotated[Wanted, Depends(wanted)],
    location: parameters.SomeLocation = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The schedules that a filter matches."""
    found = schedules.list_schedules(service, caller, filters, location, limit, cursor)
    return render(request, "schedules.html", found=found)


@router.get("/schedules/{name}")
def schedule_page(
    request: Request,
    service: ServiceOfApp,
    caller: SchedulesReader,
    name: parameters.Name,
    location: parameters.Location = None,
) -> HTMLResponse:
    """A schedule: why it has not run, its next ticks, its changes."""
    schedule = schedules.show_schedule(service, caller, name, Response(), location)
    explained, ticking = None, None
    # What another version of the package wrote cannot be explained.
    if schedule.definition is not None:
        explained = schedules.explanation(service, caller, name, location)
        ticking = ticks.show_ticks(service, caller, name, location, _TICKS, 0)
    changes = schedules.schedule_history(service, caller, name, location, _CHANGES)
    return render(
        request,
        "schedule.html",
        now=iso(utc_now().replace(microsecond=0)),
        schedule=schedule,
        explained=explained,
        ticks=ticking.next if ticking is not None else [],
        changes=changes.history[::-1],
    )


@router.get("/jobs")
def jobs_page(
    request: Request,
    service: ServiceOfApp,
    caller: JobsReader,
    filters: Annotated[JobFilter, Depends(job_filter)],
    location: parameters.SomeLocation = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The jobs that a filter matches."""
    found = jobs.list_jobs(service, caller, filters, location, limit, cursor)
    return render(request, "jobs.html", found=found)


@router.get("/jobs/{id}")
def job_page(
    request: Request, service: ServiceOfApp, caller: JobsReader, id: parameters.JobId
) -> HTMLResponse:
    """A job: why it waits, its events, its history."""
    details = jobs.show_job(service, caller, id, Response())
    explained = jobs.explain_job(service, caller, id)
    return render(
        request,
        "job.html",
        now=iso(utc_now().replace(microsecond=0)),
        details=details,
        explained=explained,
    )


@router.get("/audit")
def audit_page(
    request: Request,
    service: ServiceOfApp,
    caller: AuditReader,
    feature: Text = None,
    subject: Text = None,
    actor: Text = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The changes that people made."""
    found = audit.list_changes(service, caller, feature, subject, actor, limit, cursor)
    return render(request, "audit.html", found=found)
