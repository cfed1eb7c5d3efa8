"""Code that forks, starts threads or changes its process while it is imported, and its host."""

import importlib
import os
import py_compile
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import psutil
import pytest

from arctic_orchestration.run_launcher import host_client, launcher
from arctic_orchestration.run_launcher.loaded_code import LoadedCode
from arctic_orchestration.run_launcher.processes import began
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import Make
from arctic_orchestration_tests.run_launcher.test_hosts import CODE


def test_code_that_leaves_a_thread_running_leaves_no_process(make: Make) -> None:
    place = make(CODE + "\nthreading.Thread(target=time.sleep, args=(60,)).start()\n",
                 interpreters=True, start_timeout="60s")  # fmt: skip
    before = _host_processes()
    run = place.run()
    assert "importing its code starts threads" in place.messages(run.run_id)
    until(lambda: _host_processes() <= before, "the process has ended", 20)


def test_code_that_was_mended_is_hosted_though_it_defines_the_same(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an hour, where the daemon replaces its code servers each minute."""
    monkeypatch.setattr(host_client, "is_replaced_each_minute", lambda _: True)
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(launcher, "time", clock)
    place = make(CODE + "\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n")
    refusal = "importing its code starts threads"
    assert refusal in place.messages(place.run().run_id)
    place.code.write_text(CODE)
    place.reload()
    assert refusal in place.messages(place.run().run_id), "not loaded again for each run"
    passed[0] = 3_600
    assert "not warm" not in place.messages(place.run().run_id)


def _host_processes() -> set[int]:
    """Processes that this one has started as hosts."""
    found = set()
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            if "arctic_orchestration.run_launcher.host" in process.cmdline():
                found.add(process.pid)
    return found


def test_a_process_started_by_the_code_does_not_hold_up_the_launch(make: Make) -> None:
    place = make(CODE + "\nos.system(f'sleep 60 & echo $! > {FOLDER}/of-{os.getpid()}')\n")
    run = place.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    (host,) = place.hosts()
    assert place.note_of(run.run_id)["parent"] == host["pid"]
    sleeper = int((place.folder / f"of-{host['pid']}").read_text())
    assert began(sleeper) is not None
    os.kill(sleeper, signal.SIGKILL)


def test_a_process_forked_by_the_code_does_not_keep_the_host_s_lock(make: Make) -> None:
    """It lives on when the host is killed, as one that multiprocessing starts."""
    forking = "\nif not (forked := os.fork()):\n    time.sleep(600)\n    os._exit(0)\n"
    place = make(f"{CODE}{forking}(FOLDER / f'of-{{os.getpid()}}').write_text(str(forked))\n")
    forked = []
    for _ in range(2):
        run = place.run()
        (host,) = place.hosts()
        assert place.note_of(run.run_id)["parent"] == host["pid"], place.messages(run.run_id)
        forked.append(int((place.folder / f"of-{host['pid']}").read_text()))
        os.kill(host["pid"], signal.SIGKILL)
        until(lambda: not place.hosts(), "the host has ended")
        assert began(forked[-1]) is not None
    for file in place.folder.glob("of-*"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "handler",
    ["signal.SIG_IGN", "lambda *_: suppressed(lambda: os.waitpid(-1, os.WNOHANG))"],
    ids=["ignored", "reaping"],
)
def test_code_that_handles_the_end_of_children_leaves_the_host_alive(
    make: Make, handler: str
) -> None:
    place = make(
        f"""{CODE}
def suppressed(call):
    try:
        call()
    except OSError:
        pass
signal.signal(signal.SIGCHLD, {handler})
"""
    )
    runs = [place.run() for _ in range(3)]
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 3
    assert len({place.note_of(run.run_id)["parent"] for run in runs}) == 1
    assert len(place.hosts()) == 1


@pytest.mark.parametrize(
    "content", [b"\0" * 243, b"title\0", b"A=1\0\0\0", b"tail of a=title\0\0\0", b""]
)
def test_an_environment_that_is_overwritten_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Setting a process's title leaves zeros, or the rest of a long title."""
    monkeypatch.setattr(Path, "read_bytes", lambda _: content)
    with pytest.raises(host_client.HostUnavailable, match="environment of its code server"):
        host_client._environment(1)


def test_a_code_server_that_hides_its_environment_has_no_host(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs have all of it."""
    place = make(interpreters=True)
    original = Path.read_bytes
    with monkeypatch.context() as hidden:
        hidden.setattr(
            Path,
            "read_bytes",
            lambda path: b"\0" * 243 if path.name == "environ" else original(path),
        )
        run_id = place.launch(place.create())
    assert place.ended(run_id).status is dg.DagsterRunStatus.SUCCESS
    assert "the environment of its code server cannot be read" in place.messages(run_id)
    assert not place.hosts()


def test_a_module_that_changes_while_the_rest_is_loaded_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was compiled before, so its source is not opened."""
    module = tmp_path / "edited_while_loading.py"
    module.write_text("VERSION = 1\n")
    py_compile.compile(str(module))
    monkeypatch.syspath_prepend(tmp_path)
    code = LoadedCode()
    with code.recording():
        assert importlib.import_module(module.stem).VERSION == 1
        module.write_text("VERSION = 22\n")
    assert code.changed() == str(module)


def test_a_module_that_is_put_into_a_folder_listed_before_is_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "listed_before.py").touch()
    importlib.import_module("listed_before")
    code = LoadedCode()
    with code.recording(), pytest.raises(ModuleNotFoundError):
        importlib.import_module("optional_settings")
    assert code.changed() is None
    (tmp_path / "optional_settings.py").touch()
    assert code.changed() == str(tmp_path)
