"""Output of commands that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arctic_orchestration_tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--version", "--help", "schema"])
def test_output_that_cannot_be_written_is_one_message(command: str, unbuffered: str) -> None:
    """As on a full disk. Exit code 2 would say that nothing was changed."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "arctic_orchestration.cli", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    said = "error: standard output: No space left on device; what was changed before stays changed"
    assert " ".join(done.stderr.split()) == said
    assert done.returncode == 1
