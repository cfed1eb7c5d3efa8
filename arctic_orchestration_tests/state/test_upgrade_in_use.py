"""A state database in use, with its file of schedules, is upgraded, and its schedules go on.

``used_0028.json`` has the rows that the code of revision 0028 left after these ticks, with the
schedules of ``used_0028.yaml``: two arrivals of ``raw/a`` made a run of ``rollup``, which succeeded
and made one of ``publish``, which goes on; a third one waits for a fourth; ``report`` waits an hour
for an arrival of ``raw/b``; a run of ``copy`` was requested for one of ``raw/c``, and Dagster never
heard of it; ``sweep`` comes at three.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import SchemaOutdated, SchemaTooNew
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.dagster import task_run
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.state import database as database_module
from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration.state.migrations import VERSION_TABLE
from arctic_orchestration.state.tables import jobs, metadata
from arctic_orchestration_tests.consumers.arrivals import ASSET, NOON, Log, engine_of
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.standing_clock import Clock
from arctic_orchestration_tests.state.test_schema import FIRST, restore_first_schema
from arctic_orchestration_tests.state.test_upgrade_and_backup import db_upgrade

_HERE = Path(__file__).parent
#: a consumer that has read one arrival, whose delivery is not acknowledged
_CONSUMER = {
    "id": 1, "cluster": "default", "name": "totals", "asset": ASSET, "start": "from_beginning",
    "storage_id": "storage", "position": '{"read": 1}', "next_number": 2, "max_attempts": 3,
    "retry_seconds": 0, "lease_seconds": 60, "working_set": 100, "created_at": NOON,
}  # fmt: skip
_PARTITION = {
    "consumer_id": 1, "partition": "01", "state": "waiting", "state_at": NOON, "reason": "",
    "place": 1, "number": 1, "arrivals": 1, "first_at": NOON, "at": NOON, "details": "{}",
    "event_id": 1, "event_at": NOON,
}  # fmt: skip
_NEXT = sa.text("select setval(pg_get_serial_sequence(:table, 'id'), :id)")


def _stored(value: Any) -> Any:
    return datetime.fromisoformat(value["at"]) if isinstance(value, dict) else value


@pytest.fixture
def used(empty_url: str) -> Iterator[Database]:
    """The database as it was left, with the rows of that revision and nothing else."""
    left = json.loads((_HERE / f"used_{FIRST}.json").read_text())
    assert left["revision"] == FIRST
    with closing(Database(empty_url)) as database:
        restore_first_schema(database)
        with database.begin() as tx:
            for name, rows in left["rows"].items():
                # Of this revision, its types; the columns are those of the other one.
                known = metadata.tables[name].c
                table = sa.table(name, *(sa.column(one, known[one].type) for one in rows[0]))
                for row in rows:
                    values = {column: _stored(value) for column, value in row.items()}
                    tx.execute(sa.insert(table).values(values))
                if tx.dialect.name == "postgresql" and isinstance(rows[0].get("id"), int):
                    # As if Postgres had chosen the numbers itself.
                    tx.execute(_NEXT, {"table": name, "id": max(row["id"] for row in rows)})
        yield database


def as_it_was(database: Database) -> World:
    """With what Dagster had at that time, and the schedules of the file, enabled as before."""
    text = (_HERE / f"used_{FIRST}.yaml").read_text()
    found = read_schedules(text, name="used.yaml")
    here = World(database, [one.model_copy(update={"enabled": True}) for one in found])
    with database.read() as tx:
        query = sa.select(jobs.c.run_id, jobs.c.id).where(jobs.c.run_id.is_not(None))
        ids = {row.run_id: row.id for row in tx.execute(query)}
    tags = {run: {"arctic/job": id, "dagster/run_key": f"{id}-1"} for run, id in ids.items()}
    for asset, partition in (("raw/a", "1"), ("raw/a", "2"), ("raw/b", "1")):
        here.feed.arrive(asset, partition)
    here.dagster.start("rollup", "run-1", tags["run-1"])
    here.dagster.end("run-1")
    here.feed.arrive("raw/a", "3")
    here.dagster.start("publish", "run-2", tags["run-2"])
    here.feed.arrive("raw/c", "1")
    here.dagster.keys = {tags[run]["dagster/run_key"]: run for run in tags}
    # Their requests are not needed; the next run has the number 3.
    here.dagster.requests = [None, None]  # type: ignore[list-item]
    return here


def test_schedules_go_on_where_the_earlier_version_left_them(
    used: Database, empty_url: str
) -> None:
    """Nothing is launched twice or lost, also by daemons that start during the upgrade."""
    here = as_it_was(used)
    begin, dagster = threading.Barrier(3), threading.Lock()

    def daemon() -> None:
        begin.wait()
        while True:
            try:
                database = Database.open(empty_url)
            except SchemaOutdated:
                # Until it was upgraded; on SQLite, the first one does.
                continue
            with closing(database):
                requests = replace(here, database=database).new_engine().tick(at(4)).requests
            with dagster:
                here.dagster.submit(requests)
            return

    with ThreadPoolExecutor(2) as pool:
        daemons = [pool.submit(daemon) for _ in range(2)]
        begin.wait()
        db_upgrade(empty_url)
        for one in daemons:
            one.result()
    assert used.revision() == SCHEMA_REVISION
    # The request that was lost is made again, and no other one.
    assert started(here) == {"rollup": 1, "publish": 1, "copy": 1}
    here.feed.arrive("raw/a", "4")
    here.tick(5)
    assert started(here) == {"rollup": 2, "publish": 1, "copy": 1}
    for run in list(here.dagster.runs.values()):
        if run.status is RunStatus.STARTED:
            here.dagster.end(run.run_id)
    here.tick(6)
    assert started(here) == {"rollup": 2, "publish": 2, "copy": 1}
    here.tick(3600)
    assert started(here) == {"rollup": 2, "publish": 2, "copy": 1}
    here.tick(3602)
    assert started(here) == {"rollup": 2, "publish": 2, "copy": 1, "report": 1}
    here.tick(3 * 3600 + 1)
    every = {"rollup": 2, "publish": 2, "copy": 1, "report": 1, "sweep": 1}
    assert started(here) == every
    for run in list(here.dagster.runs.values()):
        if run.status is RunStatus.STARTED:
            here.dagster.end(run.run_id)
    here.tick(3 * 3600 + 2)
    assert started(here) == every
    with used.read() as tx:
        states = Counter(tx.execute(sa.select(jobs.c.state)).scalars())
    assert states == {"succeeded": sum(every.values())}


def test_the_earlier_version_launches_nothing_once_the_database_is_upgraded(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs would refuse the database, and each job has three attempts."""
    monkeypatch.setattr(database_module, "_CHECK_SECONDS", 0)
    text = (_HERE / f"used_{FIRST}.yaml").read_text()
    every = next(one for one in read_schedules(text, name="used.yaml") if one.name == "every")
    with (
        closing(Database.open(database_url)) as database,
        closing(Database.open(database_url, outlives_upgrades=True)) as of_run,
        closing(Database(database_url)) as other,
    ):
        here = World(database, [every.model_copy(update={"enabled": True})])
        here.tick(0)
        here.feed.arrive("raw/c", "1")
        assert here.tick(1) == ["run-1"]
        here.feed.arrive("raw/c", "2")
        _set_revision(other, "9999")
        with pytest.raises(SchemaTooNew, match="has revision 9999"):
            here.tick(2)
        with pytest.raises(SchemaTooNew), database.begin():
            pass
        # A run that has begun acknowledges what it has done.
        with of_run.begin() as tx:
            assert tx.execute(sa.select(sa.func.count()).select_from(jobs)).scalar() == 1
        # The next process is of that version.
        _set_revision(other, SCHEMA_REVISION)
        here.dagster.end("run-1")
        assert here.tick(3) == ["run-2"]


def test_a_task_that_has_begun_goes_on_when_the_database_is_upgraded(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews its lease, and publishes what it has made."""
    monkeypatch.setattr(database_module, "_CHECK_SECONDS", 0)
    with (
        closing(task_run._database(database_url)) as of_run,
        closing(Database(database_url)) as other,
    ):
        _set_revision(other, "9999")
        with of_run.begin() as tx:
            assert tx.execute(sa.select(sa.func.count()).select_from(jobs)).scalar() == 0


def _set_revision(database: Database, revision: str) -> None:
    with database.begin() as tx:
        tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '{revision}'"))


def test_deliveries_from_before_an_upgrade_keep_their_names(empty_url: str) -> None:
    """What was written under such a name, and not acknowledged, is not written again."""
    log, clock = Log(), Clock()
    log.arrives("01")
    with closing(Database(empty_url)) as database:
        restore_first_schema(database)
        with database.begin() as tx:
            for name, row in (("consumers", _CONSUMER), ("consumer_partitions", _PARTITION)):
                known = metadata.tables[f"arctic_{name}"].c
                table = sa.table(
                    f"arctic_{name}", *(sa.column(one, known[one].type) for one in row)
                )
                tx.execute(sa.insert(table).values(row))
        db_upgrade(empty_url)
        engine = engine_of(database, log, clock)
        with engine.consume() as partitions:
            assert [one.delivery for one in partitions] == ["totals:01:1"]
        log.arrives("01", at=NOON)
        with engine.consume() as partitions:
            named = f"totals:01:2:{int(NOON.timestamp()) * 1000}"
            assert [one.delivery for one in partitions] == [named]


def started(here: World) -> dict[str, int]:
    """How many runs each job has."""
    return Counter(run.job for run in here.dagster.runs.values())
