"""The application: its routes, errors and OpenAPI."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from starlette.routing import BaseRoute

from arctic_orchestration.service import (
    audit,
    compaction,
    compaction_actions,
    consumers,
    events,
    health,
    job_actions,
    jobs,
    locations,
    problems,
    resources,
    run_queue,
    schedule_actions,
    schedule_files,
    schedules,
    simulations,
    tasks,
    ticks,
    token_routes,
    waiting,
    worker_reports,
    workers,
)
from arctic_orchestration.service.access import AccessRules, AnyCaller, Needs, Open
from arctic_orchestration.service.dagster_instance import THREADS
from arctic_orchestration.service.events_documents import AnnouncementForm, ArrivalForm
from arctic_orchestration.service.guard import Guard
from arctic_orchestration.service.pages import actions, files, routes
from arctic_orchestration.service.pages.live import LivePages
from arctic_orchestration.service.pages.rendering import API
from arctic_orchestration.service.service import Service
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

#: The dependencies of which each route has one.
DECLARATIONS = (Needs, AnyCaller, Open)
#: The routers below ``/api/v1``; a room with a resource adds its router. They are tried in this
#: order, which is a third of what a request costs at the end: workers send most requests.
ROUTERS: tuple[APIRouter, ...] = (
    workers.router,
    worker_reports.router,
    schedules.router,
    schedule_actions.router,
    schedule_files.router,
    ticks.router,
    jobs.router,
    job_actions.router,
    locations.router,
    waiting.router,
    compaction.router,
    compaction_actions.router,
    consumers.router,
    events.router,
    run_queue.router,
    resources.router,
    tasks.router,
    simulations.router,
    token_routes.router,
    audit.router,
)
#: The models of errors and bodies, to which routes refer by name.
_REFERRED: tuple[type[BaseModel], ...] = (
    problems.Problem,
    problems.InvalidValue,
    AnnouncementForm,
    ArrivalForm,
)
#: Not in the description of the API.
PAGES = (files.router, routes.first, routes.router, actions.router)
_TITLE = "arctic_orchestration"
_DESCRIPTION = """\
Schedules, jobs, compaction, consumers and workers of arctic_orchestration: what waits, why, until
when.

Errors are `application/problem+json` (RFC 9457) and name every invalid field with its value and
what was expected. What can be changed has an `ETag`; send it as `If-Match`. Lists have a
`next_cursor`.
"""


def create_app(settings: Settings, database: Database, rules: AccessRules) -> FastAPI:
    """Returns the application; it opens no connection before its first request.

    Args:
        settings: names the cluster.
        database: the state database; the caller closes it.
        rules: who may call.

    Errors:
        RuntimeError: a route declares no scope.
    """
    app = FastAPI(
        title=_TITLE,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_with_threads,
    )
    app.state.service = Service(settings=settings, database=database, rules=rules)
    app.state.live = LivePages(database)
    app.add_middleware(Guard, loopback=rules.loopback)
    problems.install(app)
    app.router.routes += _routes()
    app.openapi = api_description  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _with_threads(_: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


@cache
def _routes() -> list[BaseRoute]:
    # Models of parameters take nine tenths of the time in which an application is made; its routes
    # know nothing of it, so all applications of a process share them.
    return bind(ROUTERS)


def bind(routers: Sequence[APIRouter]) -> list[BaseRoute]:
    """Returns the routes of an application with these routers below ``/api/v1``.

    Errors:
        RuntimeError: a route declares no scope.
    """
    routes = APIRouter()
    routes.include_router(health.router, responses=problems.RESPONSES)
    for router in routers:
        routes.include_router(router, prefix=API, responses=problems.RESPONSES)
    for pages in PAGES:
        routes.include_router(pages)
    undeclared = without_scope(routes.routes)
    if undeclared:
        raise RuntimeError(f"routes without a declared scope: {', '.join(undeclared)}")
    return routes.routes


def without_scope(routes: Sequence[BaseRoute]) -> list[str]:
    """Returns the paths that declare neither a scope nor that they need none.

    What is no route of FastAPI, such as a mounted application, cannot declare one.
    """
    return [
        str(context.path)
        for context in iter_route_contexts(routes)
        if not isinstance(context.original_route, APIRoute)
        or not any(isinstance(one.call, DECLARATIONS) for one in context.dependant.dependencies)
    ]


@cache
def api_description() -> dict[str, Any]:
    """Returns the OpenAPI document of the API; all applications of a process share it."""
    document = get_openapi(
        title=_TITLE,
        version="1",
        description=_DESCRIPTION,
        routes=_routes(),
        separate_input_output_schemas=False,
    )
    components = document.setdefault("components", {})
    named = components.setdefault("schemas", {})
    for model in _REFERRED:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.pop("$defs", None)
        named[model.__name__] = schema
    named.update(schedules.input_schemas())
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}, {}]
    return document
