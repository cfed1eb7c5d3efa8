"""Keeps the idle ticks of this package's sensors out of the log of Dagster's daemon.

The daemon logs two lines for each tick of a sensor, also if the tick had nothing to do. These
sensors tick every few seconds, so most lines of the log would be about nothing. Here a line that
begins a tick is left out, and one that ends it is logged when its text is news, or after ten
minutes as a sign of life. Lines of other sensors, of requested runs and of failures stay.
"""

import logging
import re

_SENSOR = r"(?P<sensor>arctic_\w+)"
_BEGIN = re.compile(rf"Checking for new runs for sensor: {_SENSOR}$")
_END = re.compile(rf"Sensor {_SENSOR} skipped: (?P<text>.*)$", re.DOTALL)
_AGAIN_SECONDS = 600
#: texts remembered, before they are forgotten
_REMEMBERED = 1_000


class IdleTicks(logging.Filter):
    """Lets a record pass unless it is about a tick that had nothing new."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        message = record.getMessage()
        if _BEGIN.match(message):
            return False
        if not _END.match(message):
            return True
        # A clock that was set back does not keep lines out.
        age = record.created - self._logged_at.get(message, float("-inf"))
        if 0 <= age < _AGAIN_SECONDS:
            return False
        if len(self._logged_at) >= _REMEMBERED:
            self._logged_at.clear()
        self._logged_at[message] = record.created
        return True


_idle_ticks = IdleTicks()


def install() -> None:
    """Filters the log of the sensor daemon, if this process is one; a second call does nothing."""
    logging.getLogger("dagster.daemon.SensorDaemon").addFilter(_idle_ticks)
