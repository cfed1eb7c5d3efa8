"""``/consumers``: the progress of partition consumers, and their control.

By the state database alone: what they have not read of Dagster's event log yet is not counted.
"""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Response

from arctic_orchestration.consumers import control, partition_leases, store, working_set
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.progress import counted
from arctic_orchestration.consumers.specification import FROM_NOW
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.consumers.views.consumers import (
    ConsumerDetails,
    ConsumerDocument,
    Standing,
    consumer_document,
    details_document,
    parse_states,
    partition_document,
)
from arctic_orchestration.errors import InvalidInput, NotFound, TransitionRefused
from arctic_orchestration.service import consumers_documents as documents
from arctic_orchestration.service import paging, parameters
from arctic_orchestration.service.access import Caller, ConsumersReader, ConsumersWriter
from arctic_orchestration.service.bodies import JsonObject, body_schema
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.service import Service, ServiceOfApp
from arctic_orchestration.state.dialect import database_time

router = APIRouter(tags=["consumers"])
Name = Annotated[str, Path(description="The consumer's name.")]
_RETRY = body_schema(documents.RetryForm.model_json_schema())
_RESET = body_schema(documents.ResetForm.model_json_schema())


@router.get("/consumers")
def list_consumers(
    service: ServiceOfApp, caller: ConsumersReader, limit: Limit = 50, cursor: Cursor = None
) -> documents.ConsumerPage:
    """List consumers by name, with their progress at their last reading of the event log."""
    begin = paging.values(cursor, str)
    with service.database.read() as tx:
        # Databases sort texts by their own collations.
        known = sorted(store.all_of(tx, service.settings.cluster), key=lambda one: one.name)
        found = [
            one
            for one in known
            if caller.admits(asset=one.asset) and (begin is None or one.name > begin[0])
        ]
        shown, following = paging.page(found, limit, lambda last: [last.name])
        described = [_described(tx, one) for one in shown]
    return documents.ConsumerPage(consumers=described, next_cursor=following)


@router.get("/consumers/{consumer}", responses={200: HAS_ETAG})
def show_consumer(
    service: ServiceOfApp, caller: ConsumersReader, consumer: Name, response: Response
) -> ConsumerDetails:
    """Show a consumer: its progress, and who has partitions of it."""
    with service.database.read() as tx:
        one = _known(service, tx, caller, consumer)
        progress = counted(tx, one.id, database_time(tx))
        leases = partition_leases.live_leases(tx, one.id)
    response.headers["ETag"] = etag(one)
    return details_document(Standing.as_read(one, progress), leases)


@router.get("/consumers/{consumer}/partitions")
def list_partitions(
    service: ServiceOfApp,
    caller: ConsumersReader,
    consumer: Name,
    state: Annotated[
        list[PartitionState] | None,
        Query(description="Only in this state; repeatable. Default: all but acknowledged."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.ConsumedPartitionPage:
    """List partitions of a consumer in the order of delivery; discarded ones were given up."""
    begin = paging.values(cursor, int, str)
    after = (int(begin[0]), str(begin[1])) if begin is not None else None
    with service.database.read() as tx:
        one = _known(service, tx, caller, consumer)
        rows = working_set.partitions_of(tx, one.id, parse_states(state), limit + 1, after=after)
    shown, following = paging.page(rows, limit, lambda last: (last.place, last.partition))
    return documents.ConsumedPartitionPage(
        consumer=one.name,
        partitions=[partition_document(row, one) for row in shown],
        next_cursor=following,
    )


@router.post("/consumers/{consumer}/retry", openapi_extra=_RETRY, responses={200: HAS_ETAG})
def retry_partitions(
    service: ServiceOfApp,
    caller: ConsumersWriter,
    consumer: Name,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> documents.Redelivery:
    """Deliver partitions again, with all of their attempts: those named, or all given up."""
    form = documents.RetryForm.parse(body)
    if (form.partitions is not None) == form.all:
        raise InvalidInput("partitions", form.partitions, "partition keys, or all: true")
    with service.database.begin() as tx:
        one = store.locked(tx, _known(service, tx, caller, consumer).id)
        parameters.check_etag(if_match, etag(one))
        now = database_time(tx)
        keys = control.retry(tx, one, form.partitions, now, actor=caller.actor)
        if not keys:
            raise TransitionRefused(f"No partition of consumer {consumer} was given up")
    response.headers["ETag"] = etag(one)
    return documents.Redelivery(consumer=one.name, partitions=keys)


@router.post("/consumers/{consumer}/reset", openapi_extra=_RESET, responses={200: HAS_ETAG})
def reset_consumer(
    service: ServiceOfApp,
    caller: ConsumersWriter,
    consumer: Name,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> ConsumerDocument:
    """Reset a consumer: it starts again and forgets all; owners can acknowledge nothing more.

    from_now is the end of the event log if DAGSTER_HOME names the instance; else timestamps decide,
    and events that are committed late may be missed.
    """
    form = documents.ResetForm.parse(body)
    begins = control.check_reset(form.start, form.asset)
    with service.database.read() as tx:
        _known(service, tx, caller, consumer)
    if form.asset is not None:
        caller.check(asset=form.asset)
    end = _present_end() if begins == FROM_NOW else None
    with service.database.begin() as tx:
        one = store.locked(tx, _known(service, tx, caller, consumer).id)
        parameters.check_etag(if_match, etag(one))
        after = control.reset(
            tx, one, form.start, database_time(tx), asset=form.asset, end=end, actor=caller.actor
        )
        described = _described(tx, after)
    response.headers["ETag"] = etag(after)
    return described


def etag(one: Consumer) -> str:
    """Returns the ETag of a consumer: of its asset, its start and its resets."""
    return parameters.etag(one.id, one.asset, one.start, one.resets)


def _known(service: Service, tx: sa.Connection, caller: Caller, name: str) -> Consumer:
    """Returns a consumer that the caller may see.

    Errors:
        NotFound: no such consumer; without the names of others, as the command has.
        RequestRefused: 403; the caller may not.
    """
    one = store.find(tx, service.settings.cluster, name)
    if one is None:
        raise NotFound(f"cluster {service.settings.cluster} has no consumer {name}")
    caller.check(asset=one.asset)
    return one


def _described(tx: sa.Connection, one: Consumer) -> ConsumerDocument:
    standing = Standing.as_read(one, counted(tx, one.id, database_time(tx)))
    return consumer_document(standing)


def _present_end() -> control.LogEnd | None:
    # Dagster takes seconds to import.
    from arctic_orchestration.consumers.dagster.event_source import present_end

    return present_end()
