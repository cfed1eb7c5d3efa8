"""No event that Dagster has stored stops a location: all that follow are taken."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, jobs, schedules
from arctic_orchestration_tests.code_location.odd_events import KINDS, OTHERS, REFUSED, arrive
from arctic_orchestration_tests.schedules.simulated import AnyTargets

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)

SCHEDULES = [
    Schedule(
        name=asset,
        target="nightly",
        trigger=on.partitions(f"raw/{asset}") | on.run(job="nightly", status="failure"),
        coalesce=False,
        enabled=True,
    )
    for asset in ("a", "b")
]


#: kind, and the backends of Dagster's storage and of the state database
CASES = [
    *((kind, on, on) for kind in KINDS for on in ("sqlite", "postgres")),
    # What one database holds the other may not.
    *((kind, "sqlite", "postgres") for kind in KINDS if "NUL" in kind or "letters" in kind),
]

#: arrivals of raw/a that the state database cannot hold; on SQLite it holds them
SET_ASIDE = {"a partition of 10,000 letters"}


@pytest.fixture
def instance(
    dagster_on: str, dagster_instance: Callable[[str], dg.DagsterInstance]
) -> dg.DagsterInstance:
    return dagster_instance(dagster_on)


def engine_of(instance: dg.DagsterInstance, database: Database) -> Engine:
    log = DagsterLog(instance, location="here")
    return Engine(
        database=database,
        cluster="default",
        location="here",
        feed=log,
        lookup=log,
        targets=AnyTargets(),
        declared=SCHEDULES,
    )


def partitions_taken(database: Database) -> dict[str, list[str]]:
    """The partitions of the ordinary arrivals that each schedule's jobs were made of."""
    query = (
        sa.select(schedules.c.name, sa.func.count())
        .join(jobs, jobs.c.schedule_id == schedules.c.id)
        .group_by(schedules.c.name)
    )
    with database.read() as tx:
        assert {row[0] for row in tx.execute(query)} == {"a", "b"}
        rows = tx.execute(sa.select(events.c.subject, events.c.partition).order_by("number"))
        found: dict[str, list[str]] = {}
        for subject, partition in rows:
            found.setdefault(subject, []).append(partition)
    return found


@pytest.mark.parametrize(("kind", "dagster_on", "backend"), CASES, indirect=["backend"])
def test_what_comes_after_an_odd_event_is_taken(
    kind: str, dagster_on: str, backend: str, instance: dg.DagsterInstance, database: Database
) -> None:
    """The odd event itself, too, where it is an arrival of an asset that a schedule names."""
    engine = engine_of(instance, database)
    engine.tick(NOW)
    refused = kind in REFUSED[dagster_on]
    if refused:
        with pytest.raises(Exception):  # noqa: B017, PT011 - each storage raises its own
            KINDS[kind](instance)
    else:
        KINDS[kind](instance)
    for partition, seconds in (("first", 5), ("second", 10)):
        for asset in ("a", "b"):
            arrive(instance, asset=["raw", asset], partition=partition)
        engine.tick(NOW + timedelta(seconds=seconds))
    taken = partitions_taken(database)
    assert taken.pop("raw/b") == ["first", "second"]
    assert taken["raw/a"][-2:] == ["first", "second"]
    aside = unreadable(database)
    if kind in SET_ASIDE and backend == "postgres" and not refused:
        assert len(aside) == 1
        assert aside[0].reader == "location here"
        assert "maximum" in aside[0].reason
    else:
        assert aside == []
        assert len(taken["raw/a"]) == (2 if refused or kind in OTHERS else 3)


def unreadable(database: Database) -> list[unreadable_events.UnreadableEvent]:
    with database.read() as tx:
        return list(unreadable_events.listed(tx, "default", limit=10))
