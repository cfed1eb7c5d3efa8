"""Keeps the idle ticks of this package's sensors out of the log of Dagster's daemon.

The daemon logs two lines for each tick of a sensor, even if the tick had nothing to do. These
sensors tick every few seconds, so most lines of the log would be about nothing. This filter drops
the line that begins a tick, and logs the one that ends it when its text is new, or after ten
minutes as a sign of life. Lines of other sensors, of requested runs and of failures stay.

The daemon imports no code of a location. The classes in ``dagster.yaml`` install the filter:
``ArcticRunCoordinator`` when the daemon starts, ``ArcticRunLauncher`` when it launches its first
run. Sensors of consumers have names of their users; they are recognized by the text of their first
idle tick.
"""

import logging
import re

_OWN = "arctic_"
_BEGIN = re.compile(r"Checking for new runs for sensor: (?P<sensor>\w+)$")
_END = re.compile(r"Sensor (?P<sensor>\w+) skipped: (?P<text>.*)$", re.DOTALL)
#: the prefix of the text of a consumer's sensor
_OF_CONSUMER = re.compile(r"consumer [\w.-]+: ")
_REPEATED_SECONDS = 600
#: the maximum number of remembered texts
_REMEMBERED = 1_000


class IdleTicks(logging.Filter):
    """Passes a record unless it is about a tick without news."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}
        self._of_consumers: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is logged."""
        message = record.getMessage()
        if begin := _BEGIN.match(message):
            return not self._is_own(begin["sensor"])
        end = _END.match(message)
        if end is None:
            return True
        if _OF_CONSUMER.match(end["text"]):
            self._of_consumers.add(end["sensor"])
        elif not end["sensor"].startswith(_OWN):
            return True
        # A clock that was set back does not suppress lines.
        age = record.created - self._logged_at.get(message, float("-inf"))
        if 0 <= age < _REPEATED_SECONDS:
            return False
        if len(self._logged_at) >= _REMEMBERED:
            self._logged_at.clear()
        self._logged_at[message] = record.created
        return True

    def _is_own(self, sensor: str) -> bool:
        return sensor.startswith(_OWN) or sensor in self._of_consumers


_idle_ticks = IdleTicks()


def install() -> None:
    """Filters the log of the sensor daemon, if this process is one; idempotent."""
    logging.getLogger("dagster.daemon.SensorDaemon").addFilter(_idle_ticks)
