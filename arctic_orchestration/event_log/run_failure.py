"""Why a run failed, in Dagster's own words."""

from typing import Any

from dagster import DagsterEventType

#: the events with the reason, those of steps first
FAILURES = frozenset({DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE})
#: the maximum length of the text, in characters
_LETTERS = 1_000


def why_failed(entries: list[Any]) -> str | None:
    """Returns the error of the first step that failed, else of the run, else None.

    Args:
        entries: the run's events of the types ``FAILURES``, oldest first.
    """
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    for event in events:
        if event.event_type is DagsterEventType.STEP_FAILURE:
            text = _of_step(event.event_specific_data)
            if text:
                return f"step {event.step_key}: {text}"[:_LETTERS]
    for event in events:
        if event.event_type is DagsterEventType.RUN_FAILURE:
            data = event.event_specific_data
            text = _of_error(getattr(data, "error", None)) or (event.message or "").strip()
            if text:
                return text[:_LETTERS]
    return None


def _of_step(data: Any) -> str:
    """Returns the description of a ``dg.Failure``, else the error that was raised."""
    failure = getattr(data, "user_failure_data", None)
    description = getattr(failure, "description", None)
    return (description or "").strip() or _of_error(getattr(data, "error", None))


def _of_error(error: Any) -> str:
    """Returns the message of the exception at the root of the chain."""
    while getattr(error, "cause", None) is not None:
        error = error.cause
    return str(getattr(error, "message", "") or "").strip()
