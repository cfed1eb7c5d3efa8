"""``arctic serve``: the REST API and its pages in this process."""

import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import typer

from arctic_orchestration.console.state import state_database
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.settings import Settings

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
    import uvicorn

    from arctic_orchestration.service.access import AccessRules
    from arctic_orchestration.service.app import create_app

    if tls_key is not None and tls_certificate is None:
        raise InvalidInput("--tls-key", tls_key, "--tls-certificate beside it")
    _check_host(host)
    settings = Settings.from_environment()
    rules = AccessRules.from_environment(loopback=is_loopback(host), require_token=require_token)
    database = state_database(settings, made_by="the dispatcher", busy_seconds=_BUSY_SECONDS)
    app = create_app(settings, database, rules)
    scheme = "https" if tls_certificate is not None else "http"
    shown = f"[{host}]" if ":" in host else host
    root = f"{scheme}://{shown}:{port}"
    text = f"serving {root} and {root}/api/v1 for cluster {settings.cluster}"
    Console(stderr=True, highlight=False).print(escape(text))
    try:
        uvicorn.run(
            app,
            host=host,
            port=port,
            log_level="warning",
            server_header=False,
            # It would replace the address of a proxy by what the proxy's client claims.
            proxy_headers=False,
            timeout_graceful_shutdown=10,
            ssl_certfile=tls_certificate,
            ssl_keyfile=tls_key,
        )
    finally:
        database.close()


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
