"""Proof: a run host is after many runs as it was after the first ones.

``ARCTIC_PROOF=full``: 5,000 runs.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import psutil
import pytest

from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import HostedPlace, hosted_place

pytestmark = [pytest.mark.proof, pytest.mark.timeout(10_800)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
RUNS = 5_000 if FULL else 30
#: runs at once
AT_ONCE = 4
CODE = """
import dagster as dg

@dg.op
def step(): ...

@dg.job(executor_def=dg.in_process_executor)
def work():
    step()

defs = dg.Definitions(jobs=[work])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostedPlace]:
    # Of its own: other tests make and remove temporary files meanwhile.
    with tempfile.TemporaryDirectory(prefix="runs") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        with hosted_place(tmp_path, CODE, interpreters=True) as made:
            yield made


def temporary_files() -> set[str]:
    """Names below the temporary folder, with their folders."""
    folder = Path(tempfile.gettempdir())
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def execute(place: HostedPlace, runs: int) -> None:
    """Executes this many runs, a few at a time."""
    running: list[str] = []
    for _ in range(runs):
        running.append(place.launch(place.create()))
        while len(running) == AT_ONCE:
            (first,) = running[:1]
            assert place.ended(first).status is dg.DagsterRunStatus.SUCCESS
            running.pop(0)
    for run_id in running:
        assert place.ended(run_id).status is dg.DagsterRunStatus.SUCCESS


def at_rest(place: HostedPlace, process: psutil.Process) -> tuple[list[str], int, int]:
    """The open files, threads and bytes of memory of a host that has nothing to do.

    That is once its runs have ended and it has closed its connections, the one that requested
    its runs included: the socket that is left is the one on which it listens.
    """
    until(lambda: not place.hosts()[0]["runs"], "all processes have ended")
    until(lambda: sockets(process) == 1, "all connections are closed")
    return sorted(open_files(process)), process.num_threads(), process.memory_info().rss


def sockets(process: psutil.Process) -> int:
    """How many sockets it has open."""
    return sum(name.startswith("socket:") for name in open_files(process))


def open_files(process: psutil.Process) -> list[str]:
    """What each of its descriptors refers to."""
    folder = Path(f"/proc/{process.pid}/fd")
    names = []
    for descriptor in folder.iterdir():
        with suppress(FileNotFoundError):
            names.append(str(descriptor.readlink()))
    return names


def test_a_host_stays_as_it_is(place: HostedPlace) -> None:
    execute(place, 10)
    (host,) = place.hosts()
    process = psutil.Process(host["pid"])
    before = at_rest(place, process)
    files = temporary_files()
    began = time.monotonic()
    execute(place, RUNS)
    after = at_rest(place, process)
    assert place.hosts()[0]["pid"] == host["pid"]
    assert place.hosts()[0]["launched"] == RUNS + 10
    assert after[:2] == before[:2]
    assert after[2] < before[2] * 1.05
    assert temporary_files() <= files
    print(f"{RUNS} runs in {time.monotonic() - began:.0f} s; open files, threads, bytes of memory:")
    print(before, after)
