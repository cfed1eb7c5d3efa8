"""Finds which process part asks the run coordinator for limits.

Dagster reads the limits in every process that has an instance, and in the daemon several times a
pass, without naming the caller. But the limits of a pass must be computed once, at its beginning
and in the daemon: earlier, they lack the starts of the last pass; later, the pass does not use
them. The call stack shows the caller.
"""

from enum import Enum, auto

from arctic_orchestration.dagster_internals import BEGINS_PASS, queue_daemon_function


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
    function = queue_daemon_function()
    if function is None:
        return Asker.ANYBODY
    return Asker.NEW_PASS if function == BEGINS_PASS else Asker.SAME_PASS
