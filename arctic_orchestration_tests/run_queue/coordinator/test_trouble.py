"""The state database does not answer: the daemon goes on, and starts nothing wrong."""

import gc
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dagster import DagsterRunStatus as Status

from arctic_orchestration.run_queue import pauses, waits
from arctic_orchestration.run_queue.dagster import passes as passes_module
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue
from arctic_orchestration_tests.run_queue.coordinator.listening import (
    BEGIN_AND_END,
    EVENING,
    Clock,
    logged,
    reported_waits,
)

NIGHT = {"night": {"start": "22:00", "end": "06:00", "match": {"job": "bill"}}}
FEW = {"few": {"limit": 2, "match": {"job": "load"}}}
#: the gates that need a state database, and runs under none of them
RULES: dict[str, Any] = {"groups": FEW, "windows": NIGHT}


@pytest.fixture(scope="module")
def state_server() -> Iterator[PostgresServer | None]:
    """A server for the state database alone, which a test may end and start again."""
    with running_server() as server:
        yield server


class State:
    """The state database of a test; it can be broken and mended."""

    def __init__(self, url: str, server: PostgresServer | None) -> None:
        self.url = url
        self.server = server

    def migrate(self) -> None:
        database = Database(self.url)
        database.upgrade()
        database.close()

    def run(self, *statements: str) -> None:
        database = Database(self.url)
        try:
            with database.begin() as tx:
                for statement in statements:
                    tx.execute(sa.text(statement))
        finally:
            database.close()

    def do(self, change: Callable[[sa.Connection], None]) -> None:
        database = Database(self.url)
        try:
            with database.begin() as tx:
                change(tx)
        finally:
            database.close()

    def query(self, question: Callable[[sa.Connection], Any]) -> Any:
        database = Database(self.url)
        try:
            with database.read() as tx:
                return question(tx)
        finally:
            database.close()

    def break_(self) -> None:
        """Postgres is killed; of SQLite's file a table cannot be read any more."""
        if self.server is not None:
            self.server.stop(immediate=True)
        else:
            self.run("alter table arctic_queue_pauses rename to out_of_reach")

    def mend(self) -> None:
        """As it was."""
        if self.server is not None:
            self.server.start()
        else:
            self.run("alter table out_of_reach rename to arctic_queue_pauses")


@pytest.fixture
def state(
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[State]:
    server = None
    url = f"sqlite:///{tmp_path / 'state.db'}"
    if backend == "postgres":
        # Skipped, or failed, where there is no Postgres.
        request.getfixturevalue("postgres_server")
        server = request.getfixturevalue("state_server")
        server.start() if server._process is None else None
        server.drop_database("state")
        url = server.create_database("state")
    monkeypatch.setenv("ARCTIC_DATABASE_URL", url)
    made = State(url, server)
    made.migrate()
    yield made
    if server is not None and server._process is None:
        server.start()


@pytest.fixture
def ruled(
    backend: str, make_queue: Callable[..., RunQueue], clock: Clock, state: State
) -> Callable[..., RunQueue]:
    def make(**config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": config or RULES})

    return make


@pytest.mark.parametrize("broken", [False, True], ids=["control", "broken"])
def test_at_the_start_nothing_starts_that_may_be_paused(
    ruled: Callable[..., RunQueue],
    clock: Clock,
    state: State,
    log: list[logging.LogRecord],
    broken: bool,
) -> None:
    """Nobody knows what is. Runs under no rule start, and all others once it answers."""
    if broken:
        state.break_()
    clock.pass_(minutes=1)
    queue = ruled()
    grouped, windowed, free = (queue.submit(job) for job in ("load", "bill", "needs_ice"))
    everything = [grouped.run_id, windowed.run_id, free.run_id]
    if not broken:
        assert queue.iterate() == everything
        assert log == []
        return
    assert queue.iterate() == [free.run_id]
    another = queue.submit("needs_ice")
    assert queue.iterate() == [another.run_id]
    assert queue.iterate() == []
    state.mend()
    assert queue.iterate() == everything[:2]
    assert logged(log) == BEGIN_AND_END


def test_at_the_start_only_what_is_held_is_reported_to_wait(
    ruled: Callable[..., RunQueue], state: State
) -> None:
    """Not a run with a tag of a consumer, or of a group that only schedules have."""
    queue = ruled()
    state.break_()
    held = queue.submit("load")
    tags = {"arctic/partition": "2026-03-02", "arctic/group.of_schedules": "of schedule nightly"}
    free = queue.submit("needs_ice", tags=tags)
    assert queue.iterate() == [free.run_id]
    assert reported_waits(queue, free) == []
    assert "arctic/wait" not in queue.run(free).tags
    (reason,) = reported_waits(queue, held)
    assert reason.startswith("the state database, which does not answer")


@pytest.mark.parametrize(
    "rules",
    [{"queues": {"low": {}}}, {"rates": {"api": {"limit": 9, "per": "1m", "match": {"job": "*"}}}},
     {"intervals": {"calm": {"duration": "1m", "match": {"job": "*"}}}}],
    ids=["queue", "rate", "interval"],
)  # fmt: skip
def test_at_the_start_nothing_starts_under_any_rule(
    ruled: Callable[..., RunQueue], state: State, rules: dict[str, Any]
) -> None:
    """A queue may be paused; a rate and an interval were not read yet. The run says so."""
    queue = ruled(**rules)
    state.break_()
    run = queue.submit("load")
    assert queue.iterate() == []
    (reason,) = reported_waits(queue, run)
    assert reason.endswith("does not answer: Nothing starts that is under a rule")
    state.mend()
    assert queue.iterate() == [run.run_id]


@pytest.mark.parametrize("broken", [False, True], ids=["control", "broken"])
def test_in_the_middle_closed_windows_stay_closed_though_their_time_comes(
    ruled: Callable[..., RunQueue],
    clock: Clock,
    state: State,
    log: list[logging.LogRecord],
    broken: bool,
) -> None:
    """A person may have paused something meanwhile; groups go on within their limits."""
    queue = ruled()
    held = queue.submit("bill")
    first = queue.submit("load")
    assert queue.iterate() == [first.run_id]
    if broken:
        state.break_()
    clock.pass_(minutes=1)
    more = [queue.submit("load") for _ in range(2)]
    free = queue.submit("needs_ice")
    if not broken:
        assert queue.iterate() == [held.run_id, more[0].run_id, free.run_id]
        assert log == []
        return
    assert queue.iterate() == [more[0].run_id, free.run_id]
    for _ in range(3):
        clock.pass_(minutes=10)
        assert queue.iterate() == []
    assert reported_waits(queue, held) == [
        "window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)",
        "window night stays closed until the state database answers (22:00-06:00 UTC)",
    ]
    assert reported_waits(queue, more[1]) == ["group few: 2 of 2 runs are in progress"]
    state.mend()
    assert queue.iterate() == [held.run_id]
    assert logged(log) == BEGIN_AND_END


def test_a_window_that_closes_in_the_middle_is_closed(
    ruled: Callable[..., RunQueue], clock: Clock, state: State
) -> None:
    """And stays so the next evening, as long as the trouble lasts."""
    queue = ruled()
    clock.pass_(minutes=1)
    assert queue.iterate() == []
    state.break_()
    run = queue.submit("bill")
    assert queue.iterate() == [run.run_id]
    clock.pass_(hours=12)
    held = queue.submit("bill")
    assert queue.iterate() == []
    clock.pass_(hours=12)
    assert queue.iterate() == []
    state.mend()
    assert queue.iterate() == [held.run_id]


def test_pauses_hold_as_they_were_read_last(
    ruled: Callable[..., RunQueue], clock: Clock, state: State
) -> None:
    """What was paused stays paused, what was not goes on; after it, what was said counts."""
    queue = ruled(groups=FEW, queues={"low": {"match": {"job": "bill"}}, "high": {}})
    state.do(lambda tx: pauses.store(tx, "default", "queue", "low", "maintenance", EVENING))
    held, free = queue.submit("bill"), queue.submit("load")
    assert queue.iterate() == [free.run_id]
    state.break_()
    more = queue.submit("load")
    assert queue.iterate() == [more.run_id]
    clock.pass_(hours=5)
    assert queue.iterate() == []
    assert reported_waits(queue, held) == [
        "queue low is paused since 2026-03-02 21:59:50Z (maintenance)"
    ]
    state.mend()
    state.do(lambda tx: pauses.store(tx, "default", "queue", "low", "", clock.now, paused=False))
    assert queue.iterate() == [held.run_id]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ARCTIC_DATABASE_URL", "nonsense"), ("ARCTIC_DATABASE_URL", "sqlite:////dev/null/a.db"),
     ("ARCTIC_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none"),
     ("ARCTIC_CLUSTER", "not a name")],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_such_trouble(
    ruled: Callable[..., RunQueue],
    monkeypatch: pytest.MonkeyPatch,
    log: list[logging.LogRecord],
    state: State,
    variable: str,
    value: str,
) -> None:
    """A wrong URL, a server that is not there, a wrong name of the cluster."""
    monkeypatch.setenv(variable, value)
    queue = ruled()
    held, free = queue.submit("load"), queue.submit("needs_ice")
    assert queue.iterate() == [free.run_id]
    assert queue.iterate() == []
    monkeypatch.setenv(variable, state.url if variable == "ARCTIC_DATABASE_URL" else "default")
    assert queue.iterate() == [held.run_id]
    assert logged(log) == BEGIN_AND_END


def test_waits_reported_during_an_error_are_stored_after_it(
    ruled: Callable[..., RunQueue], state: State
) -> None:
    """So that who asks the database later finds it."""
    queue = ruled()
    queue.iterate()
    state.break_()
    held = queue.submit("bill")
    queue.iterate()
    assert len(reported_waits(queue, held)) == 1
    state.mend()
    queue.iterate()
    assert held.run_id in state.query(lambda tx: waits.reported_waits(tx, "default"))


def test_what_waits_no_more_after_the_trouble_is_forgotten(
    ruled: Callable[..., RunQueue], state: State
) -> None:
    """Runs that began while the database did not answer."""
    queue = ruled()
    runs = [queue.submit("load") for _ in range(3)]
    queue.iterate()
    assert state.query(lambda tx: waits.reported_waits(tx, "default")).keys() == {runs[2].run_id}
    state.break_()
    queue.report(runs[0], Status.SUCCESS)
    assert queue.iterate() == [runs[2].run_id]
    queue.iterate()
    state.mend()
    queue.iterate()
    assert state.query(lambda tx: waits.reported_waits(tx, "default")) == {}


def test_the_log_says_once_that_the_database_cannot_be_written(
    ruled: Callable[..., RunQueue],
    state: State,
    monkeypatch: pytest.MonkeyPatch,
    log: list[logging.LogRecord],
) -> None:
    """It can be read: another writer holds it, its disk is full, or it is read only."""
    queue = ruled()
    queue.iterate()

    def refused(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(waits, "note_pass", refused)
    monkeypatch.setattr(passes_module, "_NOTED_EVERY", timedelta(0))
    for _ in range(4):
        queue.iterate()
    assert len(log) == 1


def test_a_schema_of_another_version_is_such_trouble(
    ruled: Callable[..., RunQueue], state: State, log: list[logging.LogRecord]
) -> None:
    """Reported once, on Postgres with the command that upgrades an older one."""
    # SQLite is upgraded at its first use, so only one of a newer version stays another.
    revision = "0001" if state.server is not None else "newer"
    state.run(f"update arctic_alembic_version set version_num = '{revision}'")
    queue = ruled()
    held, free = queue.submit("load"), queue.submit("needs_ice")
    assert queue.iterate() == [free.run_id]
    for _ in range(3):
        assert queue.iterate() == []
    assert logged(log) == BEGIN_AND_END[:1]
    assert queue.status(held) is Status.QUEUED
    if state.server is not None:
        assert "Run: arctic db upgrade" in log[0].getMessage()


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_schema_of_another_version_leaves_no_connections_behind(
    ruled: Callable[..., RunQueue], state: State
) -> None:
    """The daemon tries at each pass, perhaps for days, and a server has a hundred connections."""
    assert state.server is not None
    state.run("update arctic_alembic_version set version_num = 'x'")
    queue = ruled()
    gc.disable()
    try:
        for _ in range(20):
            queue.iterate()
        connection = state.server.connect("postgres")
        with connection, connection.cursor() as cursor:
            cursor.execute("select count(*) from pg_stat_activity where datname = 'state'")
            (count,) = cursor.fetchone()
        connection.close()
    finally:
        gc.enable()
    assert count <= 2


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_file_that_was_replaced_is_read_again(
    ruled: Callable[..., RunQueue], state: State
) -> None:
    """Removed and made again by a command, or put back from a backup."""
    queue = ruled(queues={"low": {"match": {"job": "bill"}}})
    queue.iterate()
    file = Path(state.url.removeprefix("sqlite:///"))
    for one in file.parent.glob(f"{file.name}*"):
        one.unlink()
    state.migrate()
    state.do(lambda tx: pauses.store(tx, "default", "queue", "low", "maintenance", EVENING))
    queue.submit("bill")
    assert queue.iterate() == []
