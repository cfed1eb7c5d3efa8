"""What every request passes before it reaches a route.

* It gets an id, which errors, the log and the audit log name.
* ``HEAD`` is answered as ``GET``: the server leaves the body out.
* On loopback its ``Host`` must be a name of loopback: a page of another site whose name resolves to
  127.0.0.1 would otherwise be of the same origin as the service (DNS rebinding).
* An unexpected error is logged under that id, and answered without its text.
* A request that changes something must not come from a page of another site: browsers say so in
  ``Sec-Fetch-Site`` and ``Origin``, programs send neither.
"""

import re
import secrets
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arctic_orchestration.errors import RequestRefused
from arctic_orchestration.service import problems

_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_READING = ("GET", "HEAD", "OPTIONS")
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    # Scripts and styles are files of this service, and nothing is inline.
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'; script-src 'self'"
    ),
}


class Guard:
    """The middleware.

    Args:
        app: what a request reaches that passes.
        loopback: whether the service listens to loopback alone.
    """

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.headers.get("x-request-id", "")
        request.state.request_id = given if _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)
        request.state.has_answer = False
        answering = _with_headers(request, send)
        if request.method == "HEAD":
            scope = {**scope, "method": "GET"}
        try:
            self._check(request)
        except RequestRefused as error:
            refusal = problems.answer(request, error.status, str(error))
            await refusal(scope, receive, answering)
            return
        try:
            await self._app(scope, receive, answering)
        except Exception as error:
            if request.state.has_answer:
                raise
            await problems.unexpected(request, error)(scope, receive, answering)

    def _check(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if self._loopback and not _LOOPBACK.fullmatch(host):
            raise RequestRefused(421, f"Host: got {host!r}, expected a name of loopback")
        if "\0" in request.url.path or "%00" in request.scope["query_string"].decode("latin-1"):
            raise RequestRefused(400, "The address has character 0")
        if request.method in _READING:
            return
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        # Where a browser tells the site, the origin adds nothing, and a proxy may change the host.
        is_own = site in ("same-origin", "none") if site else _is_own(origin, host)
        if not is_own:
            raise RequestRefused(403, "A page of another site cannot change anything")


def _is_own(origin: str | None, host: str) -> bool:
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def _with_headers(request: Request, send: Send) -> Send:
    async def answering(message: Message) -> None:
        if message["type"] == "http.response.start":
            request.state.has_answer = True
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = request.state.request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return answering
