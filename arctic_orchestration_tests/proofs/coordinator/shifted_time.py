"""The package's time as real time plus an offset that stands in a file, for several processes.

Dagster's own timestamps stay real.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from arctic_orchestration import clock

#: the environment variable that names the file
FILE = "ARCTIC_TEST_OFFSET"


class ShiftedTime:
    """What ``clock`` takes for ``datetime``: ``now`` reads the offset again each time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self, zone: Any = None) -> datetime:
        """The real time and the offset."""
        return self.of(time.time()).astimezone(zone)

    def of(self, timestamp: float) -> datetime:
        """What the package's time is, or was, at a real moment; if the offset was this one."""
        return datetime.fromtimestamp(timestamp, UTC) + timedelta(seconds=self._offset())

    def _offset(self) -> float:
        try:
            return float(json.loads(self._file.read_text()))
        except FileNotFoundError:
            return 0.0

    def set(self, now: datetime) -> None:
        """From here on it is ``now``, and time goes on from there, in each of the processes."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(now.timestamp() - time.time()))
        new.rename(self._file)


def put_in_place(file: Path) -> ShiftedTime:
    """Gives this process the time of the file, whoever has imported ``utc_now`` already."""
    shifted = ShiftedTime(file)
    # utc_now looks the name up at each call, so that it does not matter who holds the function.
    vars(clock)["datetime"] = shifted
    return shifted


@contextmanager
def in_place(file: Path) -> Iterator[ShiftedTime]:
    """The same, for as long as the block lasts."""
    before = vars(clock)["datetime"]
    try:
        yield put_in_place(file)
    finally:
        vars(clock)["datetime"] = before
