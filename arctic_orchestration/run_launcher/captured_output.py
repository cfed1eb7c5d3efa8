"""Copies the captured output of a run to its host's output with fewer processes than Dagster.

Dagster starts a ``tail`` for each of the two outputs, and beside each a Python interpreter that
ends it if the run's process is killed. The ``tail`` of GNU does that itself.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from arctic_orchestration.dagster_internals import replace_tail


def copy_cheaply() -> None:
    """Replaces Dagster's processes in this one and its forks, where ``tail`` is that of GNU."""
    with suppress(OSError):
        version = subprocess.run(["tail", "--version"], capture_output=True, check=False)
        if b"GNU" in version.stdout:
            replace_tail(_tail)


@contextmanager
def _tail(path: str, stream: Any) -> Iterator[tuple[int, None]]:
    """Copies what is appended to the file to the stream, until this process ends."""
    command = ["tail", "-F", "-c", "+0", f"--pid={os.getpid()}", path]
    process = subprocess.Popen(command, stdout=_descriptor(stream))
    try:
        yield process.pid, None
    finally:
        time.sleep(float(os.environ.get("DAGSTER_COMPUTE_LOG_TAIL_WAIT_AFTER_FINISH", "0")))
        # Not SIGTERM: a stopped process would hold up the end of the run.
        process.kill()
        process.wait()


def _descriptor(stream: Any) -> int | None:
    # Code may have replaced sys.stdout by something that is not a file.
    with suppress(AttributeError, OSError):
        return int(stream.fileno())
    return None
