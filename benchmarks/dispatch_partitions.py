"""What a tick of the dispatcher costs while many partitions of one target wait."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
from rich.table import Table

from arctic_orchestration import Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.schedules.dagster.targets import RepositoryTargets
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer
from benchmarks.places import Cost, Place, arrive, fill, measure, median, subscribe

WAITING = 10_000
_FIRST = datetime(1995, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Costs:
    """What was measured on one backend; events a second of wall time, and of CPU time."""

    first: tuple[float, float]
    idle: Cost
    one: Cost
    later: tuple[float, float]


def _days() -> dg.RepositoryDefinition:
    """A daily target that depends on an hourly asset."""

    @dg.asset(
        partitions_def=dg.DailyPartitionsDefinition("1990-01-01"),
        deps=[dg.AssetKey(["raw", "hours"])],
    )
    def day() -> None: ...

    hourly = dg.HourlyPartitionsDefinition("1990-01-01-00:00")
    hours = dg.AssetSpec(["raw", "hours"], partitions_def=hourly)
    return dg.Definitions(assets=[hours, day]).get_repository_def()


def _hours(count: int, *hours: int) -> Iterator[tuple[str, str]]:
    """Some hours of each of ``count`` days."""
    for hour in hours:
        for number in range(count):
            yield "hours", _hour(number, hour)


def _hour(day: int, hour: int) -> str:
    return f"{_FIRST + timedelta(days=day, hours=hour):%Y-%m-%d-%H:00}"


def waiting_partitions(at: Place, count: int) -> Costs:
    """One schedule, for each of ``count`` partitions of whose target a job begins to wait."""
    log = DagsterLog(at.instance)
    schedule = Schedule(
        name="days",
        target={"assets": ["day"]},
        trigger=on.partitions("raw/hours", count="all"),
        partitions="each",
        timeout="365d",
        enabled=True,
    )
    made = Engine(
        database=Database.open(at.database_url),
        cluster="bench",
        location="bench",
        feed=log,
        lookup=log,
        targets=RepositoryTargets(_days(), lambda: at.instance),
        declared=[schedule],
    )
    made.tick(utc_now())
    fill(at, _hours(count, 0))
    first = subscribe(made, count)
    idle = median(lambda: made.tick(utc_now()), 100)
    days = iter(range(count))
    one = median(
        lambda: made.tick(utc_now()), 30, lambda: arrive(at, "hours", _hour(next(days), 1))
    )
    fill(at, _hours(count, 2, 3))
    later = subscribe(made, 2 * count)
    log.close()
    made.database.close()
    return Costs(first, idle, one, later)


def partitions_table(
    backends: Sequence[str], server: PostgresServer | None, advance: Callable[[], None]
) -> Table:
    """Measures each backend, and calls ``advance`` after it."""
    table = Table(
        "backend",
        "first arrivals/s",
        "idle tick",
        "one event",
        "later arrivals/s",
        title=f"One schedule, {WAITING:,} days of whose target wait for all their hours",
        title_justify="left",
    )
    for backend in backends:
        costs: Costs = measure(waiting_partitions, backend, server, WAITING)
        rates = [f"{wall:,.0f} ({cpu:,.0f})" for wall, cpu in (costs.first, costs.later)]
        table.add_row(backend, rates[0], str(costs.idle), str(costs.one), rates[1])
        advance()
    table.caption = "Events a second of wall time, and of CPU time in brackets."
    return table
