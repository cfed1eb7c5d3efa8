"""Conditions, ports and ends of the processes of proofs; loads nothing, for measured processes."""

import ctypes
import signal
import socket
import sys
import time
from collections.abc import Callable

#: the first wait between two looks; later ones are longer
_POLL_SECONDS = 0.05


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Returns when the condition holds; fails when it does not within ``seconds``."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        # Asking costs CPU, which those that are waited for need.
        time.sleep(_POLL_SECONDS * min(1 + int(waited), 4))


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_the_parent() -> None:
    """A test session that is itself killed leaves no process behind."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
