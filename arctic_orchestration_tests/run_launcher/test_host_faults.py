"""What goes wrong around a run host neither loses a run nor stops those beside it."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkContext
from pathlib import Path
from selectors import DefaultSelector
from typing import Any
from unittest.mock import create_autospec

import dagster as dg
import psutil
import pytest
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher import WorkerStatus

from arctic_orchestration.run_launcher import ArcticRunLauncher, host_client, messages
from arctic_orchestration.run_launcher.launcher import HOST_TAG
from arctic_orchestration.run_launcher.processes import began
from arctic_orchestration.run_launcher.spark_pool import SparkPool
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import HostedPlace, Make, hosted_place
from arctic_orchestration_tests.run_launcher.test_hosts import CODE


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedPlace]:
    forking = (
        '"fork": "child = os.fork(); child or time.sleep(600);'
        " (FOLDER / 'forked').write_text(str(child)); os.kill(os.getpid(), signal.SIGKILL)\","
        '"masked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); time.sleep(600)",'
    )
    code = CODE.replace("MISDEEDS = {", "MISDEEDS = {\n    " + forking)
    with hosted_place(tmp_path_factory.mktemp("f"), code) as made:
        yield made


def sleeping(place: HostedPlace, do: str = "sleep") -> tuple[dg.DagsterRun, int]:
    """A run that is in its step, and its process."""
    run_id = place.launch(place.create(do=do))
    process = until(lambda: place.note_of(run_id), "the step has begun")["pid"]
    run = place.instance.get_run_by_id(run_id)
    assert run is not None
    return run, process


def launcher_of(place: HostedPlace) -> ArcticRunLauncher:
    launcher = place.instance.run_launcher
    assert isinstance(launcher, ArcticRunLauncher)
    return launcher


def test_terminating_a_stopped_process_does_not_stop_its_host(place: HostedPlace) -> None:
    """A semaphore would have the host wait until the process takes note."""
    run, process = sleeping(place)
    os.kill(process, signal.SIGSTOP)
    try:
        assert launcher_of(place).terminate(run.run_id)
        assert len(place.hosts()) == 1
        assert place.run().status is dg.DagsterRunStatus.SUCCESS
    finally:
        os.kill(process, signal.SIGCONT)
    assert place.ended(run.run_id).status is dg.DagsterRunStatus.CANCELED


def test_an_interrupt_that_another_thread_gets_ends_a_sleep(place: HostedPlace) -> None:
    """As it may after SIGCONT; here the main thread refuses it. Nothing else would wake it."""
    run, _ = sleeping(place, "masked")
    assert launcher_of(place).terminate(run.run_id)
    assert place.ended(run.run_id).status is dg.DagsterRunStatus.CANCELED


def test_the_end_of_a_process_is_noticed_that_leaves_a_forked_child(place: HostedPlace) -> None:
    """The child keeps the pipe open whose end would show it."""
    run = place.run(do="fork")
    os.kill(int((place.folder / "forked").read_text()), signal.SIGKILL)
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert "SIGKILL" in place.messages(run.run_id)


def test_a_run_is_terminated_whose_host_is_gone(make: Make) -> None:
    place = make()
    run, _ = sleeping(place)
    (host,) = place.hosts()
    os.kill(host["pid"], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(host["pid"])] if psutil.pid_exists(host["pid"]) else [])
    assert launcher_of(place).terminate(run.run_id)
    assert place.ended(run.run_id).status is dg.DagsterRunStatus.CANCELED


def test_a_command_retires_hosts_and_their_runs_go_on(make: Make) -> None:
    place = make()
    run, _ = sleeping(place)
    command = [sys.executable, "-m", "arctic_orchestration.run_launcher.retire"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "1 run host will end; runs go on\n"
    after = place.run()
    assert len({place.note_of(one.run_id)["parent"] for one in (run, after)}) == 2
    assert place.status(run.run_id) is dg.DagsterRunStatus.STARTED
    assert launcher_of(place).terminate(run.run_id)
    assert place.ended(run.run_id).status is dg.DagsterRunStatus.CANCELED


def test_the_health_of_a_run_does_not_depend_on_the_clock(
    place: HostedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment of the boot, and so of a process's creation, moves when the clock is set."""
    run, _ = sleeping(place)
    boot_time = psutil.boot_time() + 5
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time)
    assert launcher_of(place).check_run_worker_health(run).status is WorkerStatus.RUNNING
    assert launcher_of(place).terminate(run.run_id)
    place.ended(run.run_id)


def test_a_process_that_only_waits_to_be_buried_has_ended(place: HostedPlace) -> None:
    """As in a container whose first process takes no note of orphans."""
    run, process = sleeping(place)
    (host,) = place.hosts()
    os.kill(host["pid"], signal.SIGSTOP)
    try:
        os.kill(process, signal.SIGKILL)
        until(lambda: psutil.Process(process).status() == psutil.STATUS_ZOMBIE, "it has ended")
        assert launcher_of(place).check_run_worker_health(run).status is WorkerStatus.FAILED
    finally:
        os.kill(host["pid"], signal.SIGCONT)
    assert place.ended(run.run_id).status is dg.DagsterRunStatus.FAILURE


def test_a_retry_is_not_judged_by_the_process_of_the_run_before(place: HostedPlace) -> None:
    """Dagster copies the tags of a run to its retry, which the wrapped launcher may launch."""
    before = place.run()
    assert json.loads(before.tags[HOST_TAG])["pid"]
    retry_id = place.create(tags={HOST_TAG: before.tags[HOST_TAG]})
    retry = place.instance.get_run_by_id(retry_id)
    assert retry is not None
    assert launcher_of(place).check_run_worker_health(retry).status is WorkerStatus.RUNNING


def test_a_process_that_was_dead_when_it_was_tagged_has_ended(place: HostedPlace) -> None:
    """Run monitoring launches a run again before its host has noticed that its process is dead."""
    run_id = place.create()
    run = place.run()
    tag = json.loads(run.tags[HOST_TAG]) | {"began": None, "run": run_id}
    place.instance.add_run_tags(run_id, {HOST_TAG: json.dumps(tag)})
    again = place.instance.get_run_by_id(run_id)
    assert again is not None
    assert launcher_of(place).check_run_worker_health(again).status is WorkerStatus.FAILED
    assert not launcher_of(place).terminate(run_id)


def test_a_run_that_cannot_be_tagged_any_more_is_not_called_failed(
    place: HostedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It executes; the database may be away for a moment."""

    def away(run_id: str, tags: object) -> None:
        raise ConnectionError("the database is away")

    run_id = place.create(do="sleep")
    with monkeypatch.context() as broken:
        broken.setattr(place.instance, "add_run_tags", away)
        place.launch(run_id)
    until(lambda: place.note_of(run_id), "the step has begun")
    assert place.status(run_id) is dg.DagsterRunStatus.STARTED
    before: list[dg.DagsterRunStatus] = []
    call_all = messages.call_all

    def noting(request: dict[str, Any], timeout: float) -> Iterator[dict[str, Any]]:
        if request["do"] == "cancel":
            before.append(place.status(run_id))
        return call_all(request, timeout)

    monkeypatch.setattr(messages, "call_all", noting)
    assert launcher_of(place).terminate(run_id)
    assert before == [dg.DagsterRunStatus.CANCELING], "else it may read that nobody canceled it"
    assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED


def test_a_code_server_with_another_temporary_folder_is_served(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host has its socket where the daemon looks for it."""
    place = make(start_timeout="20s")
    with monkeypatch.context() as other:
        other.setenv("ARCTIC_RUN_HOSTS", f"/tmp/x-{os.getpid()}")
        place.restart()
    runs = [place.run() for _ in range(2)]
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
    assert len({place.note_of(run.run_id)["parent"] for run in runs}) == 1
    assert place.hosts()


def test_a_run_that_its_host_cannot_fork_is_launched_otherwise(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has no descriptor or process left; what it runs goes on."""
    place = make(interpreters=True)
    first, _ = sleeping(place)
    (host,) = place.hosts()
    (used,) = {len(os.listdir(f"/proc/{host['pid']}/fd"))}
    soft, hard = resource.prlimit(host["pid"], resource.RLIMIT_NOFILE)
    # One for the client's connection.
    resource.prlimit(host["pid"], resource.RLIMIT_NOFILE, (used + 1, hard))
    run = place.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert "its run host cannot start a process: [Errno 24]" in place.messages(run.run_id)
    resource.prlimit(host["pid"], resource.RLIMIT_NOFILE, (soft, hard))
    assert launcher_of(place).terminate(first.run_id)
    assert place.ended(first.run_id).status is dg.DagsterRunStatus.CANCELED


def test_a_code_server_that_is_replaced_while_a_host_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Dagster's daemon replaces its own each minute: the run goes to the new one."""
    place = make()

    def wait_too_long(*_: object) -> None:
        before = host_client._process_of(place.location)  # type: ignore[arg-type]
        place.reload()
        assert host_client._process_of(place.location) != before  # type: ignore[arg-type]
        os.kill(before, signal.SIGKILL)
        until(lambda: began(before) is None, "the former code server has ended")
        raise host_client.HostUnavailable("its code was not loaded in time")

    monkeypatch.setattr(host_client, "launch", wait_too_long)
    run = place.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert "not warm: its code was not loaded in time" in place.messages(run.run_id)


def test_a_socket_that_a_killed_host_left_is_no_hindrance(make: Make) -> None:
    place = make()
    place.run()
    (host,) = place.hosts()
    (path,) = messages.folder().glob("*.sock")
    os.kill(host["pid"], signal.SIGKILL)
    until(lambda: not place.hosts(), "the host has ended")
    place.run()
    assert not path.exists()


@pytest.mark.parametrize(("kills", "starts"), [(2, 3), (9, 3)])
def test_a_host_that_is_killed_while_it_loads_is_started_again(
    make: Make, tmp_path: Path, kills: int, starts: int
) -> None:
    """One that is killed each time is given up for a while: its runs begin as before."""
    place = make()
    tried = tmp_path / "tried"
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\necho >> {tried}\n"
        f'[ $(wc -l < {tried}) -gt {kills} ] || kill -KILL $$\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    place.location._executable_path = str(python)  # type: ignore[attr-defined]
    runs = [place.run() for _ in range(2)]
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
    cold = "not warm: SIGKILL ended the run host while it loaded"
    assert [cold in place.messages(run.run_id) for run in runs] == [kills == 9] * 2
    assert tried.read_text() == "\n" * starts


_LOCKING = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
input()
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A file that another process has locked."""
    command = [sys.executable, "-c", _LOCKING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def test_a_host_that_another_one_starts_is_waited_for_without_trying(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interpreters that start only to learn of the lock would take what it needs to load."""
    place = make(start_timeout="1s")
    tried = tmp_path / "tried"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho >> {tried}\nexit 1\n")
    python.chmod(0o755)
    place.location._executable_path = str(python)  # type: ignore[attr-defined]
    original = host_client._start

    def start_while_another_does(location: host_client.HostedLocation, seconds: float) -> Path:
        with locked(messages.folder() / f"{location.key}.lock"):
            return original(location, seconds)

    monkeypatch.setattr(host_client, "_start", start_while_another_does)
    run = place.run()
    assert "another run host does not answer within 1 s" in place.messages(run.run_id)
    assert not tried.exists()


def test_a_host_that_was_stopped_holds_up_one_launch_and_not_the_next(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make()
    place.run()
    (host,) = place.hosts()
    monkeypatch.setattr(host_client, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(host_client, "_STATUS_SECONDS", 0.5)
    os.kill(host["pid"], signal.SIGSTOP)
    try:
        with pytest.raises(DagsterLaunchFailedError, match="does not answer"):
            place.launch(place.create())
        run = place.run()
        assert run.status is dg.DagsterRunStatus.SUCCESS
        assert "its run host does not answer" in place.messages(run.run_id)
    finally:
        os.kill(host["pid"], signal.SIGCONT)


def test_a_message_that_is_no_request_ends_no_host(make: Make) -> None:
    """It is answered with what is wrong."""
    place = make()
    place.run()
    odd: list[Any] = [[], 5, {"do": 5}, {"do": "launch", "server": []}]
    for message in odd:
        assert [answer["ok"] for answer in messages.call_all(message, 10)] == [False]
    assert len(place.hosts()) == 1


@pytest.mark.parametrize("ends", ["before it is sent", "before it is read", "after it is read"])
def test_a_host_that_ends_before_it_has_the_request_has_not_begun_the_run(
    ends: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So the run may be given to another host, and need not fail."""
    send = messages.send
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
        host.bind(str(tmp_path / "s"))
        host.listen()

        def send_to_one_that_ends(connection: socket.socket, message: dict[str, Any]) -> None:
            accepted, _ = host.accept()
            with accepted:
                if ends == "before it is sent":
                    accepted.close()
                send(connection, message)
                if ends == "after it is read":
                    messages.receive(accepted)

        monkeypatch.setattr(messages, "send", send_to_one_that_ends)
        read = ends == "after it is read"
        expected = "the connection ended before the message did" if read else "/s: "
        with pytest.raises(OSError, match=expected) as raised:
            messages.call(tmp_path / "s", {"do": "launch"}, 5)
    assert isinstance(raised.value, messages.NotListening) is not read


def test_a_jvm_that_ends_and_is_ended_at_once_ends_once() -> None:
    """Both may be found in one look: its run has died, and its keeper's pipe is closed."""
    selector = DefaultSelector()
    context = create_autospec(ForkContext, instance=True)
    pool = SparkPool({"sessions": 1, "idle_seconds": 9}, context, selector, lambda: None)
    ours, _theirs = socket.socketpair()
    pool.lend(ours, "a run", {})
    ((key, _),) = selector.select(5)
    pool.close()
    key.data()
    assert pool.status() == []


def test_a_host_starts_without_spark() -> None:
    """The package installs without the extra `spark`."""
    program = (
        "import sys; sys.modules['py4j'] = sys.modules['pyspark'] = None; "
        "from arctic_orchestration.run_launcher import host, hosted_run; "
        "print(hosted_run.HAS_SPARK, 'dagster' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False True\n"
