"""``/waiting`` and ``/why-not``: what waits for what, and why a schedule did not launch."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from arctic_orchestration.clock import utc_now
from arctic_orchestration.documents import At
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules.views.why_not import why_not
from arctic_orchestration.schedules.views.why_not_answer import WhyNot
from arctic_orchestration.service import parameters
from arctic_orchestration.service.access import SchedulesReader, WaitingReader
from arctic_orchestration.service.documents import Page
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.waiting.reader import waiting, waiting_by_cause
from arctic_orchestration.waiting.views import CauseGroup, Trouble
from arctic_orchestration.waiting.wait_filter import WaitFilter
from arctic_orchestration.waits import Wait, WaitKind

router = APIRouter(tags=["waiting"])


class WaitsDocument(Page):
    """What waits, oldest first; with ``group_by=cause`` its causes in place of the waits."""

    at: At
    waits: list[Wait] | None = None
    count: int | None = None
    groups: list[CauseGroup] | None = None
    troubles: list[Trouble]


class WhyNotDocument(WhyNot):
    """Why a schedule did not launch at a moment."""

    location: str


@router.get("/waiting", response_model_exclude_unset=True)
def list_waiting(
    service: ServiceOfApp,
    caller: WaitingReader,
    group_by: Annotated[
        Literal["cause"] | None, Query(description="Count what waits for the same cause.")
    ] = None,
    kind: Annotated[WaitKind | None, Query(description="Only of this kind.")] = None,
    location: parameters.SomeLocation = None,
    cause: Annotated[Text, Query(description="Only for this cause: window, window:NAME.")] = None,
    text: Annotated[Text, Query(description="In the name, the id or the reason.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> WaitsDocument:
    """List what waits for anything: jobs, arrivals, queued runs, tasks, tables, partitions.

    A token that is limited to a location has to name it.
    """
    caller.check(**({"location": location} if location else {}))
    wanted = WaitFilter.parse(kind=kind, location=location, cause=cause, text=text)
    cluster, now = service.settings.cluster, utc_now()
    with service.database.read() as tx:
        if group_by is not None:
            found = waiting_by_cause(tx, cluster, now, wanted)
            return WaitsDocument.model_validate({**found.to_json(), "next_cursor": None})
        try:
            page = waiting(tx, cluster, now, wanted, after=cursor, limit=limit).to_json()
        except InvalidInput as error:
            if error.field != "after":
                raise
            # So the command names it.
            raise InvalidInput("cursor", cursor, error.expected) from None
    return WaitsDocument.model_validate({"next_cursor": page.pop("next_after"), **page})


@router.get("/why-not")
def explain_missed_launch(
    service: ServiceOfApp,
    caller: SchedulesReader,
    schedule: Annotated[str, Query(max_length=1_000, description="The schedule's name.")],
    at: Annotated[str, Query(max_length=100, description="A moment that has passed.")],
    location: parameters.Location = None,
) -> WhyNotDocument:
    """Explain why a schedule did not launch at a moment.

    From history, or by simulating that span again over the real events.
    """
    moment = parameters.moment(at, field="at")
    with service.reading(caller, location, schedules=[schedule]) as (tx, place, store):
        found = why_not(tx, store, place, schedule, moment, utc_now())
    return WhyNotDocument(location=place.name, **dict(found))
