"""``/locations``: code locations, and the specification of each."""

from typing import Annotated

from fastapi import APIRouter, Path

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.views.locations import list_locations
from arctic_orchestration.schedules.views.specification import specification
from arctic_orchestration.service import documents, paging
from arctic_orchestration.service.access import LocationsReader
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(tags=["locations"])


@router.get("/locations")
def list_of_locations(service: ServiceOfApp, caller: LocationsReader) -> documents.Places:
    """List code locations, and whether their dispatchers tick."""
    cluster = service.settings.cluster
    with service.database.read() as tx:
        listed_locations = list_locations(tx, cluster, utc_now())
    listed = [one for one in listed_locations if caller.admits(location=one.name)]
    return documents.Places(cluster=cluster, locations=listed)


@router.get("/locations/{location:path}", response_model_exclude_unset=True)
def show_specification(
    service: ServiceOfApp,
    caller: LocationsReader,
    location: Annotated[str, Path(description="The location's name.")],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> documents.Specification:
    """Show the specification of a code location: its schedules as they are now.

    Beside each stands what the code declares, and what differs. Declared schedules that a person
    deleted are listed by name.
    """
    (after,) = paging.values(cursor, str) or ("",)
    cluster = service.settings.cluster
    with service.reading(caller, location) as (tx, place, store):
        shown = specification(tx, store, place, after=after, limit=limit)
        about = {one.name: one for one in list_locations(tx, cluster, utc_now())}
    following = paging.cursor(shown.next_after) if shown.next_after is not None else None
    listed = [{"location": place.name, **one.to_json()} for one in shown.schedules]
    return documents.Specification.model_validate(
        {
            "location": about[place.name],
            "schedules": listed,
            "deleted": list(shown.deleted),
            "next_cursor": following,
        }
    )
