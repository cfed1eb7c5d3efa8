"""Who requests limits: a pass of the daemon works them out once, all others see the rules only."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from dagster import DagsterRunStatus as Status
from dagster._daemon.run_coordinator import queued_run_coordinator_daemon

from arctic_orchestration.run_queue.dagster.caller import Asker, asker
from arctic_orchestration.run_queue.dagster.passes import DaemonPasses
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue

RULES: dict[str, Any] = {
    "groups": {"few": {"limit": 4, "match": {"job": "*"}}},
    "rates": {"api": {"limit": 50, "per": "1m", "match": {"job": "*"}}},
}
#: what people are shown, without a look at any run
SHOWN = [
    {"key": "arctic/group.few", "value": "at most 4 at once", "limit": 4},
    {"key": "arctic/rate.api", "value": "waiting", "limit": 0},
]


@pytest.fixture
def ruled(backend: str, make_queue: Callable[..., RunQueue]) -> Callable[..., RunQueue]:
    def make(*, page_size: int = 100, **config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": {**RULES, **config}}, page_size=page_size)

    return make


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The time of each pass that was worked out."""
    made: list[datetime] = []
    limits = DaemonPasses.limits

    def counted(self: DaemonPasses, now: datetime) -> list[dict[str, Any]]:
        made.append(now)
        return limits(self, now)

    monkeypatch.setattr(DaemonPasses, "limits", counted)
    return made


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[Asker]:
    """Every answer to who asks."""
    found: list[Asker] = []

    def noted() -> Asker:
        found.append(asker())
        return found[-1]

    monkeypatch.setattr("arctic_orchestration.run_queue.dagster.coordinator.asker", noted)
    return found


def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, to open any database fails."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("a database was opened")

    monkeypatch.setattr(Database, "open", refuse)
    monkeypatch.setattr(Database, "__init__", refuse)
    monkeypatch.setattr(sqlite3, "connect", refuse)
    monkeypatch.setattr(psycopg2, "connect", refuse)


def test_an_iteration_of_the_daemon_is_one_pass(
    ruled: Callable[..., RunQueue],
    walk: Mapping[str, Any],
    passes: list[datetime],
    requested: list[Asker],
) -> None:
    """However many pages and threads: the first call begins it, and all others see the same."""
    queue = ruled(**walk)
    runs = [queue.submit("load") for _ in range(6)]
    requested.clear()
    for number in (1, 2, 3):
        queue.iterate()
        assert len(passes) == number
        assert requested.count(Asker.NEW_PASS) == number
        assert Asker.ANYBODY not in requested
    assert sorted(queue.launched) == sorted(run.run_id for run in runs[:4])


def test_the_daemon_calls_in_the_middle_of_a_pass(
    ruled: Callable[..., RunQueue],
    monkeypatch: pytest.MonkeyPatch,
    passes: list[datetime],
    requested: list[Asker],
) -> None:
    """As for a run whose code location does not answer: it is given the limits of this pass."""
    queue = ruled()
    run = queue.submit("load")
    seen: list[list[dict[str, Any]]] = []
    queue.launcher.before = lambda _: seen.append(
        [dict(limit) for limit in queue.coordinator.get_run_queue_config().tag_concurrency_limits]
    )
    requested.clear()
    assert queue.iterate() == [run.run_id]
    assert requested[0] is Asker.NEW_PASS
    assert set(requested[1:]) == {Asker.SAME_PASS}
    assert len(passes) == 1
    assert seen[0] != SHOWN
    assert {"key": "arctic/group.few", "limit": 4} in seen[0]


def test_an_iteration_that_fails_is_followed_by_a_new_pass(
    ruled: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch, passes: list[datetime]
) -> None:
    """The limits of the pass that broke are not those of the next one."""
    queue = ruled()
    run = queue.submit("load")

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="broken"):
        patched.setattr(queue.daemon, "_get_runs_to_dequeue", broken)
        queue.iterate()
    assert queue.iterate() == [run.run_id]
    assert len(passes) == 2


def test_a_webserver_is_shown_the_rules_and_opens_no_database(
    ruled: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch, passes: list[datetime]
) -> None:
    """From any thread, before and after passes of a daemon."""
    queue = ruled()
    queue.submit("load")
    for _ in range(2):
        with monkeypatch.context() as patched:
            no_database(patched)
            config = queue.instance.get_concurrency_config().run_queue_config
            assert config is not None
            assert config.tag_concurrency_limits == SHOWN
            found: list[Any] = []
            thread = threading.Thread(
                target=lambda found=found: found.append(queue.coordinator.get_run_queue_config())
            )
            thread.start()
            thread.join()
            assert found[0].tag_concurrency_limits == SHOWN
        queue.iterate()
    assert len(passes) == 2


def test_a_pass_without_a_database_is_no_pass_of_a_webserver(
    ruled: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the daemon does open databases, which the test above would notice."""
    opened: list[object] = []
    open_ = Database.open

    def counted(*args: Any, **named: Any) -> Any:
        opened.append(args)
        return open_(*args, **named)

    monkeypatch.setattr(Database, "open", counted)
    queue = ruled()
    queue.iterate()
    queue.iterate()
    assert len(opened) == 1


def test_only_the_frames_of_the_queues_daemon_count(ruled: Callable[..., RunQueue]) -> None:
    """A function of the same name elsewhere is anybody."""

    def run_iteration() -> Asker:
        return asker()

    assert run_iteration() is Asker.ANYBODY
    names: dict[str, Any] = queued_run_coordinator_daemon.__dict__
    code = compile("def _ask(ask): return ask()\ndef run_iteration(ask): return ask()", "x", "exec")
    there: dict[str, Any] = {}
    exec(code, names, there)
    try:
        assert there["run_iteration"](asker) is Asker.NEW_PASS
        assert there["_ask"](asker) is Asker.SAME_PASS
        assert there["run_iteration"](lambda: there["_ask"](asker)) is Asker.SAME_PASS
    finally:
        assert "_ask" not in names


def test_without_rules_nothing_is_computed(
    make_queue: Callable[..., RunQueue],
    backend: str,
    passes: list[datetime],
    requested: list[Asker],
) -> None:
    """As with Dagster's own class."""
    queue = make_queue(backend, {**OURS, "config": {}})
    run = queue.submit("load")
    assert queue.iterate() == [run.run_id]
    assert (passes, requested) == ([], [])


_WORKER = """
import json, sqlite3, sys
from dagster import DagsterInstance

def refuse(*arguments, **named):
    raise AssertionError("a state database was opened")

from arctic_orchestration.state.database import Database
Database.open = Database.__init__ = refuse
with DagsterInstance.get() as instance:
    config = instance.get_concurrency_config().run_queue_config
    run = instance.get_run_by_id(sys.argv[1])
    print(json.dumps({
        "limits": list(config.tag_concurrency_limits),
        "status": run.status.value,
    }))
"""


def test_the_process_of_a_run_is_shown_the_rules_and_opens_no_state_database(
    ruled: Callable[..., RunQueue],
) -> None:
    """A process of its own, on the same instance."""
    queue = ruled()
    run = queue.submit("load")
    state = Path(queue.instance.root_directory) / "arctic.db"
    state.unlink()
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, run.run_id],
        capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS, env=os.environ,
    )  # fmt: skip
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer == {"limits": SHOWN, "status": "QUEUED"}
    assert not state.exists()
    assert queue.status(run) is Status.QUEUED


_IMPORT = """
import sys
import arctic_orchestration.coordinator
heavy = ("pyspark", "pyiceberg", "pyarrow", "pandas", "fastapi", "uvicorn", "psycopg2", "typer",
         "dagster_postgres", "dagster_webserver")
print([name for name in heavy if name in sys.modules])
print([name for name in sys.modules if name.startswith("arctic_orchestration.") and
       name.split(".")[1] in ("lake", "scheduling", "code_location", "cli", "flights")])
"""


def test_every_process_can_load_it_and_loads_little() -> None:
    """It is loaded wherever there is an instance: no Spark, no lake, no server."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
