"""An S3 server of moto's on loopback, which counts requests and makes faults.

moto checks no credentials; this server does: it refuses keys that it does not know, and those that
have expired.
"""

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

KEY, SECRET, REGION = "AKIALAKE", "a secret of the lake", "us-east-1"
BUCKET = "lake"

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message>'
    "<Resource>{path}</Resource><RequestId>0123456789ABCDEF</RequestId>"
    # As long as S3's own.
    "<HostId>" + "x" * 76 + "</HostId></Error>"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, as S3 names its operation."""

    operation: str
    path: str
    #: the access key that it is signed with
    key: str = ""
    #: the bytes of the object that it asks for
    size: float = inf


@dataclass(kw_only=True)
class Fault:
    """What some requests get in place of their answer.

    Args:
        matches: which requests.
        times: how many of them; none: all.
        code: the code of S3's error; "hang" and "cut": no answer, and half of one.
    """

    matches: Callable[[Request], bool]
    code: str
    status: int = 503
    message: str = "Please reduce your request rate."
    times: int | None = None
    hits: int = 0


@dataclass(kw_only=True)
class ObjectStore:
    """The server, its requests and its faults."""

    endpoint: str = ""
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    #: the keys that it takes
    keys: set[str] = field(default_factory=lambda: {KEY})
    expired: set[str] = field(default_factory=set)
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def properties(self) -> dict[str, str]:
        """pyiceberg's properties for this store."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        }

    def fail(self, operation: str, code: str, **more: Any) -> Fault:
        """Adds a fault for an operation of S3's; ``path`` is a part of the key."""
        part = more.pop("path", "")
        fault = Fault(
            matches=lambda one: one.operation == operation and part in one.path, code=code, **more
        )
        self.faults.append(fault)
        return fault

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Counts the operations of the block; complete at its end."""
        found: Counter[str] = Counter()
        with self._lock:
            start = len(self.requests)
        yield found
        with self._lock:
            found.update(one.operation for one in self.requests[start:])

    def answer(
        self, app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start: Any
    ) -> Iterable[bytes]:
        """The WSGI application around moto's."""
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        key = found[1] if found else ""
        request = Request(
            operation=_operation(environ), path=environ["PATH_INFO"], key=key, size=_size(environ)
        )
        with self._lock:
            self.requests.append(request)
            fault = next((one for one in self.faults if _applies(one, request)), None)
            if fault is not None:
                fault.hits += 1
        if fault is not None and fault.code == "hang":
            self.ended.wait()
        if fault is not None and fault.code == "cut" and request.operation == "GetObject":
            return _half(app, environ, start)
        if fault is not None and fault.code in ("hang", "cut"):
            return _cut(environ, start)
        if fault is not None:
            return _refused(environ, start, fault.status, fault.code, fault.message)
        if key in self.expired:
            message = "The provided token has expired."
            return _refused(environ, start, 400, "ExpiredToken", message)
        if key not in self.keys:
            message = "The AWS Access Key Id you provided does not exist in our records."
            return _refused(environ, start, 403, "InvalidAccessKeyId", message)
        return app(environ, start)


@contextmanager
def object_store(bucket: str = BUCKET) -> Iterator[ObjectStore]:
    """Starts a server with one empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ObjectStore()
    # S3 without the dispatcher, which compares the address of each request with all services.
    s3, others = create_backend_app("s3"), DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        answer: Iterable[bytes] = (others if "HTTP_X_AMZ_TARGET" in environ else s3)(environ, start)
        return answer

    server = make_server(
        "127.0.0.1", 0, lambda environ, start: store.answer(app, environ, start), threaded=True
    )
    store.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="object store", daemon=True)
    thread.start()
    backend = s3_backends["123456789012"]["aws"]
    try:
        backend.create_bucket(bucket, REGION)
        yield store
    finally:
        store.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
        backend.reset()


def _applies(fault: Fault, request: Request) -> bool:
    return (fault.times is None or fault.hits < fault.times) and fault.matches(request)


def _size(environ: dict[str, Any]) -> float:
    found = _RANGE.fullmatch(environ.get("HTTP_RANGE", ""))
    return int(found[2]) - int(found[1]) + 1 if found else inf


def _operation(environ: dict[str, Any]) -> str:
    method, query = environ["REQUEST_METHOD"], parse_qs(environ["QUERY_STRING"], True)
    is_bucket = environ["PATH_INFO"].strip("/").count("/") == 0
    match method:
        case "GET" if is_bucket:
            return "ListObjects"
        case "POST" if "uploads" in query:
            return "CreateMultipartUpload"
        case "POST" if "uploadId" in query:
            return "CompleteMultipartUpload"
        case "POST" if "delete" in query:
            return "DeleteObjects"
        case "PUT" if "uploadId" in query:
            return "UploadPart"
        case "DELETE" if "uploadId" in query:
            return "AbortMultipartUpload"
        case "GET" | "HEAD" | "PUT" | "DELETE":
            return f"{method.capitalize()}{'Bucket' if is_bucket else 'Object'}"
        case _:
            return str(method)


def _refused(
    environ: dict[str, Any], start: Any, status: int, code: str, message: str
) -> list[bytes]:
    # Unread, the body would be taken for the next request.
    _read_body(environ)
    body = _ERROR.format(code=code, message=message, path=environ["PATH_INFO"]).encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start(f"{status} {code}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _cut(environ: dict[str, Any], start: Any) -> list[bytes]:
    _read_body(environ)
    start("200 OK", [("Content-Type", "binary/octet-stream"), ("Content-Length", "1000000")])
    return [b"PAR1"]


def _half(app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start: Any) -> list[bytes]:
    """The right answer, whose connection breaks after half of the bytes."""
    body = b"".join(app(environ, start))
    return [body[: len(body) // 2]]


def _read_body(environ: dict[str, Any]) -> None:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length:
        environ["wsgi.input"].read(length)
