"""``arctic serve`` on a free port of loopback, in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.service.connections import ImpatientProtocol
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import until


@contextmanager
def serving(database: Database) -> Iterator[str]:
    """Serves the pages of a state database; yields their URL."""
    with listening(create_app(Settings.from_environment(), database, AccessRules())) as url:
        yield url


@contextmanager
def listening(app: ASGIApp) -> Iterator[str]:
    """Serves an application; yields its URL."""
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), "the application is served")
        assert server.started
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
