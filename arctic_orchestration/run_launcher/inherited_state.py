"""State that a run's process inherits from its host, and must not use or remove."""

import atexit
import os
import select
import shutil
import sys
import weakref

_REMOVERS = (shutil.rmtree, os.remove, os.unlink, os.rmdir, os.removedirs)
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


def leave_to_host() -> None:
    """Drops inherited state; called in a child, before anything else."""
    _leave_folders()
    _leave_broken_outputs()
    if "numpy" in sys.modules:
        # Every child would draw the same numbers; the standard library reseeds its own.
        sys.modules["numpy"].random.seed()


def _leave_folders() -> None:
    """Keeps temporary folders that code creates when imported: the next run needs them, too."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    for remove in _REMOVERS:
        atexit.unregister(remove)


def _leave_broken_outputs() -> None:
    """Replaces broken outputs: runs still write after the reader of the host's output ended."""
    for output in (1, 2):
        poll = select.poll()
        poll.register(output, 0)
        if any(state & _BROKEN for _, state in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)
