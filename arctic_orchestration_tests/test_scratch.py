"""Directories that end with their session, or when the next one finds it dead."""

import os
import subprocess
import sys
from pathlib import Path

from arctic_orchestration_tests.scratch import scratch_directory


def test_what_a_killed_session_left_is_removed(tmp_path: Path) -> None:
    """And nothing of one that lives, or of another kind."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"kind-{ended.pid}-a", f"other-{ended.pid}-b", f"kind-{os.getppid()}-c"):
        (tmp_path / f"arctic-{name}").mkdir()
        (tmp_path / f"arctic-{name}" / "file").touch()
    made = scratch_directory("kind", str(tmp_path))
    assert made.is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {
        f"arctic-other-{ended.pid}-b",
        f"arctic-kind-{os.getppid()}-c",
        made.name,
    }
