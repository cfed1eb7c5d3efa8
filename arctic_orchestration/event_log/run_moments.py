"""When a run reached each of its stages, from Dagster's event log."""

from datetime import UTC, datetime

from dagster import DagsterEventType, DagsterInstance

_STAGES = {
    DagsterEventType.RUN_ENQUEUED: "queued",
    DagsterEventType.RUN_STARTING: "starting",
    DagsterEventType.RUN_START: "started",
    DagsterEventType.STEP_START: "first step",
    DagsterEventType.RUN_SUCCESS: "ended",
    DagsterEventType.RUN_FAILURE: "ended",
    DagsterEventType.RUN_CANCELED: "ended",
}


def moments_of_run(instance: DagsterInstance, run_id: str) -> dict[str, datetime]:
    """Returns the first moment of each stage that the run has reached."""
    moments: dict[str, datetime] = {}
    for entry in instance.all_logs(run_id, of_type=set(_STAGES)):
        assert entry.dagster_event is not None
        stage = _STAGES[entry.dagster_event.event_type]
        moments.setdefault(stage, datetime.fromtimestamp(entry.timestamp, UTC))
    return moments
