"""Which processes a demo ends before it goes on: its own, and no others."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from arctic_orchestration.flights.demo_instance import DemoInstance
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

ENDS_LEFTOVERS = """
import sys
from pathlib import Path
from arctic_orchestration.flights.demo_instance import DemoInstance
print(DemoInstance(Path(sys.argv[1])).end_leftovers())
"""
#: Starts the command of its arguments, and ends as it did.
STARTS = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"

Waiting = Callable[[Mapping[str, str]], "subprocess.Popen[bytes]"]


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """Starts a process that does nothing, with more variables in its environment."""
    started: list[subprocess.Popen[bytes]] = []

    def start(variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        program = "print('here', flush=True); import signal; signal.pause()"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_an_orphan_of_the_demo_dies_and_a_reader_of_its_folder_does_not(
    tmp_path: Path, waiting: Waiting
) -> None:
    """One process of this demo, one of another demo, one with the folder as DAGSTER_HOME."""
    demo = DemoInstance(tmp_path / "demo")
    orphan = waiting(demo.environment)
    other = waiting(DemoInstance(tmp_path / "other").environment)
    visitor = waiting({"DAGSTER_HOME": str(demo.home)})
    assert demo.end_leftovers() == 1
    orphan.wait(10)
    assert other.poll() is None
    assert visitor.poll() is None


@pytest.mark.parametrize("inherited", ["DAGSTER_HOME", "ARCTIC_DEMO"])
def test_a_demo_ends_no_ancestor(tmp_path: Path, waiting: Waiting, inherited: str) -> None:
    """A shell with the variable set starts the demo: shell and demo live, the orphan dies."""
    demo = DemoInstance(tmp_path)
    orphan = waiting(demo.environment)
    command = [sys.executable, "-c", ENDS_LEFTOVERS, str(tmp_path)]
    shell = subprocess.Popen(
        [sys.executable, "-c", STARTS, *command],
        env={**os.environ, inherited: str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    try:
        assert orphan.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        output, _ = shell.communicate(timeout=PATIENCE_SECONDS)
    finally:
        shell.kill()
        shell.wait()
    assert (shell.returncode, output) == (0, b"1\n")


def test_a_setting_of_the_user_does_not_reach_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lake and database stay what they are."""
    monkeypatch.setenv("ARCTIC_LAKE", "/elsewhere")
    ours = {
        name: value
        for name, value in DemoInstance(tmp_path).environment.items()
        if name.startswith(("ARCTIC_", "DAGSTER_HOME"))
    }
    assert ours == {"ARCTIC_DEMO": str(tmp_path), "DAGSTER_HOME": str(tmp_path)}
