"""What SIGTERM and Ctrl-C do to a command that goes on until it is told to end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signal(*answers: Callable[[], None]) -> Iterator[None]:
    """Calls an answer for each signal that comes, in their order; the next one kills the process.

    Answers are called in the middle of anything that the main thread does: they must not wait
    for it.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    left = list(answers)

    def told(_number: int, _frame: FrameType | None) -> None:
        answer = left.pop(0)
        if not left:
            for one in _SIGNALS:
                signal.signal(one, signal.SIG_DFL)
        answer()

    for number in _SIGNALS:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was not set by Python, and cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
