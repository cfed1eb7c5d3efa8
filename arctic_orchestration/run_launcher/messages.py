"""The protocol between the launcher and a run host: one JSON line each way over a Unix socket.

Requests name their action in ``do``: ``launch``, ``cancel``, ``status``, ``retire``, ``spark``.
Answers have ``ok``, and ``why`` where it is false. The folder of the sockets belongs to the user
alone, so every client is the user.
"""

import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from arctic_orchestration.errors import ConfigurationError

_LONGEST = 16_000_000
#: A Unix socket's path has at most 107 bytes; 24 of its name are a key, 8 a process id.
_LONGEST_FOLDER = 107 - len("/") - 24 - len("-") - 8 - len(".sock")


def folder() -> Path:
    """Returns the folder of the sockets, creating it if missing; only the user can enter it.

    It is not in ``DAGSTER_HOME``: the path of a Unix socket has at most 107 characters.

    Errors:
        ConfigurationError: it belongs to another user, others may enter it, its path is long, or
            it cannot be created.
    """
    path = Path(
        os.environ.get("ARCTIC_RUN_HOSTS") or f"{tempfile.gettempdir()}/arctic-{os.getuid()}"
    ).absolute()
    if len(os.fsencode(path)) > _LONGEST_FOLDER:
        raise ConfigurationError(
            f"{path}: expected a path of at most {_LONGEST_FOLDER} bytes, for the sockets of run "
            "hosts; set ARCTIC_RUN_HOSTS to a shorter one"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: expected a folder for the sockets of run hosts: {error.strerror}; set "
            "ARCTIC_RUN_HOSTS to one that can be created"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{path}: expected a folder of this user with mode 0700, for the sockets of run hosts"
        )
    return path


class NotListening(OSError):
    """No host listens at the socket; none has the request."""


def call(
    path: str | Path,
    request: dict[str, Any],
    timeout: float,
    answered: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Sends a request and waits for its answer, at most ``timeout`` seconds.

    Args:
        answered: called with the answer while the connection is open, for whose end the other side
            may wait.

    Errors:
        NotListening: nothing listens there, or it ended before it had read the request.
        OSError: there was no answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
        except OSError as error:
            raise NotListening(f"{path}: {error}") from error
        try:
            send(connection, request)
            answer = receive(connection)
        except (BrokenPipeError, ConnectionResetError) as error:
            # The host ended before it had read all of the request.
            raise NotListening(f"{path}: {error}") from error
        answered(answer)
        return answer


def call_all(request: dict[str, Any], timeout: float) -> Iterator[dict[str, Any]]:
    """Sends a request to every host of this user, and returns the answers of live ones."""
    for path in sorted(folder().glob("*.sock")):
        with suppress(OSError):
            yield call(path, request, timeout)


def executes(run_id: str, timeout: float) -> bool:
    """Returns whether a live host of this user executes a run."""
    try:
        answers = list(call_all({"do": "status"}, timeout))
    except ConfigurationError:
        # Without a folder for sockets, there are no hosts.
        return False
    # A host that is just ending answers without its runs: it has none.
    return any(run_id in answer.get("runs", ()) for answer in answers)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Sends one message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any]:
    """Reads one message.

    Errors:
        OSError: the connection ended first, or took longer than its timeout.
    """
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(65_536)
        if not part or len(data) > _LONGEST:
            raise ConnectionError("the connection ended before the message did")
        data += part
    message: dict[str, Any] = json.loads(data)
    return message
