"""Waiting for what happens for certain; loads nothing, for measured processes."""

import time
from collections.abc import Callable
from typing import TypeVar

#: The time limit for what takes seconds: more than it takes on a machine ten times slower.
PATIENCE_SECONDS = 300

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Returns what the condition returns as soon as it is true; fails if it never is."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        # Asking costs CPU, which those that are waited for need.
        time.sleep(0.02 if waited < 1 else 0.05 * min(1 + int(waited), 4))
    return found
