"""When a run reached each of its stages, from Dagster's event log."""

from datetime import UTC, datetime

from dagster import DagsterEventType, DagsterInstance, RunRecord

from arctic_orchestration.dagster_internals import sqlite_run_database

_STAGES = {
    DagsterEventType.RUN_ENQUEUED: "queued",
    DagsterEventType.RUN_STARTING: "starting",
    DagsterEventType.RUN_START: "started",
    DagsterEventType.STEP_START: "first step",
    DagsterEventType.RUN_SUCCESS: "ended",
    DagsterEventType.RUN_FAILURE: "ended",
    DagsterEventType.RUN_CANCELED: "ended",
}


def created_at(instance: DagsterInstance, record: RunRecord) -> datetime:
    """Returns when a run was created, by its first event.

    The record is used for a run without events, and on SQLite, where its moment is exact: on
    Postgres, Dagster writes it in the time zone of the session, and reads it as UTC.
    """
    if sqlite_run_database(instance.run_storage) is not None:
        return record.create_timestamp
    first = instance.get_records_for_run(record.dagster_run.run_id, limit=1).records
    if not first:
        return record.create_timestamp
    return datetime.fromtimestamp(first[0].timestamp, UTC)


def moments_of_run(instance: DagsterInstance, run_id: str) -> dict[str, datetime]:
    """Returns the first moment of each stage that the run has reached."""
    moments: dict[str, datetime] = {}
    for entry in instance.all_logs(run_id, of_type=set(_STAGES)):
        assert entry.dagster_event is not None
        stage = _STAGES[entry.dagster_event.event_type]
        moments.setdefault(stage, datetime.fromtimestamp(entry.timestamp, UTC))
    return moments
