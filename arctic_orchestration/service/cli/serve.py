"""``arctic serve``: the REST API and its pages in this process."""

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arctic_orchestration.console.state import state_database
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from arctic_orchestration.service.access import AccessRules
    from arctic_orchestration.state.database import Database

#: A request waits no longer for a lock or an answer of the database.
_BUSY_SECONDS = 15.0


def serve(
    host: Annotated[str, typer.Option(help="The address to listen to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port.")] = 3001,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Require a token on loopback, too.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A PEM file; serves https.", exists=True, dir_okay=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The PEM file of its key.", exists=True, dir_okay=False)
    ] = None,
) -> None:
    """Serve the REST API and its pages.

    On loopback it is open to all users of this machine until the first token is created: tokens
    create. Elsewhere nothing is served without a token or a trusted proxy.
    """
    from arctic_orchestration.service.app import create_app

    if tls_key is not None and tls_certificate is None:
        raise InvalidInput("--tls-key", tls_key, "--tls-certificate beside it")
    with opened(host, require_token=require_token) as (settings, database, rules):
        app = create_app(settings, database, rules)
        scheme = "https" if tls_certificate is not None else "http"
        root = f"{scheme}://{shown_host(host)}:{port}"
        say(f"serving {root} and {root}/api/v1 for cluster {settings.cluster}")
        try:
            run(app, host, port, ssl_certfile=tls_certificate, ssl_keyfile=tls_key)
        except ssl.SSLError as error:
            expected = f"a PEM file of a certificate and, here or in --tls-key, its key ({error})"
            raise InvalidInput("--tls-certificate", str(tls_certificate), expected) from None


@contextmanager
def opened(host: str, *, require_token: bool) -> "Iterator[tuple[Settings, Database, AccessRules]]":
    """Opens what an application needs that listens to an address.

    Errors:
        InvalidInput: the host is no address, or a variable of the environment is invalid.
        ConfigurationError: there is no state database yet.
    """
    from arctic_orchestration.service.access import AccessRules

    _check_host(host)
    settings = Settings.from_environment()
    rules = AccessRules.from_environment(loopback=is_loopback(host), require_token=require_token)
    database = state_database(settings, made_by="the dispatcher", busy_seconds=_BUSY_SECONDS)
    with closing(database):
        yield settings, database, rules


def run(app: "ASGIApp", host: str, port: int, **options: Any) -> None:
    """Serves an application until the process is ended."""
    import uvicorn

    from arctic_orchestration.service.connections import ImpatientProtocol

    uvicorn.run(
        app,
        http=ImpatientProtocol,
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        # It would replace the address of a proxy by what the proxy's client claims.
        proxy_headers=False,
        timeout_graceful_shutdown=10,
        **options,
    )


def say(text: str) -> None:
    """Prints a line about the server."""
    Console(stderr=True, highlight=False).print(escape(text))


def shown_host(host: str) -> str:
    """Returns a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _check_host(host: str) -> None:
    """Refuses what is no address of a machine; an empty text would be all of this one's.

    Errors:
        InvalidInput: it cannot be looked up.
    """
    expected = "an address or a name of this machine, such as 127.0.0.1 or 0.0.0.0"
    if not host:
        raise InvalidInput("--host", host, expected)
    try:
        socket.getaddrinfo(host, None)
    except (OSError, ValueError) as error:
        raise InvalidInput("--host", host, f"{expected} ({error})") from None


def is_loopback(host: str) -> bool:
    """Returns whether a server at this address is reached from its own machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
