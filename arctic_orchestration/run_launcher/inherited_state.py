"""What the process of a run has from its host, and must not use or remove."""

import atexit
import os
import select
import shutil
import sys
import weakref

_REMOVERS = (shutil.rmtree, os.remove, os.unlink, os.rmdir, os.removedirs)
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


def leave_to_host() -> None:
    """In a child, before it does anything else."""
    _leave_folders()
    _leave_broken_outputs()
    if "numpy" in sys.modules:
        # Every child would draw the same numbers; the standard library sees to its own.
        sys.modules["numpy"].random.seed()


def _leave_folders() -> None:
    """Code makes temporary folders when it is imported, and the next run needs them, too."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    for remove in _REMOVERS:
        atexit.unregister(remove)


def _leave_broken_outputs() -> None:
    """A host outlives whoever read what it writes; its runs may write all the same."""
    for output in (1, 2):
        poll = select.poll()
        poll.register(output, 0)
        if any(state & _BROKEN for _, state in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)
