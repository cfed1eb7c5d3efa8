"""Ports and ends of the processes of proofs; loads nothing, for measured processes."""

import ctypes
import signal
import socket
import sys


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
