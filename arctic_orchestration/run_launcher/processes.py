"""The process of a run: whether it still exists, and how it is stopped."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path

#: ignored by processes that do not handle it
_WAKING = signal.SIGURG
_WAKING_SECONDS = 1.0


def began(pid: int) -> int | None:
    """Returns the tick since the machine's boot at which a process began; None: it has ended.

    psutil's creation time moves when the clock is set; ticks do not. A zombie has ended.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name of the process, in parentheses, may contain anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


class Stop(Event):
    """The event that interrupts a run, for a child that is forked later.

    Setting multiprocessing's own event waits for each waiting process, and so forever if one is
    stopped or was killed. This one is a flag in the kernel.
    """

    def __init__(self) -> None:
        # Dagster requires an instance of multiprocessing's class; its semaphores are not needed.
        self._flag = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ended = False
        #: called in the run's process right before Dagster interrupts it
        self.before_interrupt: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Sets the flag, for good. Dagster calls it in the run's process when the run has ended."""
        self._ended = True
        os.eventfd_write(self._flag, 1)

    def is_set(self) -> bool:
        """Returns whether it was set."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, at most ``timeout`` seconds; returns whether it is.

        Without a timeout, as Dagster waits before it sends SIGINT to the process, the main thread
        is woken from then on, see :func:`can_be_woken`.
        """
        poll = select.poll()
        poll.register(self._flag, select.POLLIN)
        is_set = bool(poll.poll(None if timeout is None else timeout * 1_000))
        if timeout is None:
            if not self._ended:
                with suppress(Exception):
                    self.before_interrupt()
            threading.Thread(target=_wake_main_thread, name="waking", daemon=True).start()
        return is_set

    def close(self) -> None:
        """Closes the flag, in this process."""
        os.close(self._flag)


def can_be_woken() -> None:
    """Lets a stopped run handle SIGINT in any case; to be called by the main thread.

    The kernel may give a signal to another thread, for example if the main one has just been
    continued. Python handles it in the main thread, which a sleep or a read holds until a signal
    interrupts that very thread.
    """
    signal.signal(_WAKING, lambda *_: None)


def _wake_main_thread() -> None:
    main = threading.main_thread()
    while main.is_alive():
        time.sleep(_WAKING_SECONDS)
        signal.pthread_kill(main.ident or 0, _WAKING)
