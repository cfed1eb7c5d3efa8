"""The ``arctic`` command in a pseudo-terminal."""

import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from fcntl import ioctl

from arctic_orchestration_tests.patience import PATIENCE_SECONDS

_COMMAND = (sys.executable, "-c", "from arctic_orchestration.cli.main import main; main()")


def printed_in_terminal(
    *arguments: str, environment: Mapping[str, str], columns: int = 80, types: bytes = b""
) -> bytes:
    """What a command prints that ends well, run by the console script's own function."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*_COMMAND, *arguments], stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    os.write(leader, types)
    output = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        output += part
    assert process.wait(PATIENCE_SECONDS) == 0
    os.close(leader)
    return output
