"""A run queue as Dagster's daemon works it: real storage, real workspace, the daemon in process.

``make_queue`` makes one for a storage and a run coordinator; ``queue`` does for the storage and
the coordinator of a test that runs with each of them.
"""

import contextlib
import itertools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from arctic_orchestration.run_queue.dagster import coordinator as module
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    COORDINATORS,
    LOOP,
    OURS,
    THREADS,
    RunQueue,
    coordinator_of,
    empty,
    workspace,
)
from arctic_orchestration_tests.run_queue.coordinator.launching import RecordingRunLauncher
from arctic_orchestration_tests.run_queue.coordinator.listening import Clock, listening
from arctic_orchestration_tests.templates import Templates, write_dagster_yaml

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def queue_storage(
    tmp_path_factory: pytest.TempPathFactory,
    _postgres_session: PostgresServer | None,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str, Path], dict[str, Any]]]:
    """Writes a ``dagster.yaml`` with the storage that all queues on a backend share.

    To make a storage takes longer than most of the tests; each of them finds it empty.
    """
    base = tmp_path_factory.mktemp("queue_storage")
    servers: list[PostgresServer] = []
    name = f"queue_{os.getpid()}_{next(_numbers)}"

    def write(backend: str, home: Path) -> dict[str, Any]:
        if backend == "sqlite":
            write_dagster_yaml(home)
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            if not servers:
                server.create_database(name)
                servers.append(server)
            write_dagster_yaml(home, server=server, database_name=name)
        config: dict[str, Any] = yaml.safe_load((home / "dagster.yaml").read_text())
        if backend == "sqlite":
            config["storage"] = {"sqlite": {"base_dir": str(base)}}
        return config

    yield write
    for server in servers:
        server.drop_database(name)


@pytest.fixture
def make_queue(
    queue_storage: Callable[[str, Path], dict[str, Any]],
    templates: Templates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., RunQueue]]:
    """Makes a queue: ``make_queue(backend, run_coordinator, concurrency=None, page_size=100)``.

    ``run_coordinator`` and ``concurrency`` are these sections of ``dagster.yaml``. Two queues of
    a test on one backend share its runs, as a daemon before and after its configuration changed.
    """
    home = tmp_path / "dagster_home"
    home.mkdir()
    templates.state_file(home / "arctic.db")
    used: set[str] = set()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with contextlib.ExitStack() as stack:

        def make(
            backend: str,
            run_coordinator: Mapping[str, Any],
            *,
            concurrency: Mapping[str, Any] | None = None,
            page_size: int = 100,
        ) -> RunQueue:
            config = queue_storage(backend, home)
            config["run_coordinator"] = dict(run_coordinator)
            config["run_launcher"] = {
                "module": RecordingRunLauncher.__module__,
                "class": RecordingRunLauncher.__name__,
            }
            if concurrency is not None:
                config["concurrency"] = dict(concurrency)
            (home / "dagster.yaml").write_text(yaml.safe_dump(config))
            instance = DagsterInstance.from_config(str(home))
            # It keeps its connections, as the webserver does, instead of making one a query.
            instance.optimize_for_webserver(
                statement_timeout=60_000, pool_recycle=3600, max_overflow=20
            )
            stack.callback(instance.dispose)
            if backend not in used:
                used.add(backend)
                stack.callback(empty, instance)
            context = stack.enter_context(WorkspaceProcessContext(instance, workspace()))
            daemon = stack.enter_context(
                QueuedRunCoordinatorDaemon(interval_seconds=1, page_size=page_size)
            )
            return RunQueue(instance=instance, context=context, daemon=daemon)

        yield make


@pytest.fixture(params=COORDINATORS)
def coordinator(request: pytest.FixtureRequest) -> str:
    """Each of ``COORDINATORS``, one after the other."""
    return str(request.param)


@pytest.fixture
def queue(
    make_queue: Callable[..., RunQueue], backend: str, coordinator: str
) -> Callable[..., RunQueue]:
    """Makes a queue on the test's storage: ``queue(max_concurrent_runs=1, ...)``.

    Its coordinator is the test's, with this configuration; ``concurrency`` and ``page_size`` are
    those of ``make_queue``.
    """

    def make(
        *, concurrency: Mapping[str, Any] | None = None, page_size: int = 100, **config: Any
    ) -> RunQueue:
        return make_queue(
            backend,
            coordinator_of(coordinator, config),
            concurrency=concurrency,
            page_size=page_size,
        )

    return make


@pytest.fixture(params=[LOOP, THREADS], ids=["loop", "threads"])
def walk(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What is said to ``queue`` so that the daemon launches in a loop, then with threads."""
    return dict(request.param)


@pytest.fixture
def either_walk(backend: str) -> Mapping[str, Any]:
    """Threads on SQLite and the loop on Postgres: each of them once for each coordinator."""
    return THREADS if backend == "sqlite" else LOOP


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time by which our coordinator goes."""
    made = Clock()
    monkeypatch.setattr(module, "utc_now", made)
    return made


@pytest.fixture
def ruled(
    backend: str, make_queue: Callable[..., RunQueue], clock: Clock
) -> Callable[..., RunQueue]:
    """Makes a queue of our coordinator with these rules, on the test's storage."""

    def make(**config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": config})

    return make


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """What our coordinator logs."""
    with listening() as records:
        yield records
