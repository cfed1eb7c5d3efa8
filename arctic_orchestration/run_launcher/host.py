"""A run host: one process that has loaded a code location, and forks a child for each run.

The launcher starts ``python -m arctic_orchestration.run_launcher.host``, which outlives it and is
found again through its socket. Each run has its own process, as with Dagster's launcher.

Forking copies one thread and every open connection, so it is only safe from a process without other
threads or connections. This is ensured as follows:

* The host runs no gRPC, opens no database after it has loaded its code, and starts no thread.
* Code that starts a Python thread, or leaves a socket or a database file open while it is imported,
  cannot be hosted. The host reports this, and its runs go to the wrapped launcher. Native threads
  (OpenBLAS, Arrow) register handlers for forks themselves.
* Another child does what needs a database, such as reporting a run whose process died.
"""

import fcntl
import gc
import json
import multiprocessing
import os
import selectors
import signal
import socket
import stat
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, TextIO

from arctic_orchestration.clock import utc_now
from arctic_orchestration.run_launcher import hosted_run, messages
from arctic_orchestration.run_launcher.loaded_code import LoadedCode
from arctic_orchestration.run_launcher.processes import Stop, began
from arctic_orchestration.run_launcher.spark_pool import SparkPool

#: the time limit for a client's request
_REQUEST_SECONDS = 2.0
#: the pause after a connection that could not be accepted
_RETRY_SECONDS = 0.05
#: how often an idle host checks its clock
_LOOK_SECONDS = 1.0
#: how the files of databases begin; that of DuckDB after a checksum
_SQLITE = b"SQLite format 3\0"
_DUCKDB = b"DUCK"


@dataclass
class _Run:
    process: ForkProcess
    stop: Stop
    request: dict[str, Any]
    began: str = field(default_factory=lambda: utc_now().isoformat())


class RunHost:
    """Serves one socket until nothing is left to do."""

    def __init__(
        self, start: dict[str, Any], code: LoadedCode, loaded: "hosted_run.Loaded"
    ) -> None:
        self._start = start
        self._code = code
        self._loaded = loaded
        self._context = multiprocessing.get_context("fork")
        self._runs: dict[str, _Run] = {}
        self._deaths: list[tuple[dict[str, Any], int]] = []
        self._reporters: list[ForkProcess] = []
        self._servers: dict[str, str] = {}
        self._retired = ""
        self._launched = 0
        self._used_at = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self.path = messages.folder() / f"{start['key']}-{os.getpid()}.sock"
        _forget_dead(start["key"])
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._spark = SparkPool(
            start["spark"], self._context, self._selector, self._close_inherited
        )
        signal.signal(signal.SIGTERM, lambda *_: self._retire("it was requested to end"))
        # A handler of the loaded code would take the exit codes of runs.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def serve(self) -> None:
        """Serves requests; returns when the host is idle for too long, or retired and empty."""
        while not self._is_over():
            for key, _ in self._selector.select(_LOOK_SECONDS):
                key.data()
            self._look()
            self._spark.look()
        self._spark.close()
        self._forget_socket()

    def _look(self) -> None:
        # A child of a run may live on, and keep the pipe open whose end shows the run's.
        for run_id in [one for one, run in self._runs.items() if not run.process.is_alive()]:
            self._ended(run_id)
        self._report_deaths()
        self._reporters = [process for process in self._reporters if process.is_alive()]

    def _is_over(self) -> bool:
        if self._runs or self._deaths or self._reporters:
            self._used_at = time.monotonic()
            return False
        idle = time.monotonic() - self._used_at
        return bool(self._retired) or idle > self._start["idle_seconds"]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # The client has left, or there is no descriptor until a run ends.
            time.sleep(_RETRY_SECONDS)
            return
        connection.settimeout(_REQUEST_SECONDS)
        try:
            request = messages.receive(connection)
            handle = getattr(self, f"_do_{request['do']}")
            handle(connection, request)
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            with suppress(OSError):
                messages.send(connection, {"ok": False, "why": f"{type(error).__name__}: {error}"})
            connection.close()

    def _answer(self, connection: socket.socket, answer: dict[str, Any]) -> None:
        with suppress(OSError), connection:
            messages.send(connection, answer)

    def _do_launch(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """Forks a child for the run; the child answers when it has found the run's record."""
        stale = self._stale(request)
        if stale:
            self._retire(stale)
            self._answer(connection, {"ok": False, "stale": stale})
            return
        run_id = request["run_id"]
        if run_id in self._runs:
            # Another daemon launched it again: this process executes it.
            self._answer(connection, {"ok": True, **self._process(self._runs[run_id])})
            return
        try:
            stop, process = self._fork(connection, request)
        except OSError as error:
            why = f"its run host cannot start a process: {error}"
            self._answer(connection, {"ok": False, "unavailable": why})
            return
        connection.close()
        self._launched += 1
        self._runs[run_id] = _Run(process, stop, request)
        self._selector.register(process.sentinel, selectors.EVENT_READ, lambda: self._ended(run_id))

    def _fork(self, connection: socket.socket, request: dict[str, Any]) -> tuple[Stop, ForkProcess]:
        stop = Stop()
        process = self._context.Process(
            target=self._in_child,
            args=(connection, request, stop),
            name=f"run {request['run_id']}",
        )
        try:
            process.start()
        except OSError:
            stop.close()
            raise
        return stop, process

    def _process(self, run: _Run) -> dict[str, Any]:
        assert run.process.pid is not None
        return {"pid": run.process.pid, "began": began(run.process.pid)}

    def _in_child(self, connection: socket.socket, request: dict[str, Any], stop: Stop) -> None:
        self._close_inherited()
        hosted_run.execute(self._loaded, connection, request, stop, str(self.path))

    def _close_inherited(self) -> None:
        """In a child: closes the host's resources."""
        for key in list(self._selector.get_map().values()):
            descriptor = key.fd
            with suppress(OSError):
                os.close(descriptor)
        self._listener.detach()
        self._selector.close()
        self._spark.let_go()
        os.close(self._start["lock"])
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _ended(self, run_id: str) -> None:
        run = self._runs.pop(run_id)
        self._selector.unregister(run.process.sentinel)
        run.process.join()
        code = run.process.exitcode or 0
        with suppress(ValueError):
            # Raised if another part of this process has taken the exit code.
            run.process.close()
        run.stop.close()
        clean = code == hosted_run.ENDED
        self._spark.released(run_id, clean)
        if not clean:
            self._deaths.append((run.request, code))

    def _report_deaths(self) -> None:
        while self._deaths:
            reporter = self._context.Process(
                target=self._report_in_child, args=self._deaths[0], name="report of a death"
            )
            try:
                reporter.start()
            except OSError:
                # No process can be started at the moment; this is retried.
                return
            del self._deaths[0]
            self._reporters.append(reporter)

    def _report_in_child(self, request: dict[str, Any], exit_code: int) -> None:
        self._close_inherited()
        hosted_run.report_death(request, exit_code)

    def _do_cancel(self, connection: socket.socket, request: dict[str, Any]) -> None:
        run = self._runs.get(request["run_id"])
        if run is not None:
            run.stop.set()
        self._answer(connection, {"ok": run is not None})

    def _do_retire(self, connection: socket.socket, request: dict[str, Any]) -> None:
        self._retire(request.get("why") or "it was requested to end")
        self._answer(connection, {"ok": True})

    def _do_status(self, connection: socket.socket, _request: dict[str, Any]) -> None:
        runs = {
            run_id: {"pid": run.process.pid, "began": run.began}
            for run_id, run in self._runs.items()
        }
        self._answer(
            connection,
            {
                "ok": True,
                "pid": os.getpid(),
                "location": self._start["location"],
                "runs": runs,
                "launched": self._launched,
                "retired": self._retired,
                "spark": self._spark.status(),
            },
        )

    def _do_spark(self, connection: socket.socket, request: dict[str, Any]) -> None:
        if request["run_id"] in self._runs:
            self._spark.lend(connection, request["run_id"], request["properties"])
        else:
            self._answer(connection, {"ok": False, "why": "no such run"})

    def _stale(self, request: dict[str, Any]) -> str:
        """Returns the reason why this process must not execute the run, if any."""
        if self._retired:
            return self._retired
        # A code server has a new id each time it loads its code. The server of another daemon may
        # still have the same code: the files that were read decide.
        before = self._servers.setdefault(request["launcher"], request["server"])
        if before != request["server"]:
            return "the code location was reloaded"
        changed = self._code.changed()
        return f"{changed} has changed" if changed else ""

    def _retire(self, why: str) -> None:
        """Stops accepting runs, so that another host may begin. Present runs go on."""
        if self._retired:
            return
        self._retired = why
        fcntl.lockf(self._start["lock"], fcntl.LOCK_UN)

    def _forget_socket(self) -> None:
        link = messages.folder() / self._start["key"]
        with suppress(OSError):
            if os.readlink(link) == self.path.name:
                link.unlink()
        self.path.unlink(missing_ok=True)
        # Clients that have connected meanwhile are refused.
        self._listener.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                self._answer(connection, {"ok": False, "stale": "the run host has just ended"})


def main() -> None:
    """Reads what to load from standard input, loads it, and serves."""
    start: dict[str, Any] = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Processes started during imports do not keep the launcher waiting.
    os.set_inheritable(start["answer"], False)
    answer = os.fdopen(start["answer"], "w")
    lock = _lock(start["key"])
    if lock is None:
        _send_answer(answer, {"ok": False, "other": True, "why": "another run host has this code"})
        return
    start["lock"] = lock
    host = _loaded_host(start, answer)
    if host is None:
        # Threads of its code would keep this process, and the lock, forever.
        answer.close()
        os._exit(1)
    link = messages.folder() / start["key"]
    temporary = link.with_name(f"{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(host.path.name)
    temporary.rename(link)
    _send_answer(answer, {"ok": True, "socket": str(host.path)})
    answer.close()
    # Reading loaded objects must not copy their memory in each child.
    gc.collect()
    gc.freeze()
    host.serve()


def _send_answer(answer: TextIO, what: dict[str, Any]) -> None:
    answer.write(json.dumps(what) + "\n")
    answer.flush()


def _loaded_host(start: dict[str, Any], answer: TextIO) -> RunHost | None:
    code = LoadedCode()
    before = connections()
    try:
        with code.recording():
            loaded = hosted_run.load(start)
    except BaseException as error:
        why = f"its code does not load: {type(error).__name__}: {error}"
        _send_answer(answer, {"ok": False, "why": why})
        return None
    threads = [
        thread.name for thread in threading.enumerate() if thread.ident != threading.get_ident()
    ]
    left = sorted(connections() - before)
    if threads or left:
        what = f"starts threads ({', '.join(threads)})" if threads else f"leaves open {left[0]}"
        why = f"importing its code {what}, which forked processes cannot share"
        _send_answer(answer, {"ok": False, "lasting": True, "why": why})
        return None
    return RunHost(start, code, loaded)


def _lock(key: str) -> int | None:
    descriptor = os.open(messages.folder() / f"{key}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Not flock: a process that the loaded code forks would share it, and may live for ever.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _forget_dead(key: str) -> None:
    """Removes the sockets of hosts that were killed; the caller has the lock."""
    for path in messages.folder().glob(f"{key}-*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # One that hangs, with a full queue, would block this one.
            connection.settimeout(_REQUEST_SECONDS)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue


def connections() -> set[str]:
    """Returns the sockets and the files of SQLite and DuckDB that this process has open.

    A file that its connection has not read or written yet may be missing.
    """
    names = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(descriptor)
            if name.startswith("socket:") or _is_database(int(descriptor.name)):
                names.add(name)
    return names


def _is_database(descriptor: int) -> bool:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return False
    # Not through another descriptor: closing that one would release the locks of SQLite.
    with suppress(OSError):
        head = os.pread(descriptor, 16, 0)
        return head == _SQLITE or head[8:12] == _DUCKDB
    return False


if __name__ == "__main__":
    main()
