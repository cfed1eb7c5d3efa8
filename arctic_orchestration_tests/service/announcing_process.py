"""A process that sends an announcement to the service, and is killed at a moment of it."""

import os
import signal
from collections.abc import Callable
from typing import Any

from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster_postgres import PostgresEventLogStorage
from starlette.testclient import TestClient

from arctic_orchestration.event_log import announcement
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

#: the moments: of the key and Dagster's log, nothing, the first or both are stored
MOMENTS = ("before anything", "before Dagster's log", "inside its transaction", "before the answer")


def _die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(act: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: _die(act(*args, **named))


def announce(environment: dict[str, str], headers: dict[str, str], body: Any, moment: str) -> None:
    """Sends the request, as far as the moment."""
    os.environ.update(environment)
    match moment:
        case "before anything":
            announcement.Announcer.last_event = _die  # type: ignore[method-assign]
        case "before Dagster's log":
            announcement.Announcer.announce = _die  # type: ignore[method-assign]
        case "inside its transaction":
            # The rows are inserted, and the table of assets is next.
            for storage in (SqlEventLogStorage, PostgresEventLogStorage):
                storage._store_asset_event = _die  # type: ignore[method-assign]
        case "before the answer":
            announced = announcement.Announcer.announce
            announcement.Announcer.announce = _then_die(announced)  # type: ignore[method-assign]
    database = Database.open(environment["ARCTIC_DATABASE_URL"])
    app = create_app(Settings.from_environment(), database, AccessRules())
    client = TestClient(app, base_url="http://localhost/api/v1", client=("127.0.0.1", 50_000))
    client.post("/events", json=body, headers=headers)
