"""Where Dagster's storage hangs, what needs the state database alone is answered."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.service import app, dagster_instance
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.service.served import listening


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_requests_that_wait_for_dagster_leave_threads_to_others(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here two of four threads; the next one is refused, and has its place when they end."""
    waiting, goes_on = threading.Semaphore(0), threading.Event()

    @contextmanager
    def hang() -> Iterator[None]:
        waiting.release()
        assert goes_on.wait(PATIENCE_SECONDS)
        raise ConfigurationError("gone")
        yield

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(dagster_instance, "opened_instance", hang)
    monkeypatch.setattr(dagster_instance, "_places", threading.BoundedSemaphore(2))
    monkeypatch.setattr(app, "THREADS", 4)
    made = app.create_app(Settings.from_environment(), database, AccessRules())
    with listening(made) as url, ThreadPoolExecutor(2) as clients:
        ask: Callable[[str], httpx2.Response] = lambda path: httpx2.get(  # noqa: E731
            f"{url}/api/v1/{path}", trust_env=False, timeout=PATIENCE_SECONDS
        )
        hanging = [clients.submit(ask, "runs") for _ in range(2)]
        try:
            for _ in hanging:
                assert waiting.acquire(timeout=PATIENCE_SECONDS)
            for _ in range(5):
                refused = ask("runs")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
                assert "requests wait for Dagster's storage" in refused.json()["detail"]
                assert ask("schedules").status_code == 200
        finally:
            goes_on.set()
        assert ["as dagster.yaml describes it" in one.result().text for one in hanging] == [
            True
        ] * 2
        until(lambda: "as dagster.yaml describes" in ask("runs").text, "a place is free again")
