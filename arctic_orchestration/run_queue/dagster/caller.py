"""Finds which process part asks the run coordinator for limits.

Dagster reads the limits in every process that has an instance, and in the daemon several times a
pass, without naming the caller. But the limits of a pass must be computed once, at its beginning
and in the daemon: earlier, they lack the starts of the last pass; later, the pass does not use
them. The call stack shows the caller.
"""

import sys
from enum import Enum, auto
from types import FrameType

_DAEMON = "dagster._daemon.run_coordinator.queued_run_coordinator_daemon"
#: the function that begins a pass of the daemon; it reads the limits once, for the whole pass
_BEGINNING = "run_iteration"


class Asker(Enum):
    """The kinds of callers."""

    #: the daemon, at the beginning of a pass
    NEW_PASS = auto()
    #: the daemon, in the middle of one
    SAME_PASS = auto()
    #: a webserver, a run's process, another daemon, a command
    ANYBODY = auto()


def asker() -> Asker:
    """Returns the caller, by the innermost frame of the queue daemon on the stack."""
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
