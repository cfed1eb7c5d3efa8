"""A process that dispatches one location, until it is stopped; and one without its lock."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Event as Flag
from typing import Any

import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration import Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.schedules import engine as scheduling_engine
from arctic_orchestration.schedules import location
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.proofs.processes import end_with_the_parent
from arctic_orchestration_tests.proofs.run_table import RunTable
from arctic_orchestration_tests.schedules.simulated import AnyTargets

#: schedules of one asset: those that wait for 1, 2, ... 9 partitions, and one for keys ending in 7
OF_AN_ASSET = 10
ONLY_SEVENS = OF_AN_ASSET - 1
_EVENTS_AT_ONCE = 20


def schedules(assets: int) -> list[Schedule]:
    """``OF_AN_ASSET`` schedules for each asset."""
    return [
        Schedule(
            name=f"s{asset}_{number}",
            target="rollup",
            trigger=on.partitions(f"raw/a{asset}", where="*7")
            if number == ONLY_SEVENS
            else on.partitions(f"raw/a{asset}", count=number + 1),
            enabled=True,
        )
        for asset in range(assets)
        for number in range(OF_AN_ASSET)
    ]


def concerned(asset: int, partition: str) -> list[str]:
    """The names of the schedules that an arrival is for."""
    names = [f"s{asset}_{number}" for number in range(ONLY_SEVENS)]
    return [*names, f"s{asset}_{ONLY_SEVENS}"] if partition.endswith("7") else names


def wanted(schedule: str) -> int:
    """How many partitions a schedule waits for, all of them different here."""
    number = int(schedule.split("_")[1])
    return 1 if number == ONLY_SEVENS else number + 1


def engine(home: str, database: Database, assets: int) -> Engine:
    """A dispatcher's engine, over Dagster's event log and the table of runs."""
    return Engine(
        database=database,
        cluster="default",
        location="here",
        feed=DagsterLog(DagsterInstance.from_config(home), location="here"),
        lookup=RunTable(database.engine),
        targets=AnyTargets(),
        declared=schedules(assets),
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one dispatcher did."""

    counts: Counter[str]
    ticks: int
    busy_ticks: int
    errors: Sequence[str]


def dispatch(
    home: str,
    url: str,
    assets: int,
    together: Barrier,
    stop: Flag,
    reports: Any,
    *,
    with_lock: bool = True,
) -> None:
    """Ticks until it is to stop, and then until nothing happens any more; reports what it did."""
    end_with_the_parent()
    # Small readings: the two then take turns often.
    vars(scheduling_engine)["EVENTS_AT_ONCE"] = _EVENTS_AT_ONCE
    if not with_lock:
        take_the_lock_away()
    database = Database(url)
    dispatcher = engine(home, database, assets)
    # Errors of the control stand: they are not looked for in single events and tried again.
    dispatcher.sets_aside = with_lock
    table = RunTable(database.engine)
    counts: Counter[str] = Counter()
    errors: list[str] = []
    ticks = busy_ticks = idle = 0
    dispatcher.tick(utc_now())
    together.wait()
    while not (stop.is_set() and idle >= 3):
        ticks += 1
        told_to_stop = stop.is_set()
        try:
            result = dispatcher.tick(utc_now())
            made = table.submit(result.requests)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {getattr(error, 'orig', error)}")
            idle += told_to_stop
            continue
        counts.update(result.counts)
        counts["runs"] += made
        busy = bool(result.counts["events"] or result.requests)
        busy_ticks += busy
        idle = 0 if busy or not told_to_stop else idle + 1
        if not busy:
            # An idle dispatcher leaves the processors to the writers.
            time.sleep(0.01)
    reports.put(Report(counts=counts, ticks=ticks, busy_ticks=busy_ticks, errors=errors))
    database.close()


def take_the_lock_away() -> None:
    """The location's row is read without being locked."""
    location.locked = read_without_lock


def read_without_lock(tx: sa.Connection, cluster: str, name: str) -> Location:
    """What :func:`~arctic_orchestration.schedules.location.locked` reads."""
    where = (locations.c.cluster == cluster) & (locations.c.name == name)
    return location.from_row(tx.execute(sa.select(locations).where(where)).mappings().one())
