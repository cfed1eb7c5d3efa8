"""``/events``: arrivals announced over REST, and what they set off."""

import os
import threading
from datetime import timedelta
from typing import Any

import dagster as dg
import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from arctic_orchestration import dagster_internals
from arctic_orchestration.event_log import announcement
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.schedules.inventory import Inventory, Partitioning
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.service_tables import announcements
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.announcing_process import MOMENTS, announce
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_problems import problem

KEY = {"Idempotency-Key": "k1"}
DAYS = {"arrivals": [{"asset": "raw/a", "partition": "01"}, {"asset": "raw/b", "partition": "02"}]}


def log_of(instance: dg.DagsterInstance) -> list[Event]:
    """The arrivals in Dagster's log, in the order of the feed."""
    log = DagsterLog(instance)
    try:
        return list(log.read(None, 30_000).events)
    finally:
        log.close()


def keys_of(instance: dg.DagsterInstance) -> list[tuple[str, str | None]]:
    return [(event.subject, event.partition) for event in log_of(instance)]


def announced(database: Database) -> list[Any]:
    with database.read() as tx:
        return list(audit.records(tx, feature="events"))


def test_arrivals_are_what_the_command_writes(
    api: MakeApi, database: Database, instance: dg.DagsterInstance
) -> None:
    """Compared with Dagster's own way to write them, also in the table of assets."""
    details: dict[str, Any] = {"path": "/in/a b.csv", "bytes": 1_048_576, "rows": 305}
    more: dict[str, Any] = {"source": "ftp", "checked": True, "share": 0.5, "list": [1, None]}
    form = {"asset": "raw/a", "partition": "01|EWR", **details, "metadata": more}
    body = {"arrivals": [form, {"asset": "plain", "partition": "🐧'"}]}
    done = api().post("/events", json=body, headers={**KEY, "X-Request-Id": "r"})
    assert done.status_code == 200, done.text
    answer = done.json()
    assert (answer["arrivals"], answer["assets"]) == (2, {"plain": 1, "raw/a": 1})
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            ["raw", "b"],
            partition="01|EWR",
            metadata={
                **more,
                "path": dg.MetadataValue.path("/in/a b.csv"),
                "bytes": 1_048_576,
                "rows": 305,
            },
        )
    )
    first, second, own = log_of(instance)
    for name in ("kind", "partition", "bytes", "rows", "run_id", "problem"):
        assert getattr(first, name) == getattr(own, name), name
    assert dict(first.metadata) == dict(own.metadata) == {**details, **more}
    assert (second.subject, second.partition, dict(second.metadata)) == ("plain", "🐧'", {})
    stored, by_dagster = (
        instance.get_latest_materialization_event(dg.AssetKey(["raw", name])) for name in "ab"
    )
    assert stored is not None
    assert by_dagster is not None
    assert stored.asset_materialization is not None
    assert stored.asset_materialization.tags == {"arctic/announcement": answer["id"]}
    for field in ("level", "user_message", "run_id", "job_name", "step_key", "error_info"):
        assert getattr(stored, field) == getattr(by_dagster, field), field
    assert {"/".join(key.path) for key in instance.all_asset_keys()} == {"raw/a", "raw/b", "plain"}
    (record,) = announced(database)
    assert (record.action, record.subject, record.actor.request_id) == (
        "announce",
        answer["id"],
        "r",
    )
    assert record.details == {"key": "k1", "arrivals": 2, "assets": {"raw/a": 1, "plain": 1}}


def test_the_same_key_is_answered_alike_and_writes_nothing(
    api: MakeApi, database: Database, instance: dg.DagsterInstance
) -> None:
    """Whatever happened since; another body is refused, another caller's key is another one."""
    client = api()
    first = client.post("/events", json=DAYS, headers=KEY)
    # A code location has no such assets by now.
    World(database, []).tick(0)
    again = client.post("/events", json=DAYS, headers=KEY)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert len(announced(database)) == 1
    other = {"arrivals": [{"asset": "raw/a", "partition": "01"}]}
    refused = problem(client.post("/events", json=other, headers=KEY), 422)
    assert refused["errors"][0]["field"] == "Idempotency-Key"
    assert keys_of(instance) == [("raw/a", "01"), ("raw/b", "02")]
    ann = api(token=token(database, "events:write", name="ann"))
    assert ann.post("/events", json=DAYS, headers=KEY).json()["id"] != first.json()["id"]
    assert len(keys_of(instance)) == 4


@pytest.mark.parametrize("body", [DAYS, {"arrivals": DAYS["arrivals"][:1]}], ids=["same", "other"])
def test_a_key_is_free_again_after_thirty_days(
    api: MakeApi, database: Database, instance: dg.DagsterInstance, body: Any
) -> None:
    """A request with it is another announcement, whatever its body, and is written."""
    client = api()
    first = client.post("/events", json=DAYS, headers=KEY).json()
    for days, written in ((29, 2), (30, 2 + len(body["arrivals"]))):
        with database.begin() as tx:
            at = database_time(tx) - timedelta(days=days)
            tx.execute(sa.update(announcements).values(begun_at=at + timedelta(minutes=-1)))
        answer = client.post("/events", json=body, headers=KEY)
        is_known = answer.status_code == 422 or answer.json()["id"] == first["id"]
        assert (is_known, len(keys_of(instance))) == (days == 29, written)


def test_one_invalid_arrival_stops_all(
    api: MakeApi, database: Database, instance: dg.DagsterInstance
) -> None:
    """Each is named, with its place; nothing is written, in either database."""
    client = api()
    good = {"asset": "raw/a", "partition": "01"}
    bodies: list[tuple[Any, list[str]]] = [
        ({}, ["arrivals"]),
        ({"arrivals": []}, ["arrivals"]),
        ({"arrivals": [good] * 10_001}, ["arrivals"]),
        ({"arrivals": [good], "force": "no"}, ["force"]),
        (
            {
                "arrivals": [
                    good,
                    {"asset": "raw//a", "partition": ""},
                    {**good, "bytes": -1, "rows": 2**63},
                    {**good, "bytes": "5MB", "rows": 1.5},
                    {**good, "metadata": {"path": "x"}},
                    {**good, "partition": "x" * 256, "more": 1},
                    # Dagster would store it, and could not read it again.
                    {**good, "metadata": {"a": [{"__class__": "Foo"}]}},
                    # Longer than Dagster's column, in which each is written as \\u4e2d.
                    {**good, "asset": "中" * 86},
                ]
            },
            [
                "arrivals[1].asset", "arrivals[1].partition", "arrivals[2].bytes",
                "arrivals[2].rows", "arrivals[3].bytes", "arrivals[3].rows",
                "arrivals[4].metadata", "arrivals[5].more", "arrivals[5].partition",
                "arrivals[6].metadata", "arrivals[7].asset",
            ],
        ),
    ]  # fmt: skip
    for body, fields in bodies:
        answer = problem(client.post("/events", json=body, headers=KEY), 422)
        assert sorted(one["field"] for one in answer["errors"]) == fields
    for headers in ({}, {"Idempotency-Key": ""}, {"Idempotency-Key": "a b"}):
        answer = problem(client.post("/events", json=DAYS, headers=headers), 422)
        assert answer["errors"][0]["field"].lower() == "idempotency-key"
    assert (keys_of(instance), announced(database)) == ([], [])


def test_the_longest_keys_are_stored(api: MakeApi, instance: dg.DagsterInstance) -> None:
    """Each of the characters is six in Dagster's table of assets, and four bytes in its indexes."""
    longest = [("中" * 84, "\U0001f427" * 255), ("x" * 255, "y" * 255)]
    body = {"arrivals": [{"asset": asset, "partition": key} for asset, key in longest]}
    done = api().post("/events", json={**body, "force": True}, headers=KEY)
    assert done.status_code == 200, done.text
    assert keys_of(instance) == longest


def test_names_are_checked_against_code_locations(
    api: MakeApi, database: Database, instance: dg.DagsterInstance
) -> None:
    """A typo of an asset or a key; what a schedule waits for is known, and ``force`` skips it."""
    region = Partitioning(keys=("north", "south"))
    world = World(database, [Schedule(name="a", target="x", trigger=on.partitions("raw/new"))])
    world.engine.inventory = Inventory(jobs=frozenset({"x"}), assets={"raw/a": region})
    world.tick(0)
    body: dict[str, Any] = {
        "arrivals": [
            {"asset": "raw/a", "partition": "nrth"},
            {"asset": "raw/aa", "partition": "north"},
            {"asset": "raw/a", "partition": "north"},
            {"asset": "raw/new", "partition": "1"},
        ]
    }
    client = api()
    answer = problem(client.post("/events", json=body, headers=KEY), 422)
    assert [(one["field"], one["value"]) for one in answer["errors"]] == [
        ("arrivals[0].partition", "nrth"),
        ("arrivals[1].asset", "raw/aa"),
    ]
    assert "did you mean north" in answer["errors"][0]["expected"]
    assert keys_of(instance) == []
    forced = client.post("/events", json={**body, "force": True}, headers=KEY)
    assert forced.json()["arrivals"] == 4
    assert len(keys_of(instance)) == 4


def test_topics_are_protected(
    api: MakeApi, database: Database, instance: dg.DagsterInstance
) -> None:
    """A scope says who announces what; one foreign asset among many is refused with all."""
    client = api(token=token(database, "events:write@asset=raw/a"))
    assert client.post("/events", json=DAYS, headers=KEY).status_code == 403
    mine = {"arrivals": DAYS["arrivals"][:1]}
    assert client.post("/events", json=mine, headers=KEY).status_code == 200
    for scope in ("events:read", "events:write@location=here", "schedules:write"):
        other = api(token=token(database, scope, name=scope.replace(":", "_").replace("=", "_")))
        assert other.post("/events", json=mine, headers=KEY).status_code == 403, scope
    assert keys_of(instance) == [("raw/a", "01")]


def test_without_an_instance_nothing_is_stored(
    api: MakeApi, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The answer says what the service lacks; the same key works once it has it."""
    client = api()
    assert "DAGSTER_HOME" in problem(client.post("/events", json=DAYS, headers=KEY), 409)["detail"]
    (tmp_path / "dagster.yaml").write_text("storage: {postgres: {}}")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    answer = client.post("/events", json=DAYS, headers=KEY)
    assert "dagster.yaml" in problem(answer, 503)["detail"]
    assert announced(database) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_request_is_completed_by_the_next(
    api: MakeApi, database: Database, instance: dg.DagsterInstance, moment: str
) -> None:
    """A real process is killed at that moment; the same request then writes what is missing."""
    body = {"arrivals": [{"asset": f"raw/{n % 3}", "partition": str(n)} for n in range(50)]}
    environment = {name: os.environ[name] for name in ("DAGSTER_HOME", "ARCTIC_DATABASE_URL")}
    process = forkserver().Process(target=announce, args=(environment, KEY, body, moment))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -9
    there = len(keys_of(instance))
    assert there == (50 if moment == "before the answer" else 0)
    done = api().post("/events", json=body, headers=KEY)
    assert done.json()["arrivals"] == 50
    assert keys_of(instance) == [(one["asset"], one["partition"]) for one in body["arrivals"]]
    assert len(announced(database)) == 1


def test_the_rows_of_assets_are_written_in_one_order(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers would otherwise wait for each other's rows, until Postgres ends one of them."""
    store, stored = dagster_internals._store_asset_event, list[Any]()

    def recorded(storage: Any, connection: sa.Connection, entry: Any, number: int) -> None:
        stored.append(entry.asset_materialization.asset_key)
        store(storage, connection, entry, number)

    monkeypatch.setattr(dagster_internals, "_store_asset_event", recorded)
    arrivals = [announcement.Arrival(asset=f"raw/{number}", partition="1") for number in range(12)]
    announcer = announcement.Announcer(instance)
    announcer.announce(arrivals, "id1", 0)
    announcer.announce(arrivals[::-1], "id2", 0)
    assert len(stored) == 24
    assert stored[:12] == stored[12:]


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.parametrize("of", ["READ COMMITTED", "REPEATABLE READ"], ids=["dagster", "state"])
def test_a_connection_that_ends_while_its_isolation_level_is_set_is_an_outage(
    api: MakeApi, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """SQLAlchemy does not translate the driver's error there."""
    client = api()
    setting: Any = PGDialect_psycopg2.set_isolation_level
    forced = {**DAYS, "force": True}

    def ended(self: Any, connection: Any, level: Any) -> None:
        if level == of:
            raise psycopg2.OperationalError("server closed the connection unexpectedly")
        setting(self, connection, level)

    with monkeypatch.context() as patched:
        patched.setattr(PGDialect_psycopg2, "set_isolation_level", ended)
        assert client.post("/events", json=forced, headers=KEY).status_code == 503
    assert client.post("/events", json=forced, headers=KEY).status_code == 200
    assert keys_of(instance) == [("raw/a", "01"), ("raw/b", "02")]


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_it_does_not_wait_for_ever_for_a_lock(
    api: MakeApi,
    instance: dg.DagsterInstance,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a service that was stopped, for example: repeats would take all threads of this one."""
    monkeypatch.setattr(announcement, "_LOCK_SECONDS", 1)
    storage: Any = instance.event_log_storage
    engine = sa.create_engine(storage.postgres_url)
    with engine.begin() as other:
        other.execute(sa.text("lock table event_logs in share mode"))
        assert api().post("/events", json=DAYS, headers=KEY).status_code == 503
    engine.dispose()
    assert api().post("/events", json=DAYS, headers=KEY).status_code == 200
    assert keys_of(instance) == [("raw/a", "01"), ("raw/b", "02")]


@pytest.mark.parametrize("looks", [True, False], ids=["looking", "control"])
def test_requests_at_once_write_once(
    api: MakeApi,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    looks: bool,
) -> None:
    """Four with one key. The control does not look into the log, and doubles."""
    if not looks:
        monkeypatch.setattr(announcement, "_announcement_of", lambda event: None)
    barrier = threading.Barrier(4)
    lock = announcement.Announcer._lock

    def together(self: Any, connection: Any, id: str) -> None:
        barrier.wait(20)
        lock(self, connection, id)

    monkeypatch.setattr(announcement.Announcer, "_lock", together)
    client = api()

    def send() -> None:
        assert client.post("/events", json=DAYS, headers=KEY).status_code == 200

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert (len(keys_of(instance)) == 2) == looks
