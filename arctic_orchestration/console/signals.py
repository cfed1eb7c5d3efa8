"""Handles SIGTERM and Ctrl-C in a command that runs until it is stopped."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signal(*answers: Callable[[], None]) -> Iterator[None]:
    """Calls the next answer for each signal, in their order; one more signal kills the process.

    Answers may interrupt the main thread anywhere: they must not wait for it.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    left = list(answers)

    def handle(_number: int, _frame: FrameType | None) -> None:
        answer = left.pop(0)
        if not left:
            for one in _SIGNALS:
                signal.signal(one, signal.SIG_DFL)
        answer()

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was not set by Python, and cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
