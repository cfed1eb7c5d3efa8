"""``/events``: announces arrivals of partitions, and lists the events that schedules took.

Both stand at one address, since an arrival that is posted is an event that is listed, as soon as a
schedule takes it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, Path, Query

from arctic_orchestration.errors import ConfigurationError, InvalidDefinition, InvalidInput
from arctic_orchestration.event_log.event import EventKind
from arctic_orchestration.schedules.arrival_names import ArrivalNames
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.views.event_effects import Span
from arctic_orchestration.schedules.views.set_off import After, TakenEvent, newest_events, set_off
from arctic_orchestration.service import announcements, paging, parameters
from arctic_orchestration.service import events_documents as documents
from arctic_orchestration.service.access import Caller, EventsReader, EventsWriter
from arctic_orchestration.service.bodies import Body, body_schema, json_object
from arctic_orchestration.service.dagster_instance import instance_of_service, unusable
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.tables import events

router = APIRouter(tags=["events"])
#: Ten thousand arrivals with some metadata.
_MOST_BYTES = 10_000_000
_MOST_PROBLEMS = 100
#: how often a page reads on if its scope does not admit what the query found
_MOST_READS = 10
_OF_NO_ASSET = (EventKind.RUN, EventKind.TICK, EventKind.REQUEST)
#: the parts of a glob: a set, or one letter
_PARTS = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
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
        found = request.find(tx, database_time(tx))
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
    location: parameters.SomeLocation = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.EventPage:
    """List the events that schedules took, newest first, each with its jobs.

    An event that no schedule listens to is not stored. A scope that is limited to assets admits
    arrivals, checks and freshness of these. A page may have fewer events than there are: the last
    one has no next_cursor.
    """
    begin = paging.values(cursor, str, int, int)
    after = (parameters.moment(begin[0], field="cursor"), begin[1], begin[2]) if begin else None
    span = Span(
        begin=parameters.moment(taken_from, field="taken_from") if taken_from else None,
        end=parameters.moment(taken_until, field="taken_until") if taken_until else None,
        kind=kind,
        subject=subject,
        partition=partition,
    )
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        shown, last = _page(tx, caller, places, span, after, limit)
    following = paging.cursor(last[0].isoformat(), *last[1:]) if last else None
    listed = [event.to_json() for event in shown]
    return documents.EventPage.model_validate({"events": listed, "next_cursor": following})


@router.get("/events/{number}", response_model_exclude_unset=True)
def show_event(
    service: ServiceOfApp,
    caller: EventsReader,
    number: Annotated[int, Path(ge=0, lt=2**63, description="Its number in the location.")],
    location: parameters.Location = None,
) -> documents.EventDetails:
    """Show an event and everything that it set off: jobs, the events of their runs, and so on.

    Without events that the scope does not admit.
    """
    with service.reading(caller, location, schedules=[]) as (tx, place, _):
        taken = set_off(tx, place, number)
    caller.check(**_properties(taken))
    shown = taken.to_json(shows=lambda event: caller.admits(**_properties(event)))
    return documents.EventDetails.model_validate(shown)


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
    tx: sa.Connection,
    caller: Caller,
    places: Sequence[Location],
    span: Span,
    after: After | None,
    limit: int,
) -> tuple[list[TakenEvent], After | None]:
    """Returns events that a caller may see, and after which more may follow.

    Costs at most ``2 * _MOST_READS`` statements: what is passed over is the next page's.
    """
    admitted = sa.or_(sa.false(), *(_is_admitted(caller, place) for place in places))
    where = [*span.conditions, admitted]
    shown: list[TakenEvent] = []
    for _ in range(_MOST_READS):
        read = newest_events(tx, where, after=after, limit=limit + 1)
        for event in read:
            if caller.admits(**_properties(event)):
                if len(shown) == limit:
                    return shown, shown[-1].place
                shown.append(event)
        if len(read) <= limit:
            return shown, None
        after = read[-1].place
    return shown, after


def _is_admitted(caller: Caller, place: Location) -> sa.ColumnElement[bool]:
    """Returns that a caller may see an event of a location, or nearly so: ``[...]`` is any letter.

    SQLite ignores the case of letters, too; the caller's scope has the last word.
    """
    col = events.c
    globs = caller.globs("asset", location=place.name)
    if globs is None:
        return col.location_id == place.id
    alike = [col.subject.like(_like(glob), escape="\\") for glob in globs]
    return sa.and_(
        col.location_id == place.id,
        col.kind.not_in([kind.value for kind in _OF_NO_ASSET]),
        sa.or_(sa.false(), *alike),
    )


def _like(glob: str) -> str:
    parts = {"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"}
    return "".join(parts.get(part, "_" if len(part) > 1 else part) for part in _PARTS.findall(glob))


def _properties(event: TakenEvent) -> dict[str, str]:
    """Returns what scopes limit; runs, ticks and requests are of no asset."""
    of_asset = event.event.kind not in _OF_NO_ASSET
    asset = {"asset": event.event.subject} if of_asset else {}
    return {"location": event.location, **asset}
