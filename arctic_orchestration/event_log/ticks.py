"""The ticks of a sensor in Dagster's schedule storage."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import DagsterInstance

from arctic_orchestration.dagster_internals import (
    InstigatorTick,
    SerializableErrorInfo,
    TickStatus,
    ticks_by_ids,
)
from arctic_orchestration.errors import DatabaseUnavailable

#: errors whose cause is more specific than they are
_WRAPPERS = ("SensorExecutionError", "DagsterUserCodeProcessError")


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedTick:
    """A tick in which Dagster's daemon failed at a request."""

    #: the first line of the daemon's error
    error: str
    #: the run keys of the requests without a run, in the order of their submission
    unmade: tuple[str, ...]


class DagsterTicks:
    """The tick under evaluation, and earlier ones."""

    def __init__(self, instance: Callable[[], DagsterInstance], log_key: Any) -> None:
        """Reads nothing.

        Args:
            instance: returns the instance when it is needed.
            log_key: that of the sensor's context. In a tick of the daemon its last part is the
                id of the tick's record; otherwise it is a time.
        """
        self._instance = instance
        last = log_key[-1] if log_key else ""
        #: the id of the tick; None: no daemon evaluates the sensor
        self.current: str | None = last if last.isdecimal() else None

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        """Returns the ticks in which no daemon will create a run any more. One statement.

        Errors:
            DatabaseUnavailable: the storage did not answer.
        """
        known = self._records(ticks)
        return [tick for tick in ticks if tick not in known or _is_over(known[tick])]

    def failed(self, ticks: Collection[str]) -> Mapping[str, FailedTick]:
        """Returns the ticks that failed after their requests were stored. One statement.

        Errors:
            DatabaseUnavailable: the storage did not answer.
        """
        return {
            id: FailedTick(
                error=first_line(tick.error) if tick.error else "no error was stored",
                unmade=tuple(
                    request.run_key
                    for _, request in tick.unsubmitted_run_ids_with_requests
                    if request.run_key
                ),
            )
            for id, tick in self._records(ticks).items()
            if tick.status is TickStatus.FAILURE
        }

    def _records(self, ticks: Collection[str]) -> dict[str, InstigatorTick]:
        if not ticks:
            return {}
        try:
            records = ticks_by_ids(self._instance(), [int(tick) for tick in ticks])
        except Exception as error:
            # Besides the driver's errors, dagster-postgres raises errors of its own.
            raise DatabaseUnavailable(f"Dagster's schedule storage: {error}") from error
        return {str(record.tick_id): record for record in records}


def first_line(error: SerializableErrorInfo) -> str:
    """Returns the first line of the most specific error, without errors that only wrap one."""
    while error.cause is not None and error.cls_name in _WRAPPERS:
        error = error.cause
    return next(iter(error.message.strip().splitlines()), str(error.cls_name))


def _is_over(tick: InstigatorTick) -> bool:
    """Returns whether only the daemon that worked on the tick can have left the record so.

    When both of two daemons have resumed a tick, one may record it as SKIPPED before the other has
    stored its requests, or as FAILURE while the other works on it.
    """
    has_stored_requests = bool(tick.tick_data.run_requests)
    if tick.status is TickStatus.SUCCESS:
        return True
    if tick.status is TickStatus.SKIPPED:
        return has_stored_requests
    return tick.status is TickStatus.FAILURE and not has_stored_requests
