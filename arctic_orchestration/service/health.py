"""``/healthz``, ``/readyz``, ``/metrics``, and the description of the API.

The first two need no token: what balances load has none. They tell no more than a status.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.schedules.views.locations import list_locations
from arctic_orchestration.service.access import AnyCaller, Caller, Open, needs
from arctic_orchestration.service.documents import Health
from arctic_orchestration.service.problems import RETRY_SECONDS
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.state.database import SCHEMA_REVISION

router = APIRouter(tags=["service"])


@router.get("/healthz", dependencies=[Depends(Open())])
async def healthz() -> Health:
    """Answer whether the process runs."""
    # Not in one of the threads, all of which may wait for a database.
    return Health(status="ok")


@router.get("/readyz", dependencies=[Depends(Open())], responses={503: {"model": Health}})
def readyz(service: ServiceOfApp) -> Health:
    """Answer whether the state database is reachable and has the schema of this version."""
    try:
        revision = service.database.revision()
        reason = None
        if revision != SCHEMA_REVISION:
            reason = f"the state database has revision {revision}, expected {SCHEMA_REVISION}"
        elif not service.database.is_in_place():
            reason = "the file of the state database was removed or replaced"
    except ArcticError:
        reason = "the state database does not answer"
    if reason is None:
        return Health(status="ok")
    content = Health(status="unavailable", reason=reason).model_dump()
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return JSONResponse(content, 503, headers=headers)  # type: ignore[return-value]


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(service: ServiceOfApp, caller: Annotated[Caller, needs("metrics", "read")]) -> Response:
    """Return the numbers of waiting and active jobs for Prometheus, by location."""
    # The numbers are those of all locations.
    caller.check()
    now, cluster = utc_now(), service.settings.cluster
    with service.database.read() as tx:
        names = [listed.name for listed in list_locations(tx, cluster, now)]
    service.metrics.forget_others(names, cluster=cluster)
    for name in names:
        service.metrics.count(service.database, cluster=cluster, location=name, now=now)
    return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)


@router.get(
    "/api/v1/openapi.json",
    dependencies=[Depends(AnyCaller())],
    response_model=dict[str, Any],
)
def openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI document of this API."""
    return JSONResponse(request.app.openapi())
