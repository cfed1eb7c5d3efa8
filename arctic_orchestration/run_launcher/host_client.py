"""Finds or starts the run host of a code location."""

import fcntl
import hashlib
import json
import math
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import psutil
from dagster import DagsterInstance, serialize_value

from arctic_orchestration.dagster_internals import (
    GrpcServerCodeLocation,
    definitions_digest,
    in_daemon,
    is_replaced_each_minute,
)
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.run_launcher import messages
from arctic_orchestration.run_launcher.configuration import LauncherRules

#: a running host answers at once; a child needs Dagster's storage to answer
_ANSWER_SECONDS = 60.0
_STATUS_SECONDS = 5.0
#: how long a host that could not be started is not started again
UNFIT_SECONDS = 300.0
_CODE_SECONDS = 3_600.0
_POLL_SECONDS = 0.05
#: the maximum of poll, in milliseconds: 24 days
_LONGEST_POLL = 2**31 - 1
#: how often a host is restarted that a signal ends while it loads: a kill, or no memory
_STARTS = 3
#: Variables that differ between processes of the same environment.
_VOLATILE = re.compile(r"(_|SHLVL|PWD|OLDPWD|INVOCATION_ID|JOURNAL_STREAM|PYTEST_CURRENT_TEST)$")

#: The asking daemon, webserver or command, which knows whether its location was reloaded.
_LAUNCHER = uuid.uuid4().hex

_starting: dict[str, threading.Lock] = defaultdict(threading.Lock)


class HostUnavailable(ArcticError):
    """No run host can execute a run; the text contains the reason."""

    def __init__(self, why: str, *, retry_seconds: float = UNFIT_SECONDS) -> None:
        super().__init__(why)
        #: when it may be retried with the same version of the code server
        self.retry_seconds = retry_seconds


class HostSilent(TimeoutError):
    """A run host exists and does not answer: it was stopped, or hangs. It may resume."""


@dataclass(frozen=True)
class HostedLocation:
    """A code location on this machine, as its run host loads it."""

    key: str
    start: Mapping[str, Any]
    environment: Mapping[str, str]
    folder: str
    server: str
    #: how long code that cannot be hosted is not loaded again
    code_seconds: float = math.inf


def located(
    location: GrpcServerCodeLocation, instance: DagsterInstance, rules: LauncherRules
) -> HostedLocation:
    """Returns what a host of the location needs: its code, and its code server's environment.

    Errors:
        HostUnavailable: the code server is not a process of this user on this machine.
    """
    server = _process_of(location)
    python = location.executable_path or sys.executable
    try:
        environment = _environment(server)
        folder = os.readlink(f"/proc/{server}/cwd")
    except OSError as error:
        raise HostUnavailable(f"its code server cannot be examined: {error}") from error
    start = {
        "location": location.name,
        "instance": serialize_value(instance.get_ref()),
        "repositories": {
            name: serialize_value(cast("Any", pointer))
            for name, pointer in location.repository_code_pointer_dict.items()
            if pointer is not None
        },
        "container_image": location.container_image,
        "container_context": location.container_context,
        "executable_path": python,
        "entry_point": list(location.entry_point or ()),
        "preload": list(rules.preload),
        "idle_seconds": rules.idle_timeout.total_seconds(),
        "spark": {
            "sessions": rules.spark.sessions,
            "idle_seconds": rules.spark.idle_timeout.total_seconds(),
        },
    }
    known = {key: value for key, value in environment.items() if not _VOLATILE.match(key)}
    text = json.dumps([start, known, folder], sort_keys=True)
    key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    # The digest of such a server also stays the same when that code changes.
    seconds = _CODE_SECONDS if is_replaced_each_minute(location) else math.inf
    version = _version_of(location)
    return HostedLocation(key, {**start, "key": key}, environment, folder, version, seconds)


#: of each location: the code server of the last run, and the digest of what it defines
_digests: dict[str, tuple[str, str]] = {}


def _version_of(location: GrpcServerCodeLocation) -> str:
    """Returns what is another text after a reload.

    A code server that is replaced each minute loads the same code again, mostly. What it defines
    differs if it was made from something that has changed, such as a table.
    """
    server: str = location.client.get_server_id()
    if not is_replaced_each_minute(location):
        return server
    if _digests.get(location.name, ("", ""))[0] != server:
        _digests[location.name] = server, definitions_digest(location)
    return _digests[location.name][1]


def launch(
    location: HostedLocation,
    request: dict[str, Any],
    start_seconds: float,
    answered: Callable[[str, dict[str, Any]], None],
) -> dict[str, Any]:
    """Launches a run in a host, and returns its answer; starts the host if there is none.

    Args:
        answered: called with the host's socket and each answer, before the run starts.

    Errors:
        HostUnavailable: there is no host and none can be started. The run was not begun.
        HostSilent: the host does not answer at all. The run may yet begin.
        OSError: the host did not answer. The run may have begun.
    """
    message = {**request, "do": "launch", "launcher": _LAUNCHER, "server": location.server}
    with _starting[location.key]:
        path = _current(location) or _start(location, start_seconds)
    for _ in range(3):
        try:
            answer = messages.call(path, message, _ANSWER_SECONDS, partial(answered, str(path)))
        except messages.NotListening as error:
            answer = {"stale": str(error)}
        except TimeoutError as error:
            if not _answers(path):
                raise HostSilent(f"{path} does not answer") from error
            raise
        if "unavailable" in answer:
            raise HostUnavailable(answer["unavailable"])
        if "stale" not in answer:
            return answer
        with _starting[location.key]:
            path = _current(location, besides=path) or _start(location, start_seconds)
    raise HostUnavailable(f"its code changes faster than it loads: {answer['stale']}")


def _answers(path: Path) -> bool:
    try:
        return bool(messages.call(path, {"do": "status"}, _STATUS_SECONDS)["ok"])
    except OSError:
        return False


def _current(location: HostedLocation, besides: Path | None = None) -> Path | None:
    """Returns the socket of the live host with this code, if it is another one."""
    link = messages.folder() / location.key
    try:
        path = link.parent / os.readlink(link)
        if path == besides:
            return None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # A host that hangs accepts nothing: once its queue is full, connecting would block.
            connection.settimeout(_STATUS_SECONDS)
            connection.connect(str(path))
    except OSError:
        return None
    return path


def _start(location: HostedLocation, seconds: float) -> Path:
    until = time.monotonic() + seconds
    killed = 0
    while True:
        if not _is_locked(location.key):
            answer = _started(location, until)
            if answer["ok"]:
                return Path(answer["socket"])
            killed += "signal" in answer
            again = "signal" in answer and killed < _STARTS
            if not (again or answer.get("other")):
                seconds = location.code_seconds if answer.get("lasting") else UNFIT_SECONDS
                raise HostUnavailable(answer["why"], retry_seconds=seconds)
        # Another daemon is starting one, or an older one is about to exit.
        time.sleep(_POLL_SECONDS)
        if path := _current(location):
            return path
        if time.monotonic() > until:
            raise HostUnavailable(f"another run host does not answer within {seconds:g} s")


def _is_locked(key: str) -> bool:
    """Returns whether a host has or loads the code: a new process would detect that late."""
    try:
        with (messages.folder() / f"{key}.lock").open("rb") as lock:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _started(location: HostedLocation, until: float) -> dict[str, Any]:
    """Starts a process; returns its report when its code is loaded, or cannot be."""
    reading, writing = os.pipe()
    try:
        with _output() as output:
            host = subprocess.Popen(
                [location.start["executable_path"], "-m", f"{__package__}.host"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=location.folder,
                # Its sockets are where this process expects them, regardless of the code server.
                env={**location.environment, "ARCTIC_RUN_HOSTS": str(messages.folder())},
                pass_fds=[writing],
                # Ctrl-C in a terminal must not reach it.
                start_new_session=True,
            )
    except OSError as error:
        os.close(reading)
        raise HostUnavailable(f"a run host cannot be started: {error}") from error
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        assert host.stdin is not None
        try:
            with host.stdin as start:
                start.write(json.dumps({**location.start, "answer": writing}).encode())
        except BrokenPipeError:
            pass
        # Not select, which refuses the descriptors of a process with more than 1,024.
        ready = select.poll()
        ready.register(answers, select.POLLIN)
        if not ready.poll(min(max(0.0, until - time.monotonic()) * 1_000, _LONGEST_POLL)):
            host.kill()
            host.wait()
            return {"ok": False, "why": "its code was not loaded in time (start_timeout)"}
        text = answers.readline()
    if text:
        answer: dict[str, Any] = json.loads(text)
        return answer
    code = host.wait()
    if code < 0:
        name = signal.Signals(-code).name
        return {"ok": False, "why": f"{name} ended the run host while it loaded", "signal": name}
    python = location.start["executable_path"]
    why = f"the run host ended with exit code {code}; is this package installed for {python}?"
    return {"ok": False, "why": why}


@contextmanager
def _output() -> Iterator[IO[Any] | None]:
    """Yields the output of a host and its runs: the daemon's, as with Dagster's launcher.

    A caller may wait for a command until its output is closed, which a host would keep open.
    """
    if in_daemon():
        yield None
        return
    with open(os.devnull, "wb") as nowhere:
        yield nowhere


def _process_of(location: GrpcServerCodeLocation) -> int:
    """Returns the code server's process id."""
    if location.socket is not None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(location.socket)
                peer = connection.getsockopt(
                    socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
                )
        except OSError as error:
            raise HostUnavailable(f"its code server does not answer: {error}") from error
        pid, user, _ = struct.unpack("3i", peer)
        if user != os.getuid():
            raise HostUnavailable("its code server belongs to another user")
        return int(pid)
    if _is_this_machine(location.host):
        for opened in psutil.net_connections("tcp"):
            address: Any = opened.laddr
            listens = opened.status == psutil.CONN_LISTEN and address.port == location.port
            if listens and opened.pid is not None:
                return _python_process(opened.pid)
    raise HostUnavailable("its code server is not a process of this user on this machine")


def _python_process(process: int) -> int:
    """Returns the process, unless another program has the port, as one that forwards it."""
    try:
        program = os.path.basename(os.readlink(f"/proc/{process}/exe"))
    except OSError as error:
        raise HostUnavailable(f"its code server cannot be examined: {error}") from error
    if "py" not in program:
        raise HostUnavailable(f"what listens on its port is no Python, but {program}")
    return process


def _is_this_machine(host: str | None) -> bool:
    """Returns whether a host is an address of this machine, or of this container."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    interfaces = psutil.net_if_addrs().values()
    own = {address.address for interface in interfaces for address in interface}
    return not addresses.isdisjoint(own | {"127.0.0.1", "::1"})


def _environment(process: int) -> dict[str, str]:
    """Returns the environment that a process was started with.

    Errors:
        HostUnavailable: it is overwritten, as by a process that changes its title.
    """
    content = Path(f"/proc/{process}/environ").read_bytes()
    pairs = content.removesuffix(b"\0").split(b"\0")
    if not all(b"=" in pair for pair in pairs):
        raise HostUnavailable(
            "the environment of its code server cannot be read, as after its code has set the "
            "title of the process (setproctitle)"
        )
    return {
        os.fsdecode(name): os.fsdecode(value)
        for name, _, value in (pair.partition(b"=") for pair in pairs)
    }
