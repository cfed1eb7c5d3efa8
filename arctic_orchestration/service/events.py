"""``/events``: announces arrivals of partitions, and lists the events that schedules took.

Both stand at one address, since an arrival that is posted is an event that is listed, as soon as a
schedule takes it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, Query

from arctic_orchestration.errors import ConfigurationError, InvalidDefinition, InvalidInput
from arctic_orchestration.event_log.event import EventKind
from arctic_orchestration.schedules.arrival_names import ArrivalNames
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.views.event_effects import Span, effects_of, events_of
from arctic_orchestration.schedules.views.listing import ListedEvent
from arctic_orchestration.service import announcements, paging, parameters
from arctic_orchestration.service import events_documents as documents
from arctic_orchestration.service.access import Caller, EventsReader, EventsWriter
from arctic_orchestration.service.bodies import Body, body_schema, json_object
from arctic_orchestration.service.dagster_instance import instance_of_service, unusable
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(tags=["events"])
#: Ten thousand arrivals with some metadata.
_MOST_BYTES = 10_000_000
_MOST_PROBLEMS = 100
#: the least number of events that are read at once for a limited scope
_STEP = 500
_FORM = body_schema({"$ref": "#/components/schemas/AnnouncementForm"})


@router.post("/events", openapi_extra=_FORM)
def announce_arrivals(
    service: ServiceOfApp,
    caller: EventsWriter,
    body: Annotated[dict[str, Any], json_object(Body(most_bytes=_MOST_BYTES))],
    idempotency_key: Annotated[
        str,
        Header(
            min_length=1,
            max_length=200,
            pattern="^[!-~]+$",
            description="A new text for each announcement. The same request may be sent again with "
            "it, for 30 days: it is written once.",
            examples=["flights-2013-01-01"],
        ),
    ],
) -> documents.AnnouncementDocument:
    """Announce that partitions have arrived, up to 10,000 of them: all or none.

    They are written into Dagster's event log, as by arctic partitions add. This needs DAGSTER_HOME.
    """
    form = documents.AnnouncementForm.parse(body)
    assets = Counter(arrival.asset for arrival in form.arrivals)
    for asset in assets:
        caller.check(asset=asset)
    request = announcements.Request(actor=caller.actor, key=idempotency_key, body=body)
    with service.database.read() as tx:
        found = request.find(tx)
        if found is None and not form.force:
            _check_names(tx, service.settings.cluster, form.arrivals)
    if found is None or not found.is_written:
        with instance_of_service() as instance:
            # Dagster takes seconds to import.
            from arctic_orchestration.event_log.announcement import Announcer, Arrival

            arrivals = [
                Arrival(
                    asset=one.asset,
                    partition=one.partition,
                    path=one.path,
                    metadata={
                        **one.model_dump(include={"bytes", "rows"}, exclude_none=True),
                        **one.metadata,
                    },
                )
                for one in form.arrivals
            ]
            try:
                announcer = Announcer(instance)
            except ConfigurationError as error:
                raise unusable(error) from error
            found = announcements.write(service.database, announcer, request, arrivals, assets)
    return documents.AnnouncementDocument(
        id=found.id, arrivals=assets.total(), assets=dict(sorted(assets.items()))
    )


@router.get("/events", response_model_exclude_unset=True)
def list_events(
    service: ServiceOfApp,
    caller: EventsReader,
    taken_from: Annotated[Text, Query(description="Taken at this moment or later.")] = None,
    taken_until: Annotated[Text, Query(description="Taken before this moment.")] = None,
    kind: Annotated[EventKind | None, Query(description="Only of this kind.")] = None,
    subject: Annotated[Text, Query(description="Of this asset, job or schedule.")] = None,
    partition: Annotated[Text, Query(description="Of this partition.")] = None,
    location: parameters.Location = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.EventPage:
    """List the events that schedules took, newest first, each with its jobs.

    An event that no schedule listens to is not stored. A scope that is limited to assets admits
    arrivals, checks and freshness of these.
    """
    (below,) = paging.values(cursor, int) or (None,)
    span = Span(
        begin=parameters.moment(taken_from, field="taken_from") if taken_from else None,
        end=parameters.moment(taken_until, field="taken_until") if taken_until else None,
        kind=kind,
        subject=subject,
        partition=partition,
    )
    with service.reading(caller, location, schedules=[]) as (tx, place, _):
        shown, more = _page(tx, caller, place, span, below, limit)
        effects = effects_of(tx, [(place.id, one.number) for one in shown])
    listed = [
        {
            **one.to_json(),
            "jobs": [effect.to_json() for effect in effects.get((place.id, one.number), ())],
        }
        for one in shown
    ]
    following = paging.cursor(shown[-1].number) if more else None
    return documents.EventPage.model_validate(
        {"location": place.name, "events": listed, "next_cursor": following}
    )


def _check_names(
    tx: sa.Connection, cluster: str, arrivals: Sequence[documents.ArrivalForm]
) -> None:
    """Refuses assets and partitions that no code location has; names the first hundred.

    Errors:
        InvalidDefinition: each with its place in the list.
    """
    names = ArrivalNames(tx, cluster)
    problems: list[InvalidInput] = []
    for place, one in enumerate(arrivals):
        found = names.problem(one.asset, one.partition)
        if found is not None:
            part, expected = found
            value = one.asset if part == "asset" else one.partition
            expected = f"{expected} (to announce it all the same: force)"
            problems.append(InvalidInput(f"arrivals[{place}].{part}", value, expected))
        if len(problems) == _MOST_PROBLEMS:
            break
    if problems:
        raise InvalidDefinition(problems)


def _page(
    tx: sa.Connection, caller: Caller, place: Location, span: Span, below: int | None, limit: int
) -> tuple[list[ListedEvent], bool]:
    """Returns events that a caller may see, and whether there are more."""
    shown: list[ListedEvent] = []
    # A limited scope may pass over most.
    step = limit + 1 if caller.admits(location=place.name) else max(limit + 1, _STEP)
    while True:
        read = events_of(tx, place, span, below=below, limit=step)
        for one in read:
            of_asset = one.event.kind not in (EventKind.RUN, EventKind.TICK)
            asset = {"asset": one.event.subject} if of_asset else {}
            if caller.admits(location=place.name, **asset):
                if len(shown) == limit:
                    return shown, True
                shown.append(one)
        if len(read) < step:
            return shown, False
        below = read[-1].number
