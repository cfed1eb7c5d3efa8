"""The captured output of a hosted run is copied to its host's, by processes that end with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import dagster as dg
import psutil
import pytest
from dagster._core.execution import compute_logs

from arctic_orchestration.run_launcher import captured_output, host_client
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import hosted_place

#: copies a file to an output; says which process does so
_COPIER = """
import sys, time
from arctic_orchestration.run_launcher import captured_output
with open(sys.argv[2], "ab") as output, captured_output._tail(sys.argv[1], output) as (tail, _):
    print(tail, flush=True)
    time.sleep(600)
"""


def test_what_is_appended_is_copied_and_then_the_process_ends(tmp_path: Path) -> None:
    captured, copy = tmp_path / "captured", tmp_path / "copy"
    captured.write_text("before\n")
    with copy.open("ab") as output, captured_output._tail(str(captured), output) as (tail, _):
        until(lambda: copy.read_text() == "before\n", "the first line is copied")
        with captured.open("a") as more:
            more.write("after\n")
        until(lambda: copy.read_text() == "before\nafter\n", "the second line is copied")
    assert not psutil.pid_exists(tail)


def test_it_ends_when_the_process_of_the_run_is_killed(tmp_path: Path) -> None:
    (tmp_path / "captured").touch()
    run = subprocess.Popen(
        [sys.executable, "-c", _COPIER, "captured", "copy"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    tail = int(run.stdout.readline())
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    until(lambda: not psutil.pid_exists(tail), "the copying process has ended")
    run.stdout.close()


def test_an_output_that_is_no_file_is_left_to_the_process(tmp_path: Path) -> None:
    """As in Dagster: the copying process then writes to its own output."""
    (tmp_path / "captured").touch()
    with captured_output._tail(str(tmp_path / "captured"), object()) as (tail, _):
        assert psutil.pid_exists(tail)


@pytest.mark.parametrize(
    ("tail", "is_replaced"), [("echo 'tail (GNU coreutils) 9.1'", True), ("echo BusyBox", False)]
)
def test_only_the_tail_of_gnu_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tail: str, *, is_replaced: bool
) -> None:
    program = tmp_path / "tail"
    program.write_text(f"#!/bin/sh\n{tail}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    stock = compute_logs.execute_posix_tail
    monkeypatch.setattr(compute_logs, "execute_posix_tail", stock)
    captured_output.copy_cheaply()
    assert (compute_logs.execute_posix_tail is not stock) == is_replaced


def test_without_tail_it_is_dagster_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    stock = compute_logs.execute_posix_tail
    monkeypatch.setattr(compute_logs, "execute_posix_tail", stock)
    captured_output.copy_cheaply()
    assert compute_logs.execute_posix_tail is stock


_CODE = """
import subprocess, sys, time
from pathlib import Path
import dagster as dg
from arctic_orchestration_tests.patience import until

OUTPUT = Path(__file__).parent / "output_of_the_host"

@dg.op
def step(context):
    # In one write, also if Python does not buffer: the outputs are copied by two processes.
    sys.stdout.write("to stdout\\n")
    sys.stdout.flush()
    subprocess.run("echo from a subprocess; echo to stderr >&2", shell=True, check=True)
    texts = ("stdout", "subprocess", "stderr")
    until(lambda: all(text in OUTPUT.read_text() for text in texts), "its output is copied")

@dg.job(executor_def=dg.in_process_executor)
def work():
    step()

defs = dg.Definitions(jobs=[work])
"""


def test_a_hosted_run_has_its_output_captured_and_copied_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's UI shows what was captured; the step itself waits for the copy."""
    output = tmp_path / "output_of_the_host"

    @contextmanager
    def to_file() -> Iterator[IO[bytes]]:
        with output.open("ab") as file:
            yield file

    monkeypatch.setattr(host_client, "_output", to_file)
    with hosted_place(tmp_path, _CODE) as place:
        run = place.run()
        assert run.is_success, place.messages(run.run_id)
        (entry,) = place.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED)
        assert entry.dagster_event is not None
        key = [run.run_id, "compute_logs", entry.dagster_event.logs_captured_data.file_key]
        captured = place.instance.compute_log_manager.get_log_data(key)
    assert captured.stdout == b"to stdout\nfrom a subprocess\n"
    assert b"to stderr\n" in (captured.stderr or b"")
    assert output.read_text().count("to stdout\n") == 1
