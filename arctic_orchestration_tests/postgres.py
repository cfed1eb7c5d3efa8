"""A real Postgres server for a test session, on a free loopback port, ended by its process id.

``fsync`` is off: a commit then survives the death of any process of the server (its log lies in
the system's page cache), and only a crash of the machine could lose it. ``synchronous_commit``
stays on, so that tests that kill the server may trust what was committed.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2

from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.processes import free_port
from arctic_orchestration_tests.scratch import scratch_directory

_USER = "postgres"
#: bytes: a server has 0.1 GB, and up to 0.5 GB of log
_ROOM = 4 * 1024**3


def find_binaries() -> Path | None:
    """The directory that holds ``initdb`` and ``postgres``, or None when there is none."""
    candidates = []
    on_path = shutil.which("initdb")
    if on_path:
        candidates.append(Path(on_path).resolve().parent)
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        answer = subprocess.run(
            ["pg_config", "--bindir"], capture_output=True, text=True, check=True
        )
        candidates.append(Path(answer.stdout.strip()))
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for directory in candidates:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


class PostgresServer:
    """One server in a directory of its own; every method may be called again and again."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._account = pwd.getpwnam(_USER) if os.geteuid() == 0 else None
        self._home = scratch_directory("postgres", _in_memory())
        if self._account:
            os.chown(self._home, self._account.pw_uid, self._account.pw_gid)
        self._data = self._home / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        subprocess.run(
            [binaries / "initdb", "-D", self._data, "-U", _USER, "-A", "trust", "-E", "UTF8",
             "--no-locale", "--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd=self._home, **self._identity(),
        )  # fmt: skip

    def start(self) -> None:
        """Starts the server and returns when it answers."""
        log = (self._home / "server.log").open("ab")
        self._process = subprocess.Popen(
            [self._binaries / "postgres", "-D", self._data, "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._home}",
             "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200",
             "-c", "shared_buffers=64MB", "-c", "max_wal_size=512MB",
             "-c", "max_prepared_transactions=20", "-c", "autovacuum_naptime=10s"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._home,
            start_new_session=True, preexec_fn=_end_with_the_parent(), **self._identity(),
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                psycopg2.connect(self.dsn("postgres")).close()
                return
            except psycopg2.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    text = (self._home / "server.log").read_text(errors="replace")
                    raise RuntimeError(f"postgres did not start:\n{text[-2000:]}") from None
                time.sleep(0.05)

    def stop(self, *, immediate: bool = False) -> None:
        """Ends the server: cleanly, or as a crash of all its processes would (``immediate``)."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.wait(timeout=PATIENCE_SECONDS)
        self._process = None

    def restart(self, *, immediate: bool = True) -> None:
        """Ends the server and starts it again on the same port."""
        self.stop(immediate=immediate)
        self.start()

    def close(self) -> None:
        """Ends the server and removes its directory."""
        self.stop(immediate=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def url(self, database_name: str, *, user: str = _USER) -> str:
        """The SQLAlchemy URL of a database; the driver is named, as Dagster's storage needs it."""
        return f"postgresql+psycopg2://{user}@127.0.0.1:{self.port}/{database_name}"

    def dsn(self, database_name: str, *, user: str = _USER) -> str:
        """The libpq connection string of a database."""
        return f"host=127.0.0.1 port={self.port} user={user} dbname={database_name}"

    def connect(self, database_name: str, *, user: str = _USER) -> Any:
        """A plain psycopg2 connection; the caller closes it."""
        return psycopg2.connect(self.dsn(database_name, user=user))

    def create_database(self, name: str, *, template: str = "template0") -> str:
        """Creates a database (empty, or a copy of ``template``); returns its URL."""
        # Copying files takes half of the time of the other way, which logs each page.
        self.execute(f'create database "{name}" template "{template}" {self._strategy()}')
        return self.url(name)

    def _strategy(self) -> str:
        # The word is of Postgres 15; those before it knew this way alone.
        version = (self._data / "PG_VERSION").read_text()
        return "strategy file_copy" if int(version) >= 15 else ""

    def drop_database(self, name: str) -> None:
        """Drops a database; whoever is still connected to it is disconnected."""
        self.execute(f'drop database if exists "{name}" with (force)')

    def kill_backend(self, pid: int) -> None:
        """Kills one server process with SIGKILL; Postgres then ends all others and recovers."""
        os.kill(pid, signal.SIGKILL)

    def end_backend(self, pid: int) -> None:
        """Ends a connection as an administrator does; returns when its process has ended."""
        # From Postgres 14 on, the function itself would wait.
        self.execute(f"select pg_terminate_backend({pid})")
        until(lambda: not Path(f"/proc/{pid}").exists(), f"backend {pid} has ended")

    def execute(self, statement: str, database_name: str = "postgres") -> None:
        """Runs one statement in autocommit."""
        connection = self.connect(database_name)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

    def wait_until_it_answers(self) -> None:
        """Returns when connections are taken again, after a backend was killed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.execute("select 1")
                return
            except psycopg2.Error:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _identity(self) -> dict[str, Any]:
        # Postgres refuses to run as root.
        if not self._account:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def running_server() -> Iterator[PostgresServer | None]:
    """A running server, or None when this machine has no Postgres binaries."""
    binaries = find_binaries()
    if binaries is None:
        yield None
        return
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _in_memory() -> str | None:
    """A file system in memory with room for a server; copying a database takes a third there."""
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK) or shutil.disk_usage(place).free < _ROOM:
        return None
    return str(place)


def _end_with_the_parent() -> Any:
    # A test session that is itself killed must not leave a server behind. The kernel ties this
    # to the thread that starts the child, so it is requested in the main thread only.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    pr_set_pdeathsig = 1
    return lambda: libc.prctl(pr_set_pdeathsig, signal.SIGQUIT)
