"""``arctic feed restart``, for an instance whose storage is new or was restored."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration.cli.doctor import feed_checks
from arctic_orchestration.errors import LogWentBack
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, locations
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.code_location.odd_events import NOON, arrive, execute
from arctic_orchestration_tests.schedules.simulated import AnyTargets


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A state database with a location that follows a storage."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    made = Database(database_url)
    row = {"cluster": "default", "name": "flights", "position": "{}", "storage_id": "old"}
    with made.begin() as tx:
        tx.execute(sa.insert(locations).values(row))
    return made


def test_a_restart_forgets_position_and_storage(
    database: Database, arctic: Callable[..., Outcome]
) -> None:
    """The next tick begins at the end of whatever storage there is."""
    result = arctic("feed", "restart", "flights", "--json")
    assert json.loads(result.out) == {"location": "flights", "restarted": True}
    with database.read() as tx:
        row = tx.execute(sa.select(locations.c.position, locations.c.storage_id)).one()
    assert tuple(row) == (None, None)


def test_an_unknown_location_is_refused_with_those_there_are(
    database: Database, arctic: Callable[..., Outcome]
) -> None:
    """Exit code 2, and nothing is changed."""
    result = arctic("feed", "restart", "nights")
    assert result.code == 2
    assert "has no location nights; it has: flights" in result.err
    with database.read() as tx:
        assert tx.execute(sa.select(locations.c.storage_id)).scalar() == "old"


class Lake:
    """A location that follows a real instance and takes each arrival of raw/a."""

    def __init__(self, instance: dg.DagsterInstance, url: str) -> None:
        self.instance = instance
        self.database = Database(url)
        log = DagsterLog(instance, location="lake")
        self.engine = Engine(
            database=self.database,
            cluster="default",
            location="lake",
            feed=log,
            lookup=log,
            targets=AnyTargets(),
            declared=[
                Schedule(name="s", target="j", trigger=on.partitions("raw/a"), enabled=True),
            ],
        )
        self.tick()

    def arrive(self, *partitions: str) -> None:
        for partition in partitions:
            arrive(self.instance, partition=partition)

    def tick(self) -> None:
        self.engine.tick(datetime.now(UTC))

    def taken(self) -> list[str]:
        with self.database.read() as tx:
            return list(tx.execute(sa.select(events.c.partition).order_by("number")).scalars())

    def lose(self, last: int) -> None:
        """A restore: the newest rows are gone, and their ids are given out again."""
        newest = "(select max(id) from event_logs)"
        execute(self.instance, "event_logs", f"delete from event_logs where id > {newest} - {last}")
        if "Postgres" in type(self.instance.event_log_storage).__name__:
            sequence = "pg_get_serial_sequence('event_logs', 'id')"
            execute(self.instance, "event_logs", f"select setval({sequence}, {newest})")


def test_after_a_restore_a_person_decides(
    instance: dg.DagsterInstance, database_url: str, arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ticks fail and change nothing, doctor says why, and the command goes on at an event."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    lake = Lake(instance, database_url)
    lake.arrive(*map(str, range(10)))
    lake.tick()
    assert len(lake.taken()) == 10
    assert feed_checks.positions(instance) == []
    lake.lose(5)
    lake.arrive(*(f"new {number}" for number in range(7)))
    for _ in range(2):
        with pytest.raises(LogWentBack, match="arctic feed restart lake --from-event ID"):
            lake.tick()
    (finding,) = feed_checks.positions(instance)
    assert (finding.check, finding.status) == ("feed of lake", "failed")
    assert "Dagster's event log went back" in finding.found
    result = arctic("feed", "restart", "lake", "--from-event", "6", "--json")
    assert json.loads(result.out) == {"location": "lake", "restarted": True, "from_event": 6}
    lake.tick()
    assert lake.taken()[10:] == [f"new {number}" for number in range(7)]
    lake.arrive("last")
    lake.tick()
    assert lake.taken()[17:] == ["last"]
    assert feed_checks.positions(instance) == []


def test_from_a_moment_and_from_the_end(
    instance: dg.DagsterInstance, database_url: str, arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A moment before the second of three, whose times are fixed; then one after all; the end."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    lake = Lake(instance, database_url)
    for number in range(3):
        arrive(instance, partition=str(number), timestamp=NOON + 60 * number)
    lake.tick()
    result = arctic("feed", "restart", "lake", "--from-time", "2026-01-01T12:00:30Z")
    assert result.out == "lake begins at event 2 with its next tick\n"
    lake.tick()
    assert lake.taken() == ["0", "1", "2", "1", "2"]
    result = arctic("feed", "restart", "lake", "--from-time", "2026-01-02T00:00:00+00:00")
    assert result.out == "lake begins at the end of the event log with its next tick\n"
    lake.arrive("3")
    lake.tick()
    assert lake.taken()[5:] == ["3"]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from-time", "noon"), "--from-time: got 'noon', expected"),
        (("--from-time", "2026-01-01"), "--from-time: got '2026-01-01', expected"),
        (("--from-event", "1", "--from-time", "2026-01-01T00:00:00Z"), "expected one of"),
    ],
)
def test_bad_options_change_nothing(
    database: Database, arctic: Callable[..., Outcome], options: tuple[str, ...], message: str
) -> None:
    """Exit code 2, with the field, the value and what was expected."""
    result = arctic("feed", "restart", "flights", *options)
    assert result.code == 2
    assert message in result.err
    with database.read() as tx:
        assert tx.execute(sa.select(locations.c.storage_id)).scalar() == "old"
