"""The process of a run: whether it is still there, and how it is asked to stop."""

import os
import select
from multiprocessing.synchronize import Event
from pathlib import Path


def began(pid: int) -> int | None:
    """The tick since the machine's boot at which a process began, or None when it has ended.

    psutil's time of creation moves when the clock is set; ticks do not. A zombie has ended.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name of the process, in parentheses, may contain anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


class Stop(Event):
    """The event that interrupts a run, for a child that is forked after it was made.

    Setting multiprocessing's own event waits until each waiting process has taken note, and so for
    ever if one is stopped or was killed. This one is a flag in the kernel.
    """

    def __init__(self) -> None:
        # Dagster asks for an instance of multiprocessing's class; its semaphores are not needed.
        self._flag = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        """Sets the flag, for good."""
        os.eventfd_write(self._flag, 1)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, at most ``timeout`` seconds; returns whether it is."""
        poll = select.poll()
        poll.register(self._flag, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1_000))

    def close(self) -> None:
        """Gives the flag up, in this process."""
        os.close(self._flag)
