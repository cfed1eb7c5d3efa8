"""An Iceberg REST catalog on loopback, over pyiceberg's SQL catalog or over another REST catalog.

It makes faults, before and after a commit was applied, checks tokens, and vends credentials.
"""

import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from arctic_orchestration_tests.patience import PATIENCE_SECONDS

CLIENT_ID, CLIENT_SECRET = "lake", "the secret of a client"
TOKEN = "a token given in advance"
_SEPARATOR = "\x1f"

_STATUS: Mapping[type[Exception], int] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


@dataclass(kw_only=True)
class CommitFault:
    """The answer of some commits.

    Args:
        status: of the answer; none: the connection is closed without one.
        applied: whether the commit was made before.
        times: how many commits.
    """

    status: int | None
    applied: bool
    times: int = 1


@dataclass(kw_only=True)
class RestServer:
    """The server, the tables behind it, and its faults."""

    #: what is behind it: tables, or the address of a REST catalog
    behind: SqlCatalog | str
    uri: str = ""
    #: the tokens that it takes
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    #: how many tokens clients got for their credentials
    exchanges: int = 0
    #: for how many seconds those are valid; none: it does not say so
    lifetime: int | None = 3600
    faults: list[CommitFault] = field(default_factory=list)
    #: properties of the store that it gives with each table
    vended: dict[str, str] = field(default_factory=dict)
    #: commits that it received, and those that it made
    commits: int = 0
    applied: int = 0
    #: the headers of the last request
    headers: dict[str, str] = field(default_factory=dict)

    def fault(self) -> CommitFault | None:
        """Takes the fault of the next commit."""
        for one in self.faults:
            if one.times:
                one.times -= 1
                return one
        return None


@contextmanager
def rest_catalog(behind: SqlCatalog | str) -> Iterator[RestServer]:
    """Starts a server for the tables of a catalog."""
    server = RestServer(behind=behind)
    config = uvicorn.Config(_app(server), host="127.0.0.1", port=0, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, name="REST catalog", daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    server.uri = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        running.should_exit = True
        thread.join()


def _app(server: RestServer) -> FastAPI:
    app = FastAPI()
    app.middleware("http")(lambda request, call: _authorized(server, request, call))
    for error in _STATUS:
        app.add_exception_handler(error, _as_error)
    _add_tokens(app, server)
    if isinstance(server.behind, str):
        _add_routes_behind(app, server, server.behind)
    else:
        _add_namespaces(app, server.behind)
        _add_tables(app, server, server.behind)
    return app


def _add_tokens(app: FastAPI, server: RestServer) -> None:
    @app.post("/v1/oauth/tokens")
    async def token(request: Request) -> Response:
        form = await request.form()
        given = f"{form.get('client_id')}:{form.get('client_secret')}"
        if basic := request.headers.get("authorization", "").partition("Basic ")[2]:
            given = b64decode(basic).decode()
        if given != f"{CLIENT_ID}:{CLIENT_SECRET}":
            return JSONResponse({"error": "invalid_client"}, 401)
        server.exchanges += 1
        made = f"token {server.exchanges}"
        server.tokens.add(made)
        lasts = {} if server.lifetime is None else {"expires_in": server.lifetime}
        return JSONResponse({"access_token": made, "token_type": "bearer", **lasts})


def _add_routes_behind(app: FastAPI, server: RestServer, behind: str) -> None:
    """All routes but that of tokens are those of another server; commits have our faults."""
    client = httpx2.Client(base_url=behind, timeout=PATIENCE_SECONDS)

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "DELETE"])
    async def forward(path: str, request: Request) -> Response:
        body = await request.body()
        is_commit = request.method == "POST" and "/tables/" in path
        fault = server.fault() if is_commit else None
        server.commits += is_commit
        if fault is not None and not fault.applied:
            return _faulty(fault)
        url = f"/{request.scope['raw_path'].decode().lstrip('/')}?{request.url.query}"
        headers = {"content-type": "application/json"} if body else {}
        answer = await run_in_threadpool(
            client.request, request.method, url, content=body, headers=headers
        )
        server.applied += is_commit and answer.is_success
        if fault is not None:
            return _faulty(fault)
        if answer.is_success and b'"metadata"' in answer.content and not is_commit:
            loaded = answer.json()
            loaded["storage-credentials"] = _credentials(server, loaded["metadata"]["location"])
            return JSONResponse(loaded, answer.status_code)
        return Response(answer.content, answer.status_code, media_type="application/json")


def _add_namespaces(app: FastAPI, tables: SqlCatalog) -> None:
    @app.get("/v1/config")
    def config() -> dict[str, Any]:
        return {"defaults": {}, "overrides": {}}

    @app.get("/v1/namespaces")
    def namespaces(parent: str = "") -> dict[str, Any]:
        found = tables.list_namespaces(_namespace(parent) if parent else ())
        return {"namespaces": [list(one) for one in found]}

    @app.post("/v1/namespaces")
    async def create_namespace(request: Request) -> dict[str, Any]:
        body = await request.json()
        tables.create_namespace(tuple(body["namespace"]), body.get("properties") or {})
        return {"namespace": body["namespace"], "properties": {}}

    @app.get("/v1/namespaces/{namespace}")
    def load_namespace(namespace: str) -> dict[str, Any]:
        found = tables.load_namespace_properties(_namespace(namespace))
        return {"namespace": list(_namespace(namespace)), "properties": found}


def _add_tables(app: FastAPI, server: RestServer, tables: SqlCatalog) -> None:
    @app.get("/v1/namespaces/{namespace}/tables")
    def list_tables(namespace: str) -> dict[str, Any]:
        found = tables.list_tables(_namespace(namespace))
        return {"identifiers": [{"namespace": one[:-1], "name": one[-1]} for one in found]}

    @app.post("/v1/namespaces/{namespace}/tables")
    async def create_table(namespace: str, request: Request) -> Response:
        # pyiceberg's model requires what the specification leaves out.
        absent = dict.fromkeys(("location", "partition-spec", "write-order"))
        wanted = CreateTableRequest.model_validate(absent | await request.json())
        made = tables.create_table(
            (*_namespace(namespace), wanted.name),
            wanted.table_schema,
            location=wanted.location,
            partition_spec=wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            sort_order=wanted.write_order or UNSORTED_SORT_ORDER,
            properties=wanted.properties,
        )
        return _loaded(server, made)

    @app.get("/v1/namespaces/{namespace}/tables/{table}")
    def load_table(namespace: str, table: str) -> Response:
        return _loaded(server, tables.load_table((*_namespace(namespace), table)))

    @app.delete("/v1/namespaces/{namespace}/tables/{table}")
    def drop_table(namespace: str, table: str) -> Response:
        tables.drop_table((*_namespace(namespace), table))
        return Response(status_code=204)

    @app.post("/v1/namespaces/{namespace}/tables/{table}")
    async def commit(namespace: str, table: str, request: Request) -> Response:
        server.commits += 1
        named = {"identifier": {"namespace": list(_namespace(namespace)), "name": table}}
        wanted = CommitTableRequest.model_validate(named | await request.json())
        fault = server.fault()
        if fault is not None and not fault.applied:
            return _faulty(fault)
        found = tables.load_table((*_namespace(namespace), table))
        done = tables.commit_table(found, wanted.requirements, wanted.updates)
        server.applied += 1
        if fault is not None:
            return _faulty(fault)
        body = {
            "metadata-location": done.metadata_location,
            "metadata": done.metadata.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        return JSONResponse(body)


async def _authorized(server: RestServer, request: Request, call: Any) -> Response:
    server.headers = dict(request.headers)
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if request.url.path != "/v1/oauth/tokens" and token not in server.tokens:
        return _error(401, "NotAuthorizedException", "the token is unknown or has expired")
    answer: Response = await call(request)
    return answer


def _as_error(_request: Request, error: Exception) -> Response:
    status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
    return _error(status, type(error).__name__.replace("Error", "Exception"), str(error))


def _error(status: int, kind: str, message: str) -> Response:
    body = {"error": {"message": message, "type": kind, "code": status}}
    return JSONResponse(body, status)


def _faulty(fault: CommitFault) -> Response:
    if fault.status is None:
        # Fewer bytes than announced: the server closes the connection.
        return Response(b"{", headers={"content-length": "1000"})
    return _error(fault.status, "Fault", "made by the test")


def _loaded(server: RestServer, table: Table) -> Response:
    body: dict[str, Any] = {
        "metadata-location": table.metadata_location,
        "metadata": table.metadata.model_dump(mode="json", by_alias=True, exclude_none=True),
        "config": {},
    }
    if server.vended:
        body["storage-credentials"] = _credentials(server, table.location())
    return JSONResponse(body)


def _credentials(server: RestServer, location: str) -> list[dict[str, Any]]:
    return [{"prefix": location, "config": server.vended}] if server.vended else []


def _namespace(text: str) -> tuple[str, ...]:
    return tuple(text.split(_SEPARATOR))
