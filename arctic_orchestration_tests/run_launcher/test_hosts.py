"""Runs are executed by children of one process that has loaded the code location."""

import contextlib
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

import dagster as dg
import duckdb
import psutil
import pytest
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher import LaunchRunContext, WorkerStatus

from arctic_orchestration.errors import ConfigurationError, InvalidDefinition
from arctic_orchestration.run_launcher import ArcticRunLauncher, messages
from arctic_orchestration.run_launcher.configuration import LauncherRules
from arctic_orchestration.run_launcher.host import connections
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.run_launcher.hosted_place import HostedPlace, Make, hosted_place

CODE = dedent("""
    import atexit, json, logging, os, signal, subprocess, sys, threading, time, warnings
    import dagster as dg
    from pathlib import Path

    FOLDER = Path(__file__).parent
    VERSION = 1

    def state():
        return {
            "environment": os.environ.get("LEFT_OVER"), "folder": os.getcwd(),
            "signals": [getattr(h, "__qualname__", str(h)) for h in
                        map(signal.getsignal, (signal.SIGTERM, signal.SIGUSR1))],
            "path": "/left/over" in sys.path, "dumps": json.dumps.__name__,
            "filters": len(warnings.filters), "threads": threading.active_count(),
            "recursion": sys.getrecursionlimit(), "umask": os.umask(os.umask(0) or 0),
            "logging": [logging.root.manager.disable, logging.root.level,
                        [type(h).__name__ for h in logging.root.handlers]],
        }

    @dg.op(config_schema={"do": dg.Field(str, default_value="nothing")})
    def step(context):
        note = {"pid": os.getpid(), "parent": os.getppid(), "version": VERSION, **state()}
        part = FOLDER / (context.run_id + ".part")
        part.write_text(json.dumps(note))
        part.rename(FOLDER / context.run_id)
        exec(MISDEEDS.get(context.op_config["do"], "pass"), globals())

    MISDEEDS = {
        "os._exit": "os._exit(0)",
        "sys.exit": "sys.exit(3)",
        "atexit": "atexit.register(lambda: 1 / 0)",
        "environment": "os.environ['LEFT_OVER'] = 'yes'",
        "folder": "os.chdir('/')",
        "signals": "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
                   "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "path": "sys.path.insert(0, '/left/over')",
        "patch": "json.dumps = lambda *a, **k: 'patched'",
        "filters": "warnings.simplefilter('error')",
        "logging": "logging.disable(); logging.root.setLevel(5);"
                   "logging.root.handlers[:] = [logging.NullHandler()] * 3",
        "thread": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "subprocess": "subprocess.Popen(['sleep', '60'])",
        "recursion": "sys.setrecursionlimit(5000)",
        "memory": "x = bytearray(2_000_000_000)",
        "kill": "os.kill(os.getpid(), signal.SIGKILL)",
        "error": "raise ValueError('on purpose')",
        "sleep": "time.sleep(600)",
    }

    @dg.job(executor_def=dg.in_process_executor)
    def work():
        step()

    @dg.job(executor_def=dg.multiprocess_executor)
    def many():
        step()

    defs = dg.Definitions(jobs=[work, many])
""")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedPlace]:
    """Its processes are new interpreters, as they are outside of tests."""
    with hosted_place(tmp_path_factory.mktemp("h"), CODE, interpreters=True) as made:
        yield made


def test_each_run_has_a_process_of_its_own_and_all_one_parent(place: HostedPlace) -> None:
    runs = [place.run() for _ in range(3)]
    notes = [place.note_of(run.run_id) for run in runs]
    (host,) = place.hosts()
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 3
    assert {note["parent"] for note in notes} == {host["pid"]}
    assert len({note["pid"] for note in notes}) == 3


def test_steps_in_processes_of_their_own_find_the_job(place: HostedPlace) -> None:
    run = place.run("many")
    assert run.status is dg.DagsterRunStatus.SUCCESS, place.messages(run.run_id)
    (host,) = place.hosts()
    assert psutil.Process(host["pid"]).pid != place.note_of(run.run_id)["parent"]


@pytest.mark.parametrize(
    ("misdeed", "status"),
    [
        ("os._exit", "FAILURE"),
        ("sys.exit", "FAILURE"),
        ("kill", "FAILURE"),
        ("error", "FAILURE"),
        *((name, "SUCCESS") for name in (
            "atexit", "environment", "folder", "signals", "path", "patch", "filters", "logging",
            "thread", "subprocess", "recursion", "memory",
        )),
    ],
)  # fmt: skip
def test_what_a_run_does_to_its_process_the_next_one_does_not_see(
    place: HostedPlace, misdeed: str, status: str
) -> None:
    before = place.note_of(place.run().run_id)
    assert place.run(do=misdeed).status.value == status
    after = place.note_of(place.run().run_id)
    assert {**after, "pid": 0} == {**before, "pid": 0}


def test_a_run_whose_process_was_killed_fails_with_the_signal(place: HostedPlace) -> None:
    run = place.run(do="kill")
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert "SIGKILL" in place.messages(run.run_id)


def test_a_run_is_terminated(place: HostedPlace) -> None:
    run_id = place.launch(place.create(do="sleep"))
    until(lambda: place.note_of(run_id), "the step has begun")
    assert place.instance.run_launcher.terminate(run_id)
    assert place.ended(run_id).status is dg.DagsterRunStatus.CANCELED
    assert not place.instance.run_launcher.terminate(run_id)


def test_a_run_that_has_ended_before_it_began_executes_nothing(place: HostedPlace) -> None:
    """Run monitoring may have failed it while it was launched."""
    run_id = place.create()
    run = place.instance.get_run_by_id(run_id)
    assert run is not None
    place.instance.report_run_failed(run, "given up")
    launcher = place.instance.run_launcher
    assert isinstance(launcher, ArcticRunLauncher)
    context = LaunchRunContext(run, place.workspace.create_request_context())
    launcher.launch_run(context)
    until(lambda: not place.hosts()[0]["runs"], "the process has ended")
    assert place.status(run_id) is dg.DagsterRunStatus.FAILURE
    assert not place.note_of(run_id)


def test_a_changed_file_is_never_run_with_the_old_modules(make: Make) -> None:
    place = make()
    first = place.note_of(place.run().run_id)
    place.code.write_text(CODE.replace("VERSION = 1", "VERSION = 2"))
    second = place.note_of(place.run().run_id)
    assert (first["version"], second["version"]) == (1, 2)
    assert first["parent"] != second["parent"]


def test_a_file_that_the_code_reads_counts_too(make: Make) -> None:
    reading = "VERSION = (FOLDER / 'v.sql').read_text() if (FOLDER / 'v.sql').exists() else 'none'"
    place = make(CODE.replace("VERSION = 1", reading))
    (place.folder / "v.sql").write_text("one")
    first = place.note_of(place.run().run_id)
    (place.folder / "v.sql").write_text("two")
    second = place.note_of(place.run().run_id)
    assert (first["version"], second["version"]) == ("one", "two")


def test_a_reload_ends_the_host_and_its_runs_go_on(make: Make) -> None:
    place = make()
    sleeping = place.launch(place.create(do="sleep"))
    until(lambda: place.note_of(sleeping), "the step has begun")
    place.reload()
    later = place.note_of(place.run().run_id)
    assert later["parent"] != place.note_of(sleeping)["parent"]
    assert place.status(sleeping) is dg.DagsterRunStatus.STARTED
    assert place.instance.run_launcher.terminate(sleeping)
    assert place.ended(sleeping).status is dg.DagsterRunStatus.CANCELED
    until(lambda: len(place.hosts()) == 1, "the old host has ended")


def test_a_daemon_that_replaces_its_code_server_keeps_the_host(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each minute, as Dagster does for files and modules; unless other definitions were loaded."""
    table = tmp_path / "table"
    table.write_text("one")
    # A child reads it: to the host it is not a file of the code.
    description = "subprocess.check_output(['cat', str(FOLDER / 'table')], text=True)"
    code = CODE.replace("@dg.job(", f"@dg.job(description={description}, ", 1)
    place = make(code)
    monkeypatch.setitem(sys.modules, "dagster._daemon.cli", sys)
    first = place.note_of(place.run().run_id)
    place.reload()
    second = place.note_of(place.run().run_id)
    table.write_text("two")
    place.reload()
    third = place.note_of(place.run().run_id)
    assert first["parent"] == second["parent"] != third["parent"]


def test_the_next_daemon_finds_the_host(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make()
    first = place.note_of(place.run().run_id)
    place.restart()
    monkeypatch.setattr("arctic_orchestration.run_launcher.host_client._LAUNCHER", "another")
    assert place.note_of(place.run().run_id)["parent"] == first["parent"]


def test_a_host_that_was_killed_leaves_its_runs_alone(make: Make) -> None:
    place = make()
    sleeping = place.launch(place.create(do="sleep"))
    process = until(lambda: place.note_of(sleeping), "the step has begun")["pid"]
    (host,) = place.hosts()
    os.kill(host["pid"], signal.SIGKILL)
    launcher = place.instance.run_launcher
    run = place.instance.get_run_by_id(sleeping)
    assert run is not None
    assert launcher.check_run_worker_health(run).status is WorkerStatus.RUNNING
    assert place.run().status is dg.DagsterRunStatus.SUCCESS
    psutil.Process(process).kill()
    until(
        lambda: launcher.check_run_worker_health(run).status is WorkerStatus.FAILED,
        "the process is seen to be dead",
    )


def test_code_that_starts_threads_is_not_forked(make: Make) -> None:
    place = make(CODE + "\nthreading.Thread(target=time.sleep, args=(900,), daemon=True).start()\n")
    run = place.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert "importing its code starts threads" in place.messages(run.run_id)
    assert not place.hosts()


def _open_and_close(folder: Path) -> None:
    before = connections()
    lite, duck, text = (folder / name for name in ("lite", "duck", "text"))
    with (
        contextlib.closing(sqlite3.connect(lite)) as sqlite,
        duckdb.connect(duck) as duck_db,
        contextlib.closing(sqlite3.connect(":memory:")) as memory,
        text.open("w+") as file,
        socket.socket() as inet,
    ):
        for database in (sqlite, duck_db, memory):
            database.execute("CREATE TABLE t (a INTEGER)")
        sqlite.commit()
        file.write("SQLite format")
        file.flush()
        inode = os.readlink(f"/proc/self/fd/{inet.fileno()}")
        assert connections() - before == {str(lite), str(duck), inode}
    assert connections() == before


def test_connections_that_forked_processes_cannot_share_are_named(tmp_path: Path) -> None:
    """In a process of its own: here, what other tests left may be closed at any time."""
    process = forkserver().Process(target=_open_and_close, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_host_that_cannot_be_started_fails_the_run_if_that_is_wanted(make: Make) -> None:
    place = make(CODE + "\nthreading.Thread(target=time.sleep, args=(900,), daemon=True).start()\n",
                 unavailable="fail")  # fmt: skip
    expected = "No run host can execute this run: importing its code starts"
    with pytest.raises(DagsterLaunchFailedError, match=expected):
        place.launch(place.create())


def test_an_idle_host_ends(make: Make) -> None:
    place = make(idle_timeout="1s")
    place.run()
    until(lambda: not place.hosts(), "the host has ended")
    assert not [path for path in messages.folder().iterdir() if path.suffix == ".sock"]
    assert place.run().status is dg.DagsterRunStatus.SUCCESS


@pytest.mark.parametrize(
    ("config", "field", "expected"),
    [
        ({"hosts": "yes"}, "hosts", "true or false"),
        ({"idle_timeout": 5}, "idle_timeout", "a duration such as 90s"),
        ({"idle_timeout": "0s"}, "idle_timeout", "longer than 0s"),
        ({"preload": "pandas"}, "preload", "a list"),
        ({"preload": [""]}, "preload[0]", "text that is not empty"),
        ({"unavailable": "ignore"}, "unavailable", "'wrapped' or 'fail'"),
        ({"spark": {"sessions": -1}}, "spark.sessions", "at least 0"),
        ({"spark": {"sesions": 1}}, "spark.sesions", "no such field"),
        ({"wrapped": {"module": 3}}, "wrapped.module", "text"),
        ({"wrapped": []}, "wrapped", "a mapping"),
    ],
)
def test_a_wrong_field_is_refused_by_its_path(
    config: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        LauncherRules.of_config(config)
    assert f"run_launcher.config.{field}" in str(refused.value)
    assert expected in str(refused.value)


def test_a_folder_whose_path_is_too_long_for_sockets_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARCTIC_RUN_HOSTS", str(tmp_path / ("x" * 80)))
    with pytest.raises(ConfigurationError, match="at most 68 bytes.*ARCTIC_RUN_HOSTS"):
        messages.folder()


def test_a_folder_that_others_may_enter_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("ARCTIC_RUN_HOSTS", folder)
        with pytest.raises(ConfigurationError, match="mode 0700"):
            messages.folder()


def test_a_host_has_the_environment_of_the_code_server(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what ``.env`` beside the code says, and its working directory."""
    code = CODE.replace("VERSION = 1", "VERSION = os.environ.get('OF_THE_FILE')")
    place = make(code, interpreters=True)
    (place.folder / ".env").write_text("OF_THE_FILE=yes\n")
    # The code server begins where whoever starts it is.
    monkeypatch.chdir(place.folder)
    place.restart()
    note = place.note_of(place.run().run_id)
    assert note["folder"] == str(place.folder)
    assert note["version"] == "yes"


def test_a_python_without_this_package_launches_as_before(make: Make, tmp_path: Path) -> None:
    """Another interpreter of a workspace may have Dagster alone; it is not tried for each run."""
    place = make()
    launcher = place.instance.run_launcher
    assert isinstance(launcher, ArcticRunLauncher)
    tried = tmp_path / "tried"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho >> {tried}\nexit 1\n")
    python.chmod(0o755)
    place.location._executable_path = str(python)  # type: ignore[attr-defined]
    runs = [place.run() for _ in range(2)]
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
    expected = f"the run host ended with exit code 1; is this package installed for {python}?"
    assert all(expected in place.messages(run.run_id) for run in runs)
    assert tried.read_text() == "\n"


def test_modules_of_the_same_name_belong_to_their_own_location(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    code = CODE.replace("VERSION = 1", "from settings_of_lake import VERSION")
    with ExitStack() as stack:
        places = []
        for version in ("one", "two"):
            folder = tmp_path_factory.mktemp(version)
            (folder / "settings_of_lake.py").write_text(f"VERSION = {version!r}\n")
            places.append(stack.enter_context(hosted_place(folder, code)))
        notes = [place.note_of(place.run().run_id) for place in (*places, *places)]
    assert [note["version"] for note in notes] == ["one", "two", "one", "two"]
    assert notes[0]["parent"] == notes[2]["parent"] != notes[1]["parent"] == notes[3]["parent"]
