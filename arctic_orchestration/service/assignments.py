"""What a worker over HTTP gets of a claimed task: its files, its table, and where it writes.

This is where the service needs the lake's catalog, which is opened with the first claim.
"""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.attempt import Claim
from arctic_orchestration.errors import DatabaseUnavailable, Refused
from arctic_orchestration.service import worker_documents as documents
from arctic_orchestration.service.service import Service

_log = logging.getLogger(__name__)
#: properties of pyiceberg's FileIO: they open files, and no catalog
_OF_FILES = ("s3.", "gcs.", "adls.", "hdfs.", "client.", "hf.", "oss.", "py-io-impl")


class TableAway(Exception):
    """The table of a claimed task cannot be loaded now."""


def assignment_of(service: Service, claim: Claim, ends_at: float) -> documents.Assignment:
    """Returns the assignment of a claim, whose directory is recorded.

    Args:
        service: has the catalog.
        claim: the claim.
        ends_at: when its lease ends, by this machine's steady clock.

    Errors:
        Refused: the lease has expired meanwhile.
        TableAway: the table cannot be loaded. Its task was put back, or has failed if the table
            itself is the cause.
    """
    # The service starts without them, and without the lake.
    from arctic_orchestration.compaction.work.attempt_runner import Blame, blame_of, text_of
    from arctic_orchestration.compaction.work.database_source import DatabaseSource
    from arctic_orchestration.lake.clustering import is_sorted

    task = claim.task
    try:
        place = DatabaseSource(service.database, service.catalog).place(claim)
        sorts = is_sorted(place.table)
    except Refused:
        raise
    except Exception as error:
        report = attempts.failed if blame_of(error) is Blame.TASK else attempts.release
        with suppress(Refused, DatabaseUnavailable), service.database.begin() as tx:
            report(tx, claim.attempt_id, claim.token, reason=text_of(error))
        _log.warning("task %s is not given to a worker: %s", task.id, text_of(error))
        raise TableAway from error
    table = place.table
    return documents.Assignment(
        attempt=claim.attempt_id,
        fencing_token=claim.token,
        lease_seconds=max(ends_at - time.monotonic(), 0),
        task=task.id,
        kind=task.kind,
        partition=task.partition,
        gain=task.gain,
        table=documents.TableDocument(
            name=task.table,
            format_version=table.format_version,
            metadata_location=table.metadata_location,
            columns=table.schema().model_dump(mode="json", by_alias=True),
            is_sorted=sorts,
            io=_of_files(table.io.properties),
        ),
        directory=place.directory,
        target_bytes=place.target_bytes,
        group=documents.GroupDocument.model_validate(json.loads(claim.group.to_json())),
    )


def _of_files(properties: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in properties.items() if key.startswith(_OF_FILES)}
