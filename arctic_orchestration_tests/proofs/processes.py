"""Ports and ends of the processes of proofs; loads nothing, for measured processes."""

import contextlib
import ctypes
import secrets
import signal
import socket
import sys


def free_port() -> int:
    """A loopback port that is not listened on, of those that the kernel gives to none by itself."""
    while True:
        # Tests that run at once have the same seed, so the system draws the number.
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def end_with_the_parent() -> None:
    """A test session that is itself killed leaves no process behind."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
