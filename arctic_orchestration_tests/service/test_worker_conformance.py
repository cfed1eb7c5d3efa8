"""Workers are held against the protocol: this package's, and the example in TypeScript."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arctic_orchestration_tests.lake.class_archive import OPTIONS
from arctic_orchestration_tests.service.worker_conformance import check_worker

EXAMPLE = Path(__file__).parents[2] / "examples" / "typescript-worker"
_ENDPOINT = ["--server", "{server}", "--token-file", "{token_file}"]


@pytest.fixture(scope="session")
def typescript_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built with what npm installs; without Node or npm a skip."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    place = tmp_path_factory.mktemp("typescript") / "worker"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("node_modules", "dist"))
    for command in (["npm", "ci", "--prefer-offline"], ["npm", "run", "build"]):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode and command[1] == "ci":
            pytest.skip(f"npm cannot install the example: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stdout + done.stderr
    return place / "dist" / "worker.js"


def test_the_python_worker_follows_the_protocol(tmp_path: Path) -> None:
    """``arctic compaction worker --server``, with a Spark of its own."""
    command = [str(Path(sys.executable).with_name("arctic"))]
    kept = (OPTIONS, "JAVA_HOME", "PYTHONDONTWRITEBYTECODE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    check_worker([*command, "compaction", "worker", *_ENDPOINT], tmp_path, environment)


def test_the_typescript_worker_follows_the_protocol(
    tmp_path: Path, typescript_worker: Path
) -> None:
    """Of another language and another engine; its files are published, too."""
    check_worker(["node", str(typescript_worker), *_ENDPOINT], tmp_path)


def test_the_lock_file_names_no_address() -> None:
    """Packages are found by name, at whatever registry npm is configured for."""
    for file in EXAMPLE.glob("*.json"):
        assert "://" not in file.read_text(), file.name
