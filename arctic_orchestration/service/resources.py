"""``/resources``: who holds the resources by which concurrency is counted, and how many wait."""

from fastapi import APIRouter

from arctic_orchestration.documents import Document
from arctic_orchestration.schedules.views.holders import holders_by_resource, waiting_by_resource
from arctic_orchestration.service.access import QueuesReader
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(tags=["run queue"])
#: holders of one answer, of all resources together
_MOST = 500


class ResourceHolder(Document):
    """A job, or a run that no job requested."""

    holder: str
    cluster: str
    location: str
    #: null: it is a run
    schedule: str | None


class ResourceDocument(Document):
    """What limits on concurrency count: a target, or a group."""

    resource: str
    #: jobs that wait for it
    waiting: int
    holders: list[ResourceHolder]


class ResourcesDocument(Document):
    """Resources by name, with their first holders."""

    resources: list[ResourceDocument]


@router.get("/resources")
def list_resources(service: ServiceOfApp, caller: QueuesReader) -> ResourcesDocument:
    """List who holds which resource, in all clusters, and how many jobs wait for it.

    The first 500 holders. It needs a scope without limits.
    """
    caller.check()
    with service.database.read() as tx:
        held, waiting = holders_by_resource(tx, _MOST), waiting_by_resource(tx)
    return ResourcesDocument(
        resources=[
            ResourceDocument(
                resource=name,
                waiting=waiting.get(name, 0),
                holders=ResourceHolder.from_records(held.get(name, ())),
            )
            for name in sorted({*held, *waiting})
        ]
    )
