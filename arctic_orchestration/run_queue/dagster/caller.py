"""Who asks the run coordinator for limits.

Dagster asks for them in every process that has an instance, in the daemon several times a pass,
and does not say who it is. But the limits of a pass must be worked out once, at its beginning and
in the daemon: earlier, they do not know what the last pass started; later, the pass does not
use them. The stack knows: the code that asks is on it.
"""

import sys
from enum import Enum, auto
from types import FrameType

_DAEMON = "dagster._daemon.run_coordinator.queued_run_coordinator_daemon"
#: the function with which a pass of the daemon begins; it asks once, for the whole pass
_BEGINNING = "run_iteration"


class Asker(Enum):
    """Who asks."""

    #: the daemon, at the beginning of a pass
    NEW_PASS = auto()
    #: the daemon, in the middle of one
    SAME_PASS = auto()
    #: a webserver, a run's process, another daemon, a command
    ANYBODY = auto()


def asker() -> Asker:
    """Who asks, by the innermost frame of the daemon that goes through the queue."""
    module = sys.modules.get(_DAEMON)
    if module is None:
        return Asker.ANYBODY
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is module.__dict__:
            begins = frame.f_code.co_name == _BEGINNING
            return Asker.NEW_PASS if begins else Asker.SAME_PASS
        frame = frame.f_back
    return Asker.ANYBODY
