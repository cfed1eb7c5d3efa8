"""``/waiting`` and ``/why-not``: what waits for what, and why a schedule did not launch."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.views.why_not import why_not
from arctic_orchestration.schedules.views.why_not_answer import Source
from arctic_orchestration.service import parameters
from arctic_orchestration.service.access import SchedulesReader, WaitingReader
from arctic_orchestration.service.documents import At, Document, Page
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.waiting.reader import waiting, waiting_by_cause
from arctic_orchestration.waiting.wait_filter import WaitFilter
from arctic_orchestration.waits import Certainty, WaitKind

router = APIRouter(tags=["waiting"])


class HolderDocument(Document):
    """Who or what holds something that waits."""

    kind: str
    id: str
    text: str


class UntilDocument(Document):
    """When a wait ends: at a known moment, at a forecast one, or unknown."""

    certainty: Certainty
    at: At | None
    event: str


class WaitDocument(Document):
    """Something that waits, and what a person can do."""

    kind: WaitKind
    id: str
    name: str
    location: str | None
    since: At
    cause: str
    reason: str
    held_by: list[HolderDocument]
    until: UntilDocument
    actions: list[str]


class ExampleDocument(Document):
    """One of the oldest waits of a cause."""

    id: str
    name: str
    location: str | None
    since: At
    reason: str


class CauseDocument(Document):
    """All that waits of one kind for one cause."""

    kind: WaitKind
    cause: str
    count: int
    since: At
    examples: list[ExampleDocument]


class TroubleDocument(Document):
    """Why something may wait that is not listed, or everything of a feature waits."""

    room: str
    text: str


class WaitsDocument(Page):
    """What waits, oldest first; with ``group_by=cause`` its causes in place of the waits."""

    at: At
    waits: list[WaitDocument] | None = None
    count: int | None = None
    groups: list[CauseDocument] | None = None
    troubles: list[TroubleDocument]


class EvidenceDocument(Document):
    """Something that happened around the moment."""

    at: At
    text: str


class WhyNotDocument(Document):
    """Why a schedule did not launch at a moment."""

    location: str
    schedule: str
    at: At
    cause: str
    answer: str
    source: Source
    job: str | None
    evidence: list[EvidenceDocument]


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
            found: dict[str, Any] = waiting_by_cause(tx, cluster, now, wanted).to_json()
            return WaitsDocument.model_validate({**found, "next_cursor": None})
        found = waiting(tx, cluster, now, wanted, after=cursor, limit=limit).to_json()
    return WaitsDocument.model_validate({"next_cursor": found.pop("next_after"), **found})


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
    return WhyNotDocument.model_validate({"location": place.name, **found.to_json()})
