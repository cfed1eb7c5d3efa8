"""The ticks of a sensor, as Dagster's schedule storage has recorded them."""

from collections.abc import Callable, Collection
from typing import Any

from dagster import DagsterInstance
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus

from arctic_orchestration.errors import DatabaseUnavailable


class DagsterTicks:
    """The tick that is being evaluated, and those before it."""

    def __init__(self, instance: Callable[[], DagsterInstance], log_key: Any) -> None:
        """Reads nothing.

        Args:
            instance: gives the instance when it is needed.
            log_key: that of the sensor's context. In a tick of the daemon its last part is the
                id of the tick's record; otherwise it is a time.
        """
        self._instance = instance
        last = log_key[-1] if log_key else ""
        #: the id of the tick; none: the sensor is not evaluated by a daemon
        self.current: str | None = last if last.isdecimal() else None

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        """Those in which no daemon will create a run any more. One statement.

        Errors:
            DatabaseUnavailable: the storage did not answer.
        """
        if not ticks:
            return []
        storage = self._instance().schedule_storage
        assert storage is not None
        try:
            records = storage.get_ticks_by_ids([int(tick) for tick in ticks])
        except Exception as error:
            # Besides those of the driver, dagster-postgres raises errors of its own.
            raise DatabaseUnavailable(f"Dagster's schedule storage: {error}") from error
        known = {str(record.tick_id): record for record in records}
        return [tick for tick in ticks if tick not in known or _is_over(known[tick])]


def _is_over(tick: InstigatorTick) -> bool:
    """Whether the record can only be what the daemon that worked on the tick has left.

    With two daemons, one may call a tick SKIPPED whose requests the other one has not stored yet,
    and FAILURE what the other one is working on, when both have resumed it.
    """
    has_stored_requests = bool(tick.tick_data.run_requests)
    if tick.status is TickStatus.SUCCESS:
        return True
    if tick.status is TickStatus.SKIPPED:
        return has_stored_requests
    return tick.status is TickStatus.FAILURE and not has_stored_requests
