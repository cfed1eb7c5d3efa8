"""``arctic doctor``: what the state database is used for, and what need not be there therefore."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.cli.doctor.command import examine
from arctic_orchestration.cli.doctor.state_checks import Use, uses
from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue.table_queues import see_table
from arctic_orchestration.console.findings import BAD, WARNING
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.state.consumer_tables import consumers
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations, schedules
from arctic_orchestration_tests.cli.tasked import ON_SQLITE, Tasked, task, tasked
from arctic_orchestration_tests.present import present

__all__ = ["tasked"]


def compact(database: Database) -> None:
    """The planner has found a table."""
    with database.begin() as tx:
        see_table(tx, "lake.flights", queue=None, level=0, now=utc_now())


def consume(database: Database) -> None:
    """A consumer was made."""
    values = {
        "cluster": "default", "name": "rollup", "asset": "raw/flights", "start": "from_beginning",
        "max_attempts": 3, "retry_seconds": 60.0, "lease_seconds": 60.0, "working_set": 10,
        "created_at": utc_now(),
    }  # fmt: skip
    with database.begin() as tx:
        tx.execute(sa.insert(consumers).values(**values))


def schedule(database: Database) -> None:
    """A schedule was made."""
    now = utc_now()
    values = {
        "id": new_id(now), "name": "rollup", "version": 1, "origin": "code", "status": "enabled",
        "spec": "{}", "created_at": now, "updated_at": now, "status_at": now,
    }  # fmt: skip
    with database.begin() as tx:
        place = sa.insert(locations).values(cluster="default", name="flights")
        (location,) = present(tx.execute(place).inserted_primary_key)
        tx.execute(sa.insert(schedules).values(location_id=location, **values))


def test_each_use_is_found_by_its_rows(tasked: Tasked) -> None:
    """One after the other."""
    assert uses() == set()
    compact(tasked.database)
    assert uses() == {Use.COMPACTION}
    consume(tasked.database)
    assert uses() == {Use.COMPACTION, Use.CONSUMERS}
    tasked.declare(task("raw", 12))
    assert uses() == {Use.COMPACTION, Use.CONSUMERS, Use.TASKS}
    schedule(tasked.database)
    assert uses() == set(Use)


@ON_SQLITE
def test_an_instance_is_missed_where_more_than_compaction_is_used(
    tasked: Tasked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer reads Dagster's log."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)

    def status() -> str:
        return {one.check: one.status for one in examine()}["dagster instance"]

    assert status() == BAD
    compact(tasked.database)
    assert status() == WARNING
    consume(tasked.database)
    assert status() == BAD


@ON_SQLITE
def test_a_dispatcher_is_missed_where_there_are_schedules(
    tasked: Tasked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or nothing yet; tasks and consumers have none."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    def status() -> str:
        return {one.check: one.status for one in examine()}["dispatcher"]

    assert status() == BAD
    tasked.declare(task("raw", 12))
    assert status() == WARNING
    schedule(tasked.database)
    assert status() == BAD
