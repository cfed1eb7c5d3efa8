"""Tasks of a worker from a server over HTTP: no state database, and no catalog.

The protocol is docs/worker-protocol.md. A request without an answer may have been carried out, so
it is repeated unchanged: a claim keeps its key until a task was claimed with it.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.attempts import LEASE
from arctic_orchestration.compaction.work.task_source import (
    Beat,
    ClaimedTask,
    MergedFiles,
    Place,
    Work,
)
from arctic_orchestration.compaction.work.workers import Order, WorkerInfo
from arctic_orchestration.errors import (
    InvalidInput,
    NotFound,
    Refused,
    RequestRefused,
    ServerUnavailable,
)
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state.dialect import storable

#: the longest wait for an answer, beside what a claim waits for a task
_ANSWER_SECONDS = 30.0
_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_LONGEST_REASON = 4_000


class Server:
    """Sends requests to a server, each on a connection of its own.

    Args:
        address: its root: ``http://host:3001``.
        token_file: a file with a token, read for each request; none: no token.

    Errors:
        InvalidInput: it is no such address, or the file cannot be read or has no token alone.
    """

    def __init__(self, address: str, token_file: Path | None = None) -> None:
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError:
            raise InvalidInput("--server", address, "an address such as http://host:3001") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise InvalidInput("--server", address, "an address such as http://host:3001")
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._path = f"{parts.path.rstrip('/')}/api/v1/workers"
        self._token_file = token_file
        self._token()
        self._waiting: set[http.client.HTTPConnection] = set()
        self._is_interrupted = threading.Event()

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, wait: float = 0
    ) -> dict[str, Any]:
        """Returns the answer to a request.

        Args:
            method: of HTTP.
            path: below ``/api/v1/workers``.
            body: a JSON object.
            wait: how long the server may wait before it answers, in seconds.

        Errors:
            ServerUnavailable: no answer, or none now.
            NotFound, Refused, RequestRefused: 404, 409, another refusal.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            if token := self._token():
                headers["Authorization"] = f"Bearer {token}"
        except InvalidInput as error:
            # It could be read at first, and may be replaced at this moment.
            raise ServerUnavailable(str(error)) from error
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=wait + _ANSWER_SECONDS)
        if wait:
            self._waiting.add(connection)
        try:
            text = None if body is None else json.dumps(body)
            connection.connect()
            if wait and self._is_interrupted.is_set():
                raise ServerUnavailable("the worker claims nothing more")
            connection.request(method, f"{self._path}{path}", text, headers)
            answer = connection.getresponse()
            content = answer.read()
            document = json.loads(content) if content else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerUnavailable(f"{self.shown} did not answer: {error!r}") from error
        finally:
            self._waiting.discard(connection)
            connection.close()
        is_object = isinstance(document, dict)
        text = str(document.get("detail", answer.reason) if is_object else answer.reason)
        if answer.status < HTTPStatus.MULTIPLE_CHOICES and is_object:
            return dict(document)
        # Not the service redirects, but a proxy, such as to a login: nothing was carried out.
        is_refusal = HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
        if not is_refusal or answer.status in _LATER:
            raise ServerUnavailable(f"{self.shown} answered {answer.status}: {text}")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NotFound(text)
        if answer.status == HTTPStatus.CONFLICT:
            raise Refused(text)
        raise RequestRefused(answer.status, f"{self.shown} answered {answer.status}: {text}")

    def interrupt(self) -> None:
        """Ends requests that wait; what they would have claimed is put back at the end."""
        self._is_interrupted.set()
        for connection in list(self._waiting):
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _token(self) -> str | None:
        if self._token_file is None:
            return None
        try:
            token = self._token_file.read_text().strip()
        except (OSError, ValueError) as error:
            expected = f"a file that can be read ({error})"
            raise InvalidInput("--token-file", str(self._token_file), expected) from None
        if not (token.isascii() and token.isprintable()):
            # Not left to http.client: its error contains the token.
            expected = "a file with one line of ASCII characters: the token alone"
            raise InvalidInput("--token-file", str(self._token_file), expected)
        return token


@dataclass(frozen=True, kw_only=True)
class _Task:
    id: str
    table: str
    gain: str


@dataclass(frozen=True, kw_only=True)
class _Assignment:
    """A claim, with the answer that made it."""

    task: _Task
    group: FileGroup
    attempt_id: str
    token: int
    answer: Mapping[str, Any]


class HttpSource:
    """Tasks from a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._worker: WorkerInfo | None = None
        self._order = Order.RUN
        self.life = LEASE
        self._longest_wait = 0.0
        self._keys = threading.local()

    def start(self, worker: WorkerInfo) -> None:
        self._worker = worker
        answer = self._server.request(
            "PUT",
            f"/{worker.id}",
            {
                "name": worker.name[:200],
                "queues": list(worker.queues),
                "slots": worker.parallelism,
                "memory": psutil.virtual_memory().total,
                "version": f"arctic-orchestration {version('arctic-orchestration')}",
            },
        )
        self._order = Order(answer["order"])
        self.life = timedelta(seconds=answer["lease_seconds"])
        self._longest_wait = answer["longest_wait_seconds"]

    def claim(self, wait: timedelta | None) -> ClaimedTask | None:
        # A key for each thread: it has one claim at a time.
        key = getattr(self._keys, "key", None) or new_id(utc_now())
        self._keys.key = key
        seconds = self._longest_wait
        if wait is not None:
            seconds = min(seconds, wait.total_seconds())
        requested_at = time.monotonic()
        try:
            body = {"key": key, "wait_seconds": seconds}
            answer = self._of_worker("/claim", body, wait=seconds)
        except Refused:
            # The attempt that was claimed with this key has ended.
            self._keys.key = None
            return None
        self._order = Order(answer["order"])
        found = answer["assignment"]
        if answer["retry_seconds"]:
            raise ServerUnavailable("the table of a task cannot be loaded now")
        if found is None:
            return None
        self._keys.key = None
        lease = answer["waited_seconds"] + found["lease_seconds"]
        return ClaimedTask(claim=_assignment(found), trusted_until=requested_at + lease)

    def order(self) -> Order:
        return self._order

    def place(self, work: Work) -> Place:
        assert isinstance(work, _Assignment)
        found = work.answer["table"]
        location, properties = found["metadata_location"], found["io"]
        metadata = FromInputFile.table_metadata(
            load_file_io(properties, location).new_input(location)
        )
        table = Table(
            identifier=tuple(found["name"].split(".")),
            metadata=metadata,
            metadata_location=location,
            io=load_file_io({**metadata.properties, **properties}, location),
            catalog=NoopCatalog("none"),
        )
        return Place(
            table=table,
            directory=work.answer["directory"],
            target_bytes=work.answer["target_bytes"],
        )

    def beat(self, held: Sequence[ClaimedTask]) -> Beat:
        if not held:
            # Its claims are heartbeats.
            return Beat(order=self._order)
        own = [{"attempt": one.claim.attempt_id, "fencing_token": one.claim.token} for one in held]
        answer = self._of_worker("/beat", {"attempts": own})
        self._order = Order(answer["order"])
        renewed = {one["attempt"] for one in answer["attempts"] if one["answer"] != "lost"}
        return Beat(order=self._order, renewed=frozenset(renewed))

    def merged(self, work: Work, done: MergedFiles) -> None:
        outputs = [{"path": one.path, "size": one.size, "rows": one.rows} for one in done.outputs]
        self._report(
            work, "merged", outputs=outputs, rows_in=done.rows_in, rows_deleted=done.rows_deleted,
            way=str(done.way), because=_reason(done.because),
            sort_order_id=done.sort_order_id,
        )  # fmt: skip

    def failed(self, work: Work, reason: str, *, final: bool, bad_files: bool) -> TaskState:
        retry = "not this table" if final else "not these files" if bad_files else "later"
        answer = self._report(work, "failed", reason=_reason(reason), retry=retry)
        return TaskState(answer["task_state"])

    def release(self, work: Work, reason: str) -> None:
        self._report(work, "released", reason=_reason(reason))

    def state(self, work: Work) -> AttemptState | None:
        try:
            answer = self._server.request("GET", f"/attempts/{work.attempt_id}")
        except NotFound:
            return None
        return AttemptState(answer["state"])

    def interrupt(self) -> None:
        self._server.interrupt()

    def end(self) -> None:
        assert self._worker is not None
        self._server.request("DELETE", f"/{self._worker.id}")

    def _of_worker(self, path: str, body: Mapping[str, Any], *, wait: float = 0) -> dict[str, Any]:
        """Sends a request of this worker, which is registered again if the server forgot it."""
        assert self._worker is not None
        try:
            return self._server.request("POST", f"/{self._worker.id}{path}", body, wait=wait)
        except NotFound:
            self.start(self._worker)
            return self._server.request("POST", f"/{self._worker.id}{path}", body, wait=wait)

    def _report(self, work: Work, report: str, **body: Any) -> dict[str, Any]:
        try:
            return self._server.request(
                "POST", f"/attempts/{work.attempt_id}/{report}",
                {"fencing_token": work.token, **body},
            )  # fmt: skip
        except NotFound as error:
            raise Refused(str(error)) from error


def _reason(text: str) -> str:
    """Returns a reason as the server accepts it: storable in a database, and not too long."""
    return storable(text)[:_LONGEST_REASON]


def _assignment(found: Mapping[str, Any]) -> _Assignment:
    return _Assignment(
        task=_Task(id=found["task"], table=found["table"]["name"], gain=found["gain"]),
        group=FileGroup.from_json(json.dumps(found["group"])),
        attempt_id=found["attempt"],
        token=found["fencing_token"],
        answer=found,
    )
