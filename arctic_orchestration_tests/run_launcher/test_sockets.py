"""Neither the folder of the sockets nor a socket in it stops runs."""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import dagster as dg
import pytest

from arctic_orchestration.run_launcher import host, host_client, messages
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.run_launcher.hosted_place import HostedPlace, Make


@pytest.fixture
def place(make: Make) -> HostedPlace:
    return make()


def _a_file(path: Path) -> Path:
    path.touch()
    return path


def _open_to_others(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)
    return path


@pytest.fixture
def short() -> Iterator[Path]:
    """A path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "hosts"


@pytest.mark.parametrize("made", [_a_file, _open_to_others], ids=lambda made: made.__name__)
def test_runs_begin_and_end_where_no_folder_can_be_used(
    place: HostedPlace, short: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], Path]
) -> None:
    """The wrapped launcher launches and terminates them, and the reason is in the run's log."""
    monkeypatch.setenv("ARCTIC_RUN_HOSTS", str(made(short)))
    run_id = place.launch(place.create(do="sleep"))
    until(lambda: place.note_of(run_id), "the step has begun")
    assert f"not warm: {short}: expected a folder" in place.messages(run_id)
    assert place.instance.run_launcher.terminate(run_id)
    assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED
    monkeypatch.undo()


def test_a_host_that_is_just_ending_disturbs_no_termination(
    place: HostedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers without its runs."""
    ending = [{"ok": False, "stale": "the run host has just ended"}]
    monkeypatch.setattr(messages, "call_all", lambda *_: iter(ending))
    run_id = place.create()
    assert not place.instance.run_launcher.terminate(run_id)
    assert "Terminate it again" in place.messages(run_id)
    monkeypatch.undo()


@pytest.fixture
def full(short: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a host that accepts nothing, as if it was stopped, with a full queue."""
    monkeypatch.setenv("ARCTIC_RUN_HOSTS", str(short))
    path = messages.folder() / "key-1.sock"
    (path.parent / "key").symlink_to(path.name)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        with suppress(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(path))
        yield path


def test_a_host_that_accepts_nothing_stops_no_launch(full: Path) -> None:
    """Neither a launch nor the next host waits for it."""
    location = host_client.HostedLocation("key", {}, {}, "", "")
    found: list[Path | None] = []

    def launching() -> None:
        found.append(host_client._current(location))
        host._forget_dead("key")
        found.append(full)

    thread = Thread(target=launching, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert found == [None, full]
    assert full.exists(), "it may go on"


def test_a_host_may_take_any_time_to_start(make: Make) -> None:
    """A poll lasts 24 days at most."""
    place = make(start_timeout="30d")
    run = place.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert "not warm" not in place.messages(run.run_id)
