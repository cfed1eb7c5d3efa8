"""Directories of a test session that end with it, or when the next one finds it dead."""

import os
import shutil
import tempfile
from pathlib import Path

import psutil


def scratch_directory(kind: str, place: str | None = None) -> Path:
    """Makes one, in the directory for temporary files or in ``place``.

    Removes those of this kind whose session was killed before it could do it.
    """
    parent = Path(place or tempfile.gettempdir())
    for left in parent.glob(f"arctic-{kind}-*-*"):
        owner = left.name.split("-")[2]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"arctic-{kind}-{os.getpid()}-", dir=parent))
