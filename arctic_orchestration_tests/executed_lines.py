"""The work of a function in lines of Python, which no machine's speed changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed_lines(work: Callable[[], object]) -> int:
    """Returns how many lines the work executes in this thread, with calls and rounds of loops.

    What runs in C counts as the line that calls it.
    """
    count = 0

    def trace(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
